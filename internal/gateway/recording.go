package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Limits of a recording. Beyond the first two, messages are dropped that the reader has not read
// yet. The others hold for one connection.
const (
	maxRecordedLines = 8192
	maxRecordedBytes = 16 << 20
	maxHeldLines     = 64
	maxForeignIDs    = 4096

	maxRecordings = 8 // at once
)

// Recording copies the messages between a session's providers and the gateway for one reader. It
// has the tokens of these messages: the reader must remove them. Without a recording, a message
// costs one atomic load. [Recording.Stop] ends it.
type Recording struct {
	session *Session
	lines   *buffer[adminapi.RecordingLine]
	cursor  uint64 // the reader's

	// mu is a leaf, but for the buffer's lock.
	mu    sync.Mutex // guards the fields below
	conns map[*Conn]*recordedConn
	last  int // number of a connection
}

// recordedConn is a recording's state of a connection.
type recordedConn struct {
	number   int
	provider string
	session  string // that the last hello asked for
	state    recordedState
	held     []adminapi.RecordingLine
	foreign  map[string]struct{} // ids of requests about other sessions
}

// recordedState says whether the messages of a connection belong to a recording.
type recordedState int

const (
	recordedUnknown recordedState = iota // not bound yet: they are held until it is
	recordedOwn                          // bound to the session
	recordedForeign                      // bound to another one
)

// Record begins a recording of the session, and returns its first line, without the version of
// the gateway. The error is RATE_LIMITED when there are too many, or INVALID_SESSION when the
// session has ended.
func (s *Session) Record() (*Recording, adminapi.RecordingStart, error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.id] != s {
		return nil, adminapi.RecordingStart{}, noSession(s.id)
	}
	var running []*Recording
	if p := g.recordings.Load(); p != nil {
		running = *p
	}
	if len(running) >= maxRecordings {
		return nil, adminapi.RecordingStart{}, errorf(protocol.CodeRateLimited,
			"%d recordings run already; stop one of them", maxRecordings)
	}
	r := &Recording{session: s, conns: map[*Conn]*recordedConn{},
		lines: newBuffer(maxRecordedLines, maxRecordedBytes, recordedSize)}
	running = append(slices.Clone(running), r)
	start := adminapi.RecordingStart{Recording: adminapi.RecordingVersion, TS: time.Now().UTC(),
		Session: s.view(), Connections: []adminapi.RecordedConnection{}}
	// A call is sent with its provider's lock held, so each is in the state or in a line. All these
	// locks are held together here only, with g.mu, and nothing else is locked meanwhile.
	conns := g.connsWhere(func(c *Conn) bool { return c.is(bound) })
	for _, c := range conns {
		c.provider.mu.Lock()
		defer c.provider.mu.Unlock()
	}
	for _, c := range conns {
		if state, isOwn := r.connected(c); isOwn {
			start.Connections = append(start.Connections, state)
		}
	}
	g.recordings.Store(&running)
	return r, start, nil
}

// Stop ends the recording. Calling it again does nothing.
func (r *Recording) Stop() {
	g := r.session.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.recordings.Load(); p != nil {
		left := slices.DeleteFunc(slices.Clone(*p), func(x *Recording) bool { return x == r })
		if len(left) == 0 {
			g.recordings.Store(nil)
		} else {
			g.recordings.Store(&left)
		}
	}
	r.lines.close()
}

// endRecordings ends the recordings of a session that has ended. Call under no lock.
func (s *Session) endRecordings(reason string) {
	for _, r := range s.g.recordingsOf(s) {
		r.lines.add(func(uint64) adminapi.RecordingLine {
			return adminapi.RecordingLine{TS: time.Now().UTC(),
				End: "the session has ended: " + reason}
		})
		r.Stop()
	}
}

