package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tapgw/internal/protocol"
)

// state of a connection (v2, "Connection states"). Rebinding is no state here:
// a hello is processed whole before the next message is read.
type state int32

const (
	awaitAuth state = iota
	awaitPairing
	awaitHello
	bound
	unbound
	closed
)

func (s state) String() string {
	return [...]string{"awaitAuth", "awaitPairing", "awaitHello", "bound", "unbound", "closed"}[s]
}

// legal is the table of the documents: what a provider may send in a state.
func (s state) legal(t protocol.Type) bool {
	switch s {
	case awaitAuth:
		return t == protocol.TypeAuth
	case awaitPairing:
		return t == protocol.TypeAuthConfirm
	case awaitHello:
		return t == protocol.TypeHello
	case bound:
		return t != protocol.TypeAuth && t != protocol.TypeAuthConfirm
	case unbound:
		return t == protocol.TypeHello || t == protocol.TypeGoodbye
	}
	return false
}

// Conn is the state machine of one provider connection. Receive, ReceiveOversized and
// Closed are called by its one reader, so order is structural.
type Conn struct {
	g    *Gateway
	peer Peer
	opts ConnOptions

	// asked is the requestId of the message that the reader is at: whatever is
	// wrong with it, the answer repeats it.
	asked string

	// state is written with Gateway.mu held, by the reader or by the end of
	// the session that the provider is bound to.
	state     atomic.Int32
	authTimer *time.Timer
	rebinds   window

	// Guarded by Gateway.mu.
	identity         *identity
	provider         *Provider // from the first successful hello on
	memory           *memory   // what the present binding's reconnect token restores
	restore          *memory   // what auth's reconnect token restores
	sessionsSent     bool      // the last list that it got had sessions
	needsSessionList bool      // Unbound, and a session that it has not been offered since may be there
	pairing          *pairing  // while its code is awaited
}

// ConnOptions say where a connection comes from.
type ConnOptions struct {
	// ForeignOrigin: a web page of another origin, which may not use the
	// gateway's own tokens.
	ForeignOrigin bool
	// Origin is that page's, as its browser names it.
	Origin string
	// BadSecret is called for each token that proves nothing, and reports whether
	// there were too many; nil: nobody counts.
	BadSecret func() (tooMany bool)
	// Admit is called when the provider is about to be let in, and reports whether
	// there is a place for it, and what to say where there is none; nil: always.
	Admit func() (ok bool, full string)
}

// Connect begins a provider connection. The caller reads what the provider
// sends into Receive and calls Closed at the end.
func (g *Gateway) Connect(p Peer, o ConnOptions) *Conn {
	c := &Conn{g: g, peer: p, opts: o, rebinds: window{most: protocol.MaxRebindsAMinute}}
	g.stats.Connections.Add(1)
	g.mu.Lock()
	g.conns[c] = struct{}{}
	c.authTimer = time.AfterFunc(protocol.AuthTimeout, func() {
		if c.is(awaitAuth) {
			c.close(protocol.ClosePolicy, fmt.Sprintf("no auth within %s", protocol.AuthTimeout))
		}
	})
	late := g.draining
	g.mu.Unlock()
	if late { // Drain may have counted the connections already
		c.close(protocol.CloseGoingAway, "the gateway is shutting down")
	}
	return c
}

// AuthEnded reports whether the provider has authenticated, or is gone.
func (c *Conn) AuthEnded() bool { return !c.is(awaitAuth) && !c.is(awaitPairing) }

// checkAdmission finds a place for the provider. The error is RATE_LIMITED.
func (c *Conn) checkAdmission(replyTo protocol.Type) *protocol.Error {
	if c.opts.Admit == nil {
		return nil
	}
	if ok, full := c.opts.Admit(); !ok {
		return &protocol.Error{Code: protocol.CodeRateLimited, Message: full, ReplyTo: replyTo}
	}
	return nil
}

func (c *Conn) is(s state) bool { return state(c.state.Load()) == s }

