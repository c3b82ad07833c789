package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// This file is the provider's end of a connection to another gateway: it sends the provider's
// messages over the trunk, and hands that gateway's messages to the provider.

// maxAsked bounds the open requests of one gateway to a provider.
const maxAsked = 4096

// upstream is the connection of a provider of this gateway at another one.
type upstream struct {
	// Fixed when it is made.
	r  *relay
	tr *trunk
	id uint64

	// Guarded by relay.mu.
	sessions []protocol.SessionInfo // of that gateway, that it may serve
	hasList  bool                   // its sessions are known
	isBound  bool
	isAsked  bool   // a hello was sent and has no answer
	isQuiet  bool   // the provider has an answer to its hello already
	name     string // of the hello
	open     int    // its requests without an answer yet
}

// asked is something that a gateway asked a provider.
type asked struct {
	by      *upstream
	session string
	tool    string // of a call; "" for a question of another kind
	began   time.Time
}

// connect opens a connection of a provider at the other gateway; nil if that is out of reach. Call
// with relay.mu held.
func (tr *trunk) connect(r *relay, request []byte) *upstream {
	tr.mu.Lock()
	if !tr.isUp {
		tr.mu.Unlock()
		return nil
	}
	tr.nextConn++
	u := &upstream{r: r, tr: tr, id: tr.nextConn}
	tr.upstreams[u.id] = u
	tr.mu.Unlock()
	u.push(opOpen, request)
	return u
}

func (u *upstream) push(o op, data []byte) {
	u.tr.push(o, u.id, data)
	u.tr.flush()
}

// send sends a message of the provider. The files that it names are here, so their content goes
// with it.
func (u *upstream) send(data []byte, a about) {
	if a.kind == protocol.TypeToolResult && (a.hasFile || a.hasContent && hasFiles(data)) {
		u.tr.c.begin(func() { u.push(opUp, u.withFiles(data)) })
		return
	}
	u.push(opUp, data)
}

// hasFiles reports whether parts of a result are files.
func hasFiles(data []byte) bool {
	m, err := decode(data)
	result, ok := m.(*protocol.ToolResult)
	if err != nil || !ok {
		return false
	}
	for i := range result.Content {
		if result.Content[i].File != nil {
			return true
		}
	}
	return false
}

func decode(data []byte) (protocol.Message, *protocol.Error) {
	f, err := protocol.Open(data)
	if err != nil {
		return nil, err
	}
	return f.Decode()
}

// withFiles puts the content of the files that a result names into it. If a file can't be read, the
// outcome is that error.
func (u *upstream) withFiles(data []byte) []byte {
	m, err := decode(data)
	result, ok := m.(*protocol.ToolResult)
	if err != nil || !ok {
		return data
	}
	fail := func(err error) []byte {
		return protocol.Append(nil,
			&protocol.ToolResult{ID: result.ID, ErrorCode: protocol.CodeInternal,
				Error: "tool.result.file: " + err.Error()})
	}
	if ref := result.File; ref != nil {
		file, err := u.readFile(*ref)
		if err != nil {
			return fail(err)
		}
		result.File, result.Content = nil, append(result.Content, partOf(file))
	}
	for i := range result.Content {
		part := &result.Content[i]
		if part.File == nil {
			continue
		}
		file, err := u.readFile(*part.File)
		if err != nil {
			return fail(err)
		}
		part.File, part.Data, part.MimeType = nil, file.Content,
			cmp.Or(part.MimeType, file.MimeType)
	}
	whole := protocol.Append(nil, result)
	if len(whole) > protocol.MaxResult {
		return fail(
			errors.New(
				"a result for a session of another gateway has at most 5 MiB, files included"))
	}
	return whole
}

// partOf is a file as a part of a result.
func partOf(f *gateway.File) protocol.Part {
	part := protocol.Part{Data: f.Content, MimeType: f.MimeType}
	text, isText := f.Text()
	switch kind, _, _ := strings.Cut(f.MimeType, "/"); {
	case isText:
		return protocol.Part{Type: protocol.PartText, Text: text}
	case kind == "image":
		part.Type = protocol.PartImage
	case kind == "audio":
		part.Type = protocol.PartAudio
	default:
		part.Type, part.URI = protocol.PartResource, "file:///"+f.Name
	}
	return part
}