// Next waits for lines and returns them. Lines that were dropped before them are counted in the
// first one. The error is [ErrSessionEnded] after the last line, or that of ctx. It is for one
// goroutine.
func (r *Recording) Next(ctx context.Context) ([]adminapi.RecordingLine, error) {
	if err := r.lines.wait(ctx, r.cursor); err != nil {
		return nil, err
	}
	lines, first := r.lines.next(r.cursor, maxFollowItems, maxRecordedBytes)
	gap := first - r.cursor - 1
	r.cursor += gap + uint64(len(lines))
	if gap > 0 && len(lines) > 0 {
		lines = append([]adminapi.RecordingLine{{TS: lines[0].TS, Gap: gap}}, lines...)
	}
	return lines, nil
}

func recordedSize(l adminapi.RecordingLine) int { return 200 + len(l.Message) + len(l.Text) }

// recordingsOf are the recordings of a session.
func (g *Gateway) recordingsOf(s *Session) []*Recording {
	p := g.recordings.Load()
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*p), func(r *Recording) bool { return r.session != s })
}

// connected adds a connection that is bound when the recording begins. Call with Gateway.mu and
// Provider.mu held.
func (r *Recording) connected(c *Conn) (state adminapi.RecordedConnection, isOwn bool) {
	p, rc := c.provider, r.connection(c)
	rc.provider, rc.state = p.name, recordedForeign
	for _, b := range p.bindings {
		if b.session == r.session {
			rc.state = recordedOwn
			state.Hello = protocol.Append(nil, b.hello(c.memory.session))
		}
	}
	state.Conn, state.Provider, state.Trust = rc.number, p.name, string(p.trust)
	calls := slices.Collect(maps.Values(p.pending))
	sortCalls(calls)
	for _, call := range calls {
		switch {
		case !call.isSent:
		case call.session == r.session:
			state.Pending = append(state.Pending, protocol.Append(nil, call.message()))
		default:
			rc.addForeign(call.id.String())
		}
	}
	return state, rc.state == recordedOwn
}

// hello is a message that would make the binding.
func (b *binding) hello(session string) *protocol.Hello {
	p, o := b.provider, b.offer
	m := &protocol.Hello{Name: p.spelling, ProtocolVersion: new(protocol.Version), Session: session,
		Instance: p.instance, StartupContext: o.startup, Metadata: p.metadata,
		Subscribe: p.subscribed, Concurrency: p.concurrency, Tools: []protocol.Tool{}}
	if o.context != "" {
		m.Context = &o.context
	}
	for _, t := range o.tools {
		definition := t.Tool
		definition.Name = t.called
		m.Tools = append(m.Tools, definition)
	}
	if len(o.rules)+len(o.transforms) == 0 {
		return m
	}
	m.Hooks = &protocol.Hooks{}
	for _, r := range o.rules {
		m.Hooks.OnPreToolUse = append(m.Hooks.OnPreToolUse, r.Rule)
	}
	if len(o.transforms) > 0 {
		m.Hooks.Transforms = map[string]*protocol.Transform{}
	}
	for section, t := range o.transforms {
		m.Hooks.Transforms[section] = &t.Transform
	}
	return m
}

// connection returns the recording's state of a connection. Call with r.mu held.
func (r *Recording) connection(c *Conn) *recordedConn {
	rc := r.conns[c]
	if rc == nil {
		r.last++
		rc = &recordedConn{number: r.last, foreign: map[string]struct{}{}}
		r.conns[c] = rc
	}
	return rc
}

// recordedPeer copies the gateway's messages to a provider.
type recordedPeer struct {
	Peer
	conn *Conn
}

// Send implements [Peer].
func (p recordedPeer) Send(m protocol.Message) {
	if running := p.conn.g.recordings.Load(); running != nil {
		data := protocol.Append(nil, m)
		for _, r := range *running {
			r.addFrame(p.conn, adminapi.PartyGateway, data)
		}
	}
	p.Peer.Send(m)
}

