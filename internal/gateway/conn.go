package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// state of a connection. See docs/protocol.md, "States". Binding anew needs no state: a
// hello is handled whole before the next message is read.
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

// allows reports whether a provider may send a message of type t in the state.
func (s state) allows(t protocol.Type) bool {
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

// Conn is the state machine of one provider connection. One goroutine, the connection's
// reader, calls its Receive methods and Closed, so messages are handled in their order. For a
// provider in this process a lock of the connection stands in for the reader.
type Conn struct {
	g    *Gateway
	peer Peer
	opts ConnOptions

	// handled is the head of the message that the reader handles now, once that is known to be
	// legal. An error that answers the message repeats its type and its request id.
	handled protocol.Head

	// state is written with Gateway.mu held, by the reader or by the end of the session
	// that the provider is bound to.
	state     atomic.Int32
	authTimer *time.Timer
	rebinds   window
	answers   *rate.Limiter // of questions; only the reader uses it

	// Guarded by Gateway.mu.
	identity     *identity
	provider     *Provider        // from the first successful hello on
	memory       *reconnectMemory // restored by the present binding's reconnect token
	restore      *reconnectMemory // restored by the reconnect token of auth
	sessionsSent bool             // a list that was not empty was sent
	// unbound, and not sent the sessions list since a session came
	needsSessionList bool
	pairing          *pairing // while its code is awaited
}

// ConnOptions describe where a connection comes from and how the server limits it. The zero
// value is a local program, without limits on its number or its wrong tokens. The functions
// are called by the connection's reader under no lock.
type ConnOptions struct {
	// ForeignOrigin says that a web page of another origin connects. It may use only
	// paired and reconnect tokens.
	ForeignOrigin bool
	// Origin is the page's origin, as its browser names it.
	Origin string
	// BadSecret is called for each wrong token and reports whether there were too many;
	// nil: they are not counted.
	BadSecret func() (tooMany bool)
	// Admit is called before the provider is let in. It reports whether a place is free
	// and, if not, the text of the error; nil: there is always one.
	Admit func() (ok bool, full string)
	// Batch is of the connection's reader, or nil.
	Batch *Batch
}

// Connect begins a provider connection. The caller gives each frame that the provider
// sends to Receive, and calls Closed at the end. The connection is closed when no auth
// comes within [protocol.AuthTimeout], and at once while the gateway shuts down.
func (g *Gateway) Connect(p Peer, o ConnOptions) *Conn {
	c := &Conn{g: g, opts: o, rebinds: window{max: protocol.MaxRebindsAMinute},
		answers: rate.NewLimiter(protocol.AnswerRate, protocol.AnswerRate)}
	c.peer = recordedPeer{p, c}
	g.stats.Connections.Add(1)
	g.mu.Lock()
	g.conns[c] = struct{}{}
	c.authTimer = time.AfterFunc(protocol.AuthTimeout, func() {
		if c.is(awaitAuth) {
			c.close(protocol.ClosePolicy, fmt.Sprintf("no auth within %s", protocol.AuthTimeout))
		}
	})
	draining := g.isDraining
	g.mu.Unlock()
	if draining { // Drain may have listed the connections already
		c.close(protocol.CloseGoingAway, "the gateway is shutting down")
	}
	return c
}

// AuthEnded reports whether the provider has authenticated, also by pairing, or the
// connection is closed. Until then the server takes less from it (docs/protocol.md,
// "Limits"). Any goroutine may call it.
func (c *Conn) AuthEnded() bool { return !c.is(awaitAuth) && !c.is(awaitPairing) }

func (c *Conn) is(s state) bool { return state(c.state.Load()) == s }

// Receive handles one text frame, a message as docs/protocol.md, "Every message", has it.
// It keeps parts of data, so the caller must not use it again. Errors are sent to the
// provider: there is nothing for the caller to do. Only the connection's reader may call
// it.
func (c *Conn) Receive(data []byte) {
	c.recordFrame(data)
	if len(data) > protocol.MaxMessage {
		head := protocol.Peek(data)
		if head.Type != protocol.TypeToolResult || len(data) > protocol.MaxResult {
			c.oversized(head, len(data))
			return
		}
	}
	f, err := protocol.Open(data)
	c.handled = protocol.Head{}
	if f.Type != protocol.TypeToolResult {
		c.opts.Batch.Flush()
	}
	if err != nil {
		if err.ReplyTo.FromProvider() && err.ReplyTo != protocol.TypeToolResult {
			c.reportError(err)
			return
		}
		c.failFast(err, f.CallID, protocolFault(protocol.CodeInternal, err))
		return
	}
	if !c.isLegal(f.Head()) {
		return
	}
	c.handled = f.Head()
	m, err := f.Decode()
	if err != nil {
		c.malformed(f.Head(), m, err)
		return
	}
	c.handle(m)
}

// isLegal reports whether a message is legal in the present state. If not, it answers
// the message, except a late tool.result.
func (c *Conn) isLegal(head protocol.Head) bool {
	now := state(c.state.Load())
	switch {
	case now == closed:
	case !head.Type.FromProvider():
		c.reportError(protocol.UnknownType(head))
	case now.allows(head.Type):
		if p := c.provider; p != nil {
			p.lastActive.Store(time.Now().UnixNano())
		}
		return true
	case head.Type == protocol.TypeToolResult && c.isLateAnswer(head.ID):
	default:
		err := errorf(protocol.CodeInvalidState, "%s is not legal in state %s", head.Type, now)
		err.ReplyTo, err.RequestID = head.Type, head.RequestID
		c.reportError(err)
	}
	return false
}

// malformed answers a message of a known type with wrong fields. m is set when a field is
// over a limit: the authority for the message is checked before its limits.
func (c *Conn) malformed(head protocol.Head, m protocol.Message, err *protocol.Error) {
	if m != nil && err.Code == protocol.CodePayloadTooLarge {
		c.g.mu.Lock()
		denied := c.identity.check(m)
		c.g.mu.Unlock()
		if denied != nil {
			err = denied
		}
	}
	if head.Type == protocol.TypeHello && c.is(bound) {
		if !c.rebinds.allow() {
			c.reportError(tooManyHellos())
			return
		}
		c.g.mu.Lock()
		ended := c.unbind()
		c.g.mu.Unlock()
		finishAll(ended, reboundOutcome)
	}
	if head.Type == protocol.TypeToolResult {
		c.failFast(err, head.ID, protocolFault(protocol.CodeInternal, err))
		return
	}
	c.reportError(err)
	if head.Type == protocol.TypeGateResult {
		c.failMalformedGate(head.ID)
	}
}

// protocolFault is the outcome of a call that a message with that error may have answered.
func protocolFault(code protocol.Code, err *protocol.Error) Outcome {
	return Outcome{Error: "protocol error: " + shorten(err.Message), ErrorCode: code}
}

// ReceiveBinary handles a binary frame of size bytes that is not UTF-8: it answers INVALID_JSON and
// ends the call that the frame may have answered, as docs/protocol.md says under "Calls". Only the
// connection's reader may call it.
func (c *Conn) ReceiveBinary(size int) {
	c.recordLost(size)
	c.handled = protocol.Head{}
	err := errorf(protocol.CodeInvalidJSON,
		"the binary frame is not UTF-8; send JSON, in a text frame")
	c.failFast(err, "", protocolFault(protocol.CodeInternal, err))
}

// ReceiveOversized handles a frame that was too large to keep, by its beginning and its
// size in bytes: it answers PAYLOAD_TOO_LARGE and ends the call that the frame answers.
func (c *Conn) ReceiveOversized(beginning []byte, size int) {
	c.recordLost(size)
	c.oversized(protocol.Peek(beginning), size)
}

func (c *Conn) oversized(head protocol.Head, size int) {
	c.handled = protocol.Head{}
	limit := protocol.MaxMessage
	if head.Type == protocol.TypeToolResult {
		limit = protocol.MaxResult
	}
	err := errorf(protocol.CodePayloadTooLarge, "the message has %d bytes, the limit is %d", size,
		limit)
	err.RequestID = head.RequestID
	if head.Type.FromProvider() {
		err.ReplyTo = head.Type
	}
	if head.Type.FromProvider() && head.Type != protocol.TypeToolResult {
		c.reportError(err)
		return
	}
	c.failFast(err, head.ID, protocolFault(protocol.CodePayloadTooLarge, err))
}

// maxErrorText bounds the text of an error in bytes: it may quote a long value.
const maxErrorText = 1000

func shorten(s string) string { return cut(s, maxErrorText) }

// cut returns the first bytes of a text that has more than most.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// reportError sends an error to the provider, and closes the connection if its code is
// fatal. Call under no lock.
func (c *Conn) reportError(err *protocol.Error) {
	c.g.stats.Errors.Add(1)
	name := ""
	c.g.mu.Lock()
	if p := c.provider; p != nil {
		name = p.name
		err.ProviderID = p.id
		if err.SessionID == "" {
			err.SessionID = p.onlySession()
		}
	}
	c.g.mu.Unlock()
	err.Message = shorten(err.Message)
	c.g.diag.noteError(err.SessionID, name, string(err.Code), err.Message)
	err.ReplyTo = cmp.Or(err.ReplyTo, c.handled.Type)
	err.RequestID = cmp.Or(err.RequestID, c.handled.RequestID)
	c.peer.Send(err)
	c.peer.Flush()
	if err.Code.Fatal() {
		c.close(protocol.ClosePolicy, string(err.Code))
	}
}

// handle handles a message that was checked and is legal in the present state.
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
	case *protocol.QuestionAnswer:
		c.questionAnswer(m)
	case *protocol.AuthConfirm:
		c.confirm(m)
	case *protocol.Goodbye:
		c.goodbye()
	}
}