// Receive takes one frame. It keeps parts of data.
func (c *Conn) Receive(data []byte) {
	if len(data) > protocol.MaxMessage {
		if head := protocol.Peek(data); head.Type != protocol.TypeToolResult || len(data) > protocol.MaxResult {
			c.oversized(head, len(data))
			return
		}
	}
	f, err := protocol.Open(data)
	c.asked = f.RequestID
	if err != nil {
		c.reportError(err)
		if !err.ReplyTo.FromProvider() || err.ReplyTo == protocol.TypeToolResult {
			c.failFast(f.CallID, protocol.CodeInternal, err.Message)
		}
		return
	}
	if !c.admit(f.Head()) {
		return
	}
	m, err := f.Decode()
	if err != nil {
		c.malformed(f.Head(), m, err)
		return
	}
	c.handle(m)
}

// ReceiveMessage takes a message of a provider in this process: the same contract, no
// text. It keeps the message.
func (c *Conn) ReceiveMessage(m protocol.Message) {
	head := protocol.HeadOf(m)
	c.asked = head.RequestID
	if !c.admit(head) {
		return
	}
	if err := protocol.Validate(m); err != nil {
		err.RequestID = head.RequestID
		c.malformed(head, m, err)
		return
	}
	c.handle(m)
}

// admit answers what is not legal in the present state, and reports whether the
// message is to be read.
func (c *Conn) admit(head protocol.Head) bool {
	now := state(c.state.Load())
	switch {
	case now == closed:
	case !head.Type.FromProvider():
		c.reportError(protocol.UnknownType(head))
	case now.legal(head.Type):
		if p := c.provider; p != nil {
			p.lastActive.Store(time.Now().UnixNano())
		}
		return true
	case head.Type == protocol.TypeToolResult && c.isLateAnswer(head.ID):
	default:
		c.reportError(&protocol.Error{Code: protocol.CodeInvalidState, Message: fmt.Sprintf("%s is not legal in state %s", head.Type, now), ReplyTo: head.Type, RequestID: head.RequestID})
	}
	return false
}

// malformed answers a message of a known type whose fields are wrong, or over a
// limit: then there is the message too, since authority is checked before limits.
func (c *Conn) malformed(head protocol.Head, m protocol.Message, err *protocol.Error) {
	if m != nil && err.Code == protocol.CodePayloadTooLarge {
		c.g.mu.Lock()
		denied := c.identity.check(m)
		c.g.mu.Unlock()
		if denied != nil {
			denied.ReplyTo, denied.RequestID = head.Type, head.RequestID
			err = denied
		}
	}
	if head.Type == protocol.TypeHello && c.is(bound) {
		if !c.rebinds.allow() {
			c.reportError(tooManyHellos())
			return
		}
		c.g.mu.Lock()
		told := c.unbind(protocol.ReasonRebind)
		c.g.mu.Unlock()
		told()
	}
	c.reportError(err)
	switch head.Type {
	case protocol.TypeToolResult:
		c.failFast(head.ID, protocol.CodeInternal, err.Message)
	case protocol.TypeGateResult:
		c.failMalformedGate(head.ID)
	}
}

// ReceiveBinary takes a binary frame that is not UTF-8, which no message is.
func (c *Conn) ReceiveBinary() {
	c.asked = ""
	e := &protocol.Error{Code: protocol.CodeInvalidJSON, Message: "the binary frame is not UTF-8; send JSON, in a text frame"}
	c.reportError(e)
	c.failFast("", protocol.CodeInternal, e.Message)
}

// ReceiveOversized takes a frame that was too large to keep: its beginning, and its size.
func (c *Conn) ReceiveOversized(beginning []byte, size int) {
	c.oversized(protocol.Peek(beginning), size)
}