// Close implements [Peer].
func (p recordedPeer) Close(code protocol.CloseCode, reason string) {
	p.conn.recordClose(adminapi.PartyGateway,
		adminapi.RecordedClose{Code: int(code), Reason: reason})
	p.Peer.Close(code, reason)
}

// recordFrame copies a frame of the provider.
func (c *Conn) recordFrame(data []byte) {
	if running := c.g.recordings.Load(); running != nil {
		for _, r := range *running {
			r.addFrame(c, adminapi.PartyProvider, data)
		}
	}
}

// recordLost notes a frame of the provider of which only the size is left.
func (c *Conn) recordLost(size int) {
	if running := c.g.recordings.Load(); running != nil {
		for _, r := range *running {
			r.addLine(c, adminapi.RecordingLine{From: adminapi.PartyProvider,
				To: adminapi.PartyGateway, Size: size})
		}
	}
}

// recordClose notes the end of the connection, once.
func (c *Conn) recordClose(from string, how adminapi.RecordedClose) {
	if running := c.g.recordings.Load(); running != nil {
		for _, r := range *running {
			r.close(c, from, how)
		}
	}
}

func (r *Recording) addLine(c *Conn, line adminapi.RecordingLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.append(r.connection(c), line)
}

// append adds a line of a connection, or holds it until it is known whether it belongs to the
// recording. Call with r.mu held.
func (r *Recording) append(rc *recordedConn, line adminapi.RecordingLine) {
	line.TS = time.Now().UTC()
	switch rc.state {
	case recordedOwn:
		r.add(rc, line)
	case recordedUnknown:
		if len(rc.held) < maxHeldLines {
			rc.held = append(rc.held, line)
		}
	case recordedForeign:
	}
}

func (r *Recording) add(rc *recordedConn, line adminapi.RecordingLine) {
	line.Conn, line.Provider = rc.number, rc.provider
	r.lines.add(func(uint64) adminapi.RecordingLine { return line })
}

// accept adds the lines that were held: the connection belongs to the recording. Call with r.mu
// held.
func (r *Recording) accept(rc *recordedConn) {
	for _, line := range rc.held {
		r.add(rc, line)
	}
	rc.state, rc.held = recordedOwn, nil
}

func (r *Recording) close(c *Conn, from string, how adminapi.RecordedClose) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rc := r.conns[c]
	if rc == nil { // the end is noted already
		return
	}
	delete(r.conns, c)
	if rc.state == recordedUnknown && len(rc.held) > 0 {
		r.accept(rc)
	}
	to := adminapi.PartyProvider
	if from == to {
		to = adminapi.PartyGateway
	}
	r.append(rc, adminapi.RecordingLine{From: from, To: to, Closed: &how})
}

// recordHost notes a message between the session's host and the gateway. Callers ask
// [Session.isRecorded] first, so that the message is not even made without a recording.
func (s *Session) recordHost(from, to string, message any) {
	data, err := protocol.Marshal(message)
	if err != nil {
		return // can't happen: it is made of strings
	}
	for _, r := range s.g.recordingsOf(s) {
		r.lines.add(func(uint64) adminapi.RecordingLine {
			return adminapi.RecordingLine{TS: time.Now().UTC(), From: from, To: to, Message: data}
		})
	}
}

// isRecorded reports whether a recording runs, of this session or of another.
func (s *Session) isRecorded() bool { return s.g.recordings.Load() != nil }

// recordedPrompt and recordedTools are the recorded forms of a prompt and of a list of tools for
// the host.
type recordedPrompt struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Source string `json:"source,omitempty"`
	Mode   string `json:"mode,omitempty"`
}

type recordedTools struct {
	Type  string   `json:"type"`
	Names []string `json:"names"`
}

func newRecordedTools(tools []Tool) recordedTools {
	m := recordedTools{"tools", make([]string, len(tools))}
	for i, t := range tools {
		m.Names[i] = t.Name
	}
	return m
}