func (u *upstream) readFile(ref protocol.FileRef) (*gateway.File, error) {
	name, hasFiles := u.keepsFiles()
	if !hasFiles || u.tr.c.o.ReadFile == nil {
		return nil, errors.New("a provider without a persistDir has no files to name")
	}
	return u.tr.c.o.ReadFile(name, ref)
}

// keepsFiles reports whether the provider may have a directory on this machine, and under which
// name.
func (u *upstream) keepsFiles() (name string, ok bool) {
	u.r.mu.Lock()
	defer u.r.mu.Unlock()
	return u.name, u.r.reach != nil && u.r.reach.Trust != gateway.TrustExternal
}

// receive handles a record for the provider.
func (u *upstream) receive(rec record) {
	if rec.op == opCloseDown {
		var c closing
		if json.Unmarshal(rec.data, &c) != nil || c.Code < 1000 || c.Code > 4999 {
			c = closing{Code: protocol.CloseGoingAway}
		}
		u.closed(c.Code, c.Reason)
		return
	}
	m := u.tr.lists.decode(rec.data)
	if m == nil {
		u.tr.c.count(u.tr.peer, "malformed messages")
		return
	}
	switch m := m.(type) {
	case *protocol.HelloAck:
		m.PersistDir = u.persistDir()
		u.r.local.BoundElsewhere()
	case *protocol.Error:
		if m.ReplyTo == protocol.TypeHello {
			u.r.local.RefusedElsewhere(fmt.Errorf("gateway %q: %w", u.tr.peer, m))
		}
	}
	u.handle(m)
	u.r.peer.Flush()
}

// heardLists has the last list of each kind that came from a gateway. Each provider is told the
// same ones: they are read once, and shared.
type heardLists struct {
	data map[protocol.Type][]byte
	read map[protocol.Type]protocol.Message
}

// decode reads a message of a gateway; nil for one that it may not send.
func (l *heardLists) decode(data []byte) protocol.Message {
	for kind, last := range l.data {
		if bytes.Equal(last, data) {
			return l.read[kind]
		}
	}
	f, err := protocol.Open(data)
	if err != nil || !f.Type.FromGateway() {
		return nil
	}
	m, err := f.Decode()
	if err != nil {
		return nil
	}
	if f.Type == protocol.TypeSessions || f.Type == protocol.TypeSessionsUpdated {
		if l.data == nil {
			l.data, l.read = map[protocol.Type][]byte{}, map[protocol.Type]protocol.Message{}
		}
		l.data[f.Type], l.read[f.Type] = bytes.Clone(data), m
	}
	return m
}

// persistDir makes the directory of the provider, which is on this machine wherever it serves. It
// is "" if providers have no directories.
func (u *upstream) persistDir() string {
	name, hasFiles := u.keepsFiles()
	if !hasFiles || u.tr.c.o.PersistDir == nil {
		return ""
	}
	dir, err := u.tr.c.o.PersistDir(name)
	if err != nil {
		u.tr.c.log.Warn("making a provider's directory", "provider", name, "error", err)
	}
	return dir
}

// handle gives the provider a message of the other gateway.
func (u *upstream) handle(m protocol.Message) {
	r := u.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.upstreams[u.tr] != u {
		return
	}
	switch m := m.(type) {
	case *protocol.Sessions:
		u.list(m.Active, protocol.TypeSessions)
	case *protocol.SessionsUpdated:
		u.list(m.Active, protocol.TypeSessionsUpdated)
	case *protocol.HelloAck:
		u.isAsked, u.isBound, r.shown.ID = false, true, m.ProviderID
		if u.isQuiet || r.home != u && !r.all {
			return
		}
		r.answered = true
		r.remember(m, u.tr)
		r.peer.Send(m)
	case *protocol.Error:
		isHello := m.ReplyTo == protocol.TypeHello
		wasQuiet := u.isQuiet && isHello && u.isAsked
		if isHello {
			u.isAsked = false
		}
		if wasQuiet || isOwnRequest(m.RequestID) {
			u.tr.c.log.Warn("a gateway refuses a provider", "gateway", u.tr.peer, "provider",
				u.name, "code", string(m.Code), "error", m.Message)
			return
		}
		r.answered = r.answered || isHello
		r.peer.Send(m)
	case *protocol.Ack:
		if !isOwnRequest(m.RequestID) {
			r.peer.Send(m)
		}
	case *protocol.SessionLifecycle:
		r.noteLifecycle(m)
		r.peer.Send(m)
	case *protocol.ToolCall:
		if m.Tool == "" || r.reach == nil || !r.reach.Tools.Allows(m.Tool) {
			u.tr.c.count(u.tr.peer, "calls that it may not make")
			return
		}
		u.ask(m.ID, m.SessionID, m.Tool, m)
	case *protocol.GateCheck:
		u.ask(m.CallID, m.SessionID, "", m)
	case *protocol.TransformRequest:
		u.ask(m.CallID, m.SessionID, "", m)
	case *protocol.AuthPairing:
		u.tr.c.count(u.tr.peer, "questions for a pairing code")
	default:
		r.peer.Send(m)
	}
}

