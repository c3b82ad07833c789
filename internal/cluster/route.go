package cluster

import "tapgw/internal/protocol"

// This file decides which gateways a provider's message goes to, by its session and by the id that
// it answers.

// receive handles a message of the provider. Only the connection's reader calls it.
func (r *relay) receive(data []byte) {
	if !r.local.AuthEnded() {
		r.auth(data)
		return
	}
	if r.isWaiting() {
		r.sendFirst()
	}
	a := readAbout(data)
	switch a.kind {
	case protocol.TypeHello:
		r.hello(a, data)
		return
	case protocol.TypeShutdownReady, protocol.TypeGoodbye:
		r.noteEnd(a)
	case protocol.TypePush:
		if r.c.o.Keeper != nil && r.keep(a, data) {
			return
		}
	}
	r.mu.Lock()
	record := r.callRecord(a)
	r.mu.Unlock()
	if record != nil && r.c.o.Record != nil {
		r.c.o.Record(*record)
	}
	toLocal, upstreams := r.route(a, data)
	for _, u := range upstreams {
		u.send(data, a)
	}
	if toLocal {
		r.toLocal(func() { r.local.Receive(data) })
	}
}

// route says where a message goes that is no hello: here, and to which other gateways.
func (r *relay) route(a about, data []byte) (toLocal bool, upstreams []*upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all {
		r.setup.add(a, data)
	}
	if a.kind == protocol.TypeToolsUpdate && a.session == "" && r.reach != nil {
		r.show(data)
	}
	one := func(u *upstream) (bool, []*upstream) {
		if u == nil {
			return true, nil
		}
		return false, []*upstream{u}
	}
	if isAnswer(a.kind) {
		return one(r.askedBy(a.kind, a.call))
	}
	if !r.all || a.kind == protocol.TypeQuestionAnswer || a.kind == protocol.TypeStreamQuery &&
		a.session == "" {
		return one(r.fallback())
	}
	if a.session != "" {
		if u := r.upstreamOf(a.session); u != nil {
			return one(u)
		}
		return one(r.fallback())
	}
	switch a.kind {
	case protocol.TypeToolsUpdate, protocol.TypeHooksUpdate, protocol.TypeContextUpdate,
		protocol.TypeFilterSet, protocol.TypeShutdownReady:
	case protocol.TypePush:
		if !a.isBroadcast {
			return one(r.fallback())
		}
	default:
		return one(r.fallback())
	}
	for _, u := range r.upstreams {
		if u.isBound {
			upstreams = append(upstreams, u)
		}
	}
	return r.isBound || len(upstreams) == 0, upstreams
}

// about is where a provider's message belongs, by its own fields.
type about struct {
	kind        protocol.Type
	call        string // that it answers
	session     string // that it names, of a hello too
	name        string // of a hello
	restores    string // the reconnect token of a hello
	isBroadcast bool
	hasFile     bool   // of a result, which names a file
	hasContent  bool   // of a result, whose parts may be files
	error       string // of a result
	errorCode   string
}

func readAbout(data []byte) (a about) {
	// the receiver reports faults
	_ = protocol.Object(data, func(name string, value protocol.Raw) error {
		switch name {
		case "broadcast":
			a.isBroadcast = string(value) == "true"
		case "file":
			a.hasFile = value.Kind() != 'n'
		case "content":
			a.hasContent = value.Kind() != 'n'
		case "type", "id", "callId", "sessionId", "session", "name", "reconnectToken", "error",
			"errorCode":
		default:
			return nil
		}
		text, _ := protocol.Text(value)
		switch name {
		case "type":
			a.kind = protocol.Type(text)
		case "id", "callId":
			a.call = text
		case "sessionId", "session":
			a.session = text
		case "name":
			a.name = text
		case "reconnectToken":
			a.restores = text
		case "error":
			a.error = text
		case "errorCode":
			a.errorCode = text
		}
		return nil
	})
	return a
}

func isAnswer(t protocol.Type) bool {
	switch t {
	case protocol.TypeToolResult, protocol.TypeToolProgress, protocol.TypeGateResult,
		protocol.TypeTransformResult:
		return true
	}
	return false
}

// fallback is where messages go that are about nothing in particular; nil for this gateway. Call
// with r.mu held.
func (r *relay) fallback() *upstream {
	if r.home != nil || r.isBound || !r.all {
		return r.home
	}
	for _, u := range r.upstreams {
		if u.isBound {
			return u
		}
	}
	return nil
}

// targetOf is where a message goes of which only the head could be read; nil for this gateway.
func (r *relay) targetOf(t protocol.Type, call string) *upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isAnswer(t) {
		return r.askedBy(t, call)
	}
	return r.fallback()
}

// askedBy returns the gateway that an answer is for, nil for this one. It may have one answer. Call
// with r.mu held.
func (r *relay) askedBy(t protocol.Type, call string) *upstream {
	u := r.calls[call].by
	if u == nil {
		return r.fallback()
	}
	if t != protocol.TypeToolProgress {
		delete(r.calls, call)
		u.open--
	}
	return u
}

// forgetCalls forgets the requests of a gateway, and returns the messages that cancel its calls.
// Call with r.mu held.
func (r *relay) forgetCalls(u *upstream) (cancels []protocol.Message) {
	for id, a := range r.calls {
		if a.by != u {
			continue
		}
		delete(r.calls, id)
		if a.tool != "" {
			cancels = append(cancels,
				&protocol.ToolCancel{ID: id, SessionID: a.session,
					Reason: protocol.ReasonInterrupted})
		}
	}
	return cancels
}