func (c *Conn) oversized(head protocol.Head, size int) {
	c.asked = head.RequestID
	limit := protocol.MaxMessage
	if head.Type == protocol.TypeToolResult {
		limit = protocol.MaxResult
	}
	e := &protocol.Error{Code: protocol.CodePayloadTooLarge, Message: fmt.Sprintf("the message has %d bytes, the limit is %d", size, limit), RequestID: head.RequestID}
	if head.Type.FromProvider() {
		e.ReplyTo = head.Type
	}
	c.reportError(e)
	if !head.Type.FromProvider() || head.Type == protocol.TypeToolResult {
		c.failFast(head.ID, protocol.CodePayloadTooLarge, e.Message)
	}
}

// maxFault bounds the text of an error: what it quotes may be a megabyte long.
const maxFault = 1000

func shorten(s string) string {
	if len(s) <= maxFault {
		return s
	}
	return strings.ToValidUTF8(s[:maxFault], "") + "…"
}

// fault answers a message with an error, and closes after a fatal one.
func (c *Conn) reportError(e *protocol.Error) {
	c.g.stats.Errors.Add(1)
	name := ""
	c.g.mu.Lock()
	if p := c.provider; p != nil {
		name = p.name
		e.ProviderID = p.id
		if e.SessionID == "" {
			e.SessionID = p.onlySession()
		}
	}
	c.g.mu.Unlock()
	e.Message = shorten(e.Message)
	c.g.diag.noteError(e.SessionID, name, string(e.Code), e.Message)
	if e.RequestID == "" {
		e.RequestID = c.asked
	}
	c.peer.Send(e)
	c.peer.Flush()
	if e.Code.Fatal() {
		c.close(protocol.ClosePolicy, string(e.Code))
	}
}

// handle acts on a decoded message that is legal in the present state.
func (c *Conn) handle(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.Auth:
		c.auth(m)
	case *protocol.Hello:
		c.hello(m)
	case *protocol.ToolResult:
		c.toolResult(m)
	case *protocol.Push:
		c.push(m)
	case *protocol.ToolsUpdate:
		c.toolsUpdate(m)
	case *protocol.ToolProgress:
		c.toolProgress(m)
	case *protocol.SessionReady:
		c.sessionReady(m)
	case *protocol.ShutdownReady:
		c.shutdownReady(m)
	case *protocol.GateResult:
		c.gateResult(m)
	case *protocol.TransformResult:
		c.transformResult(m)
	case *protocol.HooksUpdate:
		c.hooksUpdate(m)
	case *protocol.ContextUpdate:
		c.contextUpdate(m)
	case *protocol.FilterSet:
		c.filterSet(m)
	case *protocol.StreamQuery:
		c.streamQuery(m)
	case *protocol.AuthConfirm:
		c.confirm(m)
	case *protocol.Goodbye:
		c.goodbye()
	}
}

func (c *Conn) auth(m *protocol.Auth) {
	g := c.g
	if m.Mode == protocol.ModePair {
		c.pair(m)
		return
	}
	id := g.identify(m.Token)
	if c.opts.ForeignOrigin && !strings.HasPrefix(m.Token, prefixPaired) {
		id = nil
	}
	g.mu.Lock()
	restore := g.useReconnectToken(m.ReconnectToken)
	if id == nil && restore != nil && m.Token == "" {
		id = restore.identity
	}
	if id == nil {
		g.mu.Unlock()
		g.stats.AuthFailures.Add(1)
		// A reconnect token outlives no gateway, and a paired one no session,
		// so clients show ones that are unknown: that is no guessing.
		what := refusedToken(m.Token, c.opts.ForeignOrigin)
		if c.opts.BadSecret != nil && m.Token != "" && !strings.HasPrefix(m.Token, prefixPaired) && c.opts.BadSecret() {
			what = "too many wrong tokens came from this address, and this is one; retry in a minute, with the right one at once"
		}
		c.reportError(&protocol.Error{Code: protocol.CodeAuthFailed, Message: what, ReplyTo: protocol.TypeAuth})
		return
	}
	g.mu.Unlock()
	full := c.checkAdmission(protocol.TypeAuth)
	g.mu.Lock()
	if full != nil {
		if restore != nil {
			g.memories[restore.key] = restore // it may be tried again
		}
		g.mu.Unlock()
		c.reportError(full)
		return
	}
	if c.is(closed) { // meanwhile
		g.mu.Unlock()
		return
	}
	c.identity, c.restore = id, restore
	c.state.Store(int32(awaitHello))
	c.authTimer.Stop()
	list := g.sessionsFor(id)
	c.sessionsSent = len(list) > 0
	c.peer.Send(&protocol.Sessions{Active: list})
	g.mu.Unlock()
	c.peer.Flush()
}