// ask asks the provider. Call with relay.mu held.
func (u *upstream) ask(id, session, tool string, m protocol.Message) {
	if _, isUsed := u.r.calls[id]; isUsed || id == "" || u.open >= maxAsked || !u.isBound {
		u.tr.c.count(u.tr.peer, "calls that it may not make")
		return
	}
	u.open++
	u.r.calls[id] = asked{u, session, tool, time.Now()}
	u.r.peer.Send(m)
}

// callRecord returns the record of a call that a message of the provider answers; nil for any other
// message. Call with relay.mu held.
func (r *relay) callRecord(a about) *adminapi.Record {
	c, ok := r.calls[a.call]
	if !ok || c.tool == "" || a.kind != protocol.TypeToolResult {
		return nil
	}
	outcome := adminapi.OutcomeOK
	if a.error != "" || a.errorCode != "" {
		outcome = adminapi.OutcomeFailed
	}
	return &adminapi.Record{
		TS: time.Now(), Kind: adminapi.RecordCall, Gateway: c.by.tr.peer, Session: c.session,
		Provider: c.by.name, ID: a.call, Tool: c.tool, Outcome: outcome, Code: a.errorCode,
		DurationMs: float64(time.Since(c.began).Microseconds()) / 1000,
	}
}

// list notes the sessions of the other gateway, and binds a provider of all sessions to them. Call
// with relay.mu held.
func (u *upstream) list(sessions []protocol.SessionInfo, kind protocol.Type) {
	r := u.r
	u.sessions, u.hasList = r.within(sessions), true
	if r.all && !u.isBound && !u.isAsked && len(sessions) > 0 && r.setup.hello != nil &&
		r.mayJoin() {
		u.isAsked, u.isQuiet, u.name = true, r.answered, readAbout(r.setup.hello).name
		for _, data := range r.setup.frames() {
			u.push(opUp, data)
		}
	}
	if r.home != u && !u.isBound {
		kind = ""
	}
	r.list(kind)
}

// closed ends the connection, as the other gateway says.
func (u *upstream) closed(code protocol.CloseCode, reason string) {
	u.tr.mu.Lock()
	delete(u.tr.upstreams, u.id)
	u.tr.mu.Unlock()
	u.gone(code, reason)
}

// lose ends the connection: its gateway is out of reach.
func (u *upstream) lose() {
	u.gone(protocol.CloseGoingAway, u.tr.unreachable().Error())
}

// gone tells the provider that another gateway is gone. If it served a session there and nothing
// else, its connection ends as if it had been one to that gateway.
func (u *upstream) gone(code protocol.CloseCode, reason string) {
	r := u.r
	r.mu.Lock()
	if r.upstreams[u.tr] != u {
		r.mu.Unlock()
		return
	}
	delete(r.upstreams, u.tr)
	if r.home == u {
		r.mu.Unlock()
		r.Close(code, reason)
		return
	}
	for _, m := range r.forgetCalls(u) {
		r.peer.Send(m)
	}
	r.list("")
	r.mu.Unlock()
	r.peer.Flush()
}

// close ends the connection: the provider is gone, or binds elsewhere. Call under no lock.
func (u *upstream) close() {
	u.push(opCloseUp, nil)
	u.tr.mu.Lock()
	delete(u.tr.upstreams, u.id)
	u.tr.mu.Unlock()
}
