package gateway

import (
	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// recordedHead has the members of a message that tell a recording which call or stream it is about.
type recordedHead struct {
	kind    protocol.Type
	session string // that it names
	id      string // of a call, check, request or query
	name    string // of a hello
}

// readRecordedHead reads a message. isMessage is false if it is no JSON object.
func readRecordedHead(data []byte) (h recordedHead, isMessage bool) {
	err := protocol.Object(data, func(name string, value protocol.Raw) error {
		text, isText := protocol.Text(value)
		if !isText {
			return nil
		}
		switch name {
		case "type":
			h.kind = protocol.Type(text)
		case "sessionId", "session":
			h.session = text
		case "id", "callId", "queryId":
			h.id = text
		case "name":
			h.name = text
		}
		return nil
	})
	return h, err == nil
}

// addFrame adds a frame of a connection, if it is about the session.
func (r *Recording) addFrame(c *Conn, from string, data []byte) {
	head, isMessage := readRecordedHead(data)
	line := adminapi.RecordingLine{From: from, To: adminapi.PartyProvider}
	if from == adminapi.PartyProvider {
		line.To = adminapi.PartyGateway
	}
	if isMessage {
		line.Message = data
	} else {
		line.Text = string(data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rc := r.connection(c)
	switch {
	case from == adminapi.PartyGateway && head.kind == protocol.TypeHelloAck:
		r.bound(rc, head.session, line)
		return
	case from == adminapi.PartyProvider && head.kind == protocol.TypeHello:
		rc.session, rc.provider = head.session, protocol.NormalName(head.name)
		if rc.state == recordedForeign {
			rc.state = recordedUnknown // until the answer
		}
	case head.kind == protocol.TypeError && rc.state == recordedUnknown && r.mayBe(rc.session):
		r.accept(rc)
	case rc.state == recordedOwn && rc.isForeign(head, r.session.id):
		return
	}
	r.append(rc, line)
}

// bound handles the answer to a hello: from now on the connection belongs to the recording, or
// it does not. Call with r.mu held.
func (r *Recording) bound(rc *recordedConn, session string, line adminapi.RecordingLine) {
	isOwn := session == r.session.id || session == protocol.AllSessions
	if isOwn && rc.state == recordedUnknown {
		r.accept(rc)
	}
	r.append(rc, line) // also the answer that takes the connection to another session
	rc.held = nil
	if !isOwn {
		rc.state = recordedForeign
	}
}

// mayBe reports whether a hello that asks for a session may be about this one. "" leaves the
// choice to the gateway.
func (r *Recording) mayBe(session string) bool {
	return session == "" || session == r.session.id || session == protocol.AllSessions
}

// isForeign reports whether a message is about another session than the one with the id: it
// names another one, or answers a message that did.
func (rc *recordedConn) isForeign(h recordedHead, session string) bool {
	if h.kind == protocol.TypeHello {
		return false
	}
	if h.session != "" && h.session != session && h.session != protocol.AllSessions {
		rc.addForeign(h.id)
		return true
	}
	_, isForeign := rc.foreign[h.id]
	switch h.kind {
	case protocol.TypeToolResult, protocol.TypeGateResult, protocol.TypeTransformResult,
		protocol.TypeStreamHistory:
		delete(rc.foreign, h.id)
	}
	return isForeign
}

// addForeign remembers the id of a request about another session, for its answer.
func (rc *recordedConn) addForeign(id string) {
	if id == "" {
		return
	}
	if len(rc.foreign) >= maxForeignIDs {
		clear(rc.foreign) // of a provider that never answers
	}
	rc.foreign[id] = struct{}{}
}