// announce queues the session list if this connection is to hear of changes,
// and reports whether it did. Call with Gateway.mu held.
func (c *Conn) announce() bool {
	now := state(c.state.Load())
	if now == awaitAuth || now == awaitPairing || now == closed {
		return false
	}
	list := c.g.sessionsFor(c.identity)
	if now == awaitHello && !c.sessionsSent {
		// Clients that said nothing yet wait for the message that they know.
		if len(list) == 0 {
			return false
		}
		c.sessionsSent = true
		c.peer.Send(&protocol.Sessions{Active: list})
		return true
	}
	c.peer.Send(&protocol.SessionsUpdated{Active: list})
	if now == unbound && c.needsSessionList && len(list) > 0 && c.identity.mayBind(c.g.sessions[list[0].ID]) {
		// The documents' own samples say hello at this message only.
		c.needsSessionList = false
		c.peer.Send(&protocol.Sessions{Active: list})
	}
	return true
}

// goodbye ends the connection. The reconnect token is void, unless the provider
// answers a session's end by it: it may come back for the next session at once.
func (c *Conn) goodbye() {
	c.g.mu.Lock()
	ending := c.provider != nil && slices.ContainsFunc(c.provider.bindings, func(b *binding) bool { return b.pending })
	if c.memory != nil && !ending {
		c.g.dropMemory(c.memory)
	}
	c.g.mu.Unlock()
	c.close(protocol.CloseNormal, "goodbye")
}

// close ends the connection from our side. What was sent before still goes out.
func (c *Conn) close(code protocol.CloseCode, reason string) {
	c.peer.Close(code, reason)
	c.Closed()
}

// Closed ends the connection's part in everything. The reader calls it when the
// connection is gone; more than once does no harm.
func (c *Conn) Closed() {
	g := c.g
	g.mu.Lock()
	if c.is(closed) {
		g.mu.Unlock()
		return
	}
	c.state.Store(int32(closed))
	c.authTimer.Stop()
	delete(g.conns, c)
	c.release()
	if c.memory != nil {
		g.expireMemory(c.memory)
	}
	c.restore = nil
	if c.pairing != nil {
		c.pairing.timer.Stop()
		c.pairing = nil
	}
	p := c.provider
	if p != nil {
		g.dropLimits(p)
	}
	g.touch()
	g.mu.Unlock()
	if p != nil {
		finishAll(p.disconnect(), Outcome{Error: fmt.Sprintf("provider %q disconnected", p.name), ErrorCode: protocol.CodeDisconnected})
	}
}

// scope finds the bindings that a message of a bound provider is about: the one
// that it names, or all of its own. The error is INVALID_SESSION. Call with
// Gateway.mu held.
func (c *Conn) bindingsOf(session string, t protocol.Type) ([]*binding, *protocol.Error) {
	p := c.provider
	if session == "" {
		return slices.Clone(p.bindings), nil
	}
	for _, b := range p.bindings {
		if b.session.id == session {
			return []*binding{b}, nil
		}
	}
	return nil, &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("%s.sessionId: this provider is not bound to session %q", t, session), ReplyTo: t, SessionID: session}
}

func (c *Conn) shutdownReady(m *protocol.ShutdownReady) {
	c.g.mu.Lock()
	bindings, err := c.bindingsOf(m.SessionID, protocol.TypeShutdownReady)
	if err == nil {
		for _, b := range bindings {
			b.session.markAnswered(b)
		}
	}
	c.g.mu.Unlock()
	if err != nil {
		c.reportError(err)
	}
}