// goodbye handles goodbye: it closes the connection. It also voids the reconnect token,
// unless the provider answers the end of a session; then it may come back for the next.
func (c *Conn) goodbye() {
	c.g.mu.Lock()
	isAnswer := c.provider != nil &&
		slices.ContainsFunc(c.provider.bindings, func(b *binding) bool { return b.isUnanswered })
	if c.memory != nil && !isAnswer {
		c.g.dropMemory(c.memory)
	}
	c.g.mu.Unlock()
	c.close(protocol.CloseNormal, "goodbye")
}

// close closes the connection from the gateway's side. Messages that were queued before
// are still sent. Call under no lock.
func (c *Conn) close(code protocol.CloseCode, reason string) {
	c.peer.Close(code, reason)
	c.Closed()
}

// Closed removes the connection and its provider from the gateway; its calls end with
// DISCONNECTED. The reader calls it when the connection has ended. Calling it again does
// nothing.
func (c *Conn) Closed() {
	g := c.g
	g.mu.Lock()
	if c.is(closed) {
		g.mu.Unlock()
		return
	}
	c.state.Store(int32(closed))
	c.recordClose(adminapi.PartyProvider, adminapi.RecordedClose{})
	c.authTimer.Stop()
	delete(g.conns, c)
	c.removeBindings()
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
		text := fmt.Sprintf("provider %q disconnected", p.name)
		finishAll(p.disconnect(), Outcome{Error: text, ErrorCode: protocol.CodeDisconnected})
	}
}

// bindingsOf returns the bindings that a message of type t is for: that of the session
// with the id, or all bindings for "". The error is INVALID_SESSION. Call with
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
	err := errorf(protocol.CodeInvalidSession,
		"%s.sessionId: this provider is not bound to session %q", t, session)
	err.SessionID = session
	return nil, err
}

// shutdownReady handles shutdown.ready: the provider is done with sessions that end.
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
