package providers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tapgw/internal/protocol"
)

// This file handles the messages that bind a connection to a session, or to all sessions, and that
// end the binding.

// Waits before a refused hello is sent again. A gateway accepts ten in a minute.
const (
	firstRetry = time.Second
	maxRetry   = 15 * time.Second
)

// state is the state of a connection; the gateway has the same one (docs/protocol.md, "States").
type state int

const (
	awaitSessions state = iota // auth was sent
	awaitHello                 // there is no session to bind to, or hello was refused
	awaitAck                   // hello was sent
	isBound
	isEnding // the only session is ending, and the user's code cleans up
)

// binding is a joined session, until its end.
type binding struct {
	Binding
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ending   bool
	started  bool          // OnBound was started, or will never be
	returned chan struct{} // closed when OnBound has returned
	// questions end the contexts of the questions that wait, by id. Only the loop uses it.
	questions map[string]context.CancelCauseFunc
}

// receive handles one message from the gateway. An error ends the connection.
func (c *conn) receive(data []byte) error {
	frame, bad := protocol.Open(data)
	if bad != nil {
		c.log.Warn("ignoring a message of the gateway that is none", "error", bad.Message)
		return nil
	}
	if !frame.Type.FromGateway() {
		c.log.Debug("ignoring an unknown message of the gateway", "type", frame.Type)
		return nil
	}
	m, bad := frame.Decode()
	if bad != nil {
		c.log.Warn("ignoring a wrong message of the gateway", "type", frame.Type, "error",
			bad.Message)
		return nil
	}
	switch m := m.(type) {
	case *protocol.Sessions:
		return c.handleSessions(m.Active, true)
	case *protocol.SessionsUpdated:
		return c.handleSessions(m.Active, false)
	case *protocol.HelloAck:
		c.handleHelloAck(m)
	case *protocol.ToolCall:
		c.handleCall(m)
	case *protocol.ToolCancel:
		c.mu.Lock()
		call := c.calls[m.ID]
		c.mu.Unlock()
		if call != nil { // else its result was sent
			call.abort(m.Reason)
		}
	case *protocol.GateCheck:
		c.handleGate(m)
	case *protocol.TransformRequest:
		c.handleTransform(m)
	case *protocol.SessionEvent:
		c.handleEvent(m)
	case *protocol.SessionLifecycle:
		c.handleLifecycle(m)
	case *protocol.Ack:
		if t := c.sent; t != nil && t.id == m.RequestID {
			c.handleConfirmation(m)
		} else {
			c.handleReceipt(m)
		}
	case *protocol.StreamHistory:
		c.handleHistory(m)
	case *protocol.Error:
		return c.handleError(m)
	default:
		c.log.Debug("ignoring a message that this provider did not ask for", "type", frame.Type)
	}
	return nil
}

// handleSessions stores a new list of sessions and binds to one of them if it is time to. greeting
// is true for the message sessions, which answers auth, and false for sessions.updated.
func (c *conn) handleSessions(list []protocol.SessionInfo, greeting bool) error {
	if c.state == awaitSessions {
		if !greeting {
			return nil
		}
		c.answerTimer.Stop()
		c.state = awaitHello
		c.authenticatedAt = time.Now()
		c.run.failing = false
		clear(c.run.refused)
		c.run.reconnect = reconnect{} // its token is void now
	}
	before := c.active
	c.active = make([]Session, len(list))
	for i, s := range list {
		c.active[i] = Session{ID: s.ID, Label: s.Label, CWD: s.CWD, Foreground: s.Foreground}
	}
	clear(c.unbindable)
	for id := range c.ended {
		if !c.isActive(id) {
			delete(c.ended, id)
		}
	}
	for _, s := range before {
		if !c.isActive(s.ID) {
			delete(c.run.prepared, s.ID)
			c.run.p.forgetSession(s.ID)
		}
	}
	for id, b := range c.bindings {
		if !c.isActive(id) && !b.ending { // it has ended without a warning
			b.cancel(&CancelError{ReasonSessionEnded})
			c.cancelCalls(id, ReasonSessionEnded)
			if err := c.endBinding(b); err != nil {
				return err
			}
		}
	}
	switch {
	case !c.run.p.all():
	case c.state == isBound:
		c.join()
	case c.state == awaitAck:
		c.prepare()
	}
	c.sendChanges()
	return c.bind()
}

// find returns the session from the list; false if it is not there.
func (c *conn) find(id string) (Session, bool) {
	i := slices.IndexFunc(c.active, func(s Session) bool { return s.ID == id })
	if i < 0 {
		return Session{ID: id}, false
	}
	return c.active[i], true
}

func (c *conn) isActive(id string) bool {
	_, ok := c.find(id)
	return ok
}

// pick chooses the session to bind to; "" if no session is for this provider.
func (c *conn) pick() string {
	if len(c.ended) > 0 {
		return "" // it is still in the list; another list follows
	}
	o := &c.run.p.opts
	var id string
	switch {
	case c.run.p.all():
		if len(c.active) == 0 || c.unbindable[AllSessions] || !c.prepare() {
			return ""
		}
		return AllSessions
	case o.Session != "":
		id = o.Session
	case o.PickSession != nil:
		_ = guard(c.log, "callback", func() { id = o.PickSession(slices.Clone(c.active)) })
	case c.isActive(c.run.session) && !c.unbindable[c.run.session]:
		id = c.run.session
	default:
		// A session without a directory is one that this provider may not bind to. The first one is
		// tried anyway.
		for i, s := range c.active {
			if !c.unbindable[s.ID] && (i == 0 || s.CWD != "") {
				return s.ID
			}
		}
	}
	if c.unbindable[id] || !c.isActive(id) {
		return ""
	}
	return id
}

// bind sends hello if the state allows it and there is a session.
func (c *conn) bind() error {
	if c.state != awaitHello {
		return nil
	}
	c.retryTimer.Stop()
	id := c.pick()
	if id == "" {
		if !c.saidWaiting && len(c.joining) == 0 {
			c.saidWaiting = true
			c.log.Info("connected; waiting for a session")
		}
		return nil
	}
	hello := c.run.p.hello(c)
	hello.Metadata, hello.Session, hello.ReconnectToken = c.run.metadata, id, c.restoring
	c.helloSession, c.state = id, awaitAck
	for _, j := range c.joining {
		j.asked = true // this hello asks for all
	}
	c.answerTimer.Reset(answerTimeout)
	err := c.send(hello)
	if isTooLarge(err) {
		return fatalError{err}
	}
	return nil // the reader notices a lost connection
}

// handleHelloAck begins a binding, or the bindings to all sessions.
func (c *conn) handleHelloAck(m *protocol.HelloAck) {
	if c.state != awaitAck {
		return
	}
	c.answerTimer.Stop()
	c.state, c.retryIn, c.restoring, c.saidWaiting = isBound, firstRetry, "", false
	c.providerID, c.persistDir = m.ProviderID, m.PersistDir
	// Gateways of the core profile send no reconnect token and do not answer updates.
	c.confirmsUpdates = m.ReconnectToken != ""
	c.mu.Lock()
	if c.receiptWait = ackWait; c.confirmsUpdates {
		c.receiptWait = likelyWait
	}
	c.mu.Unlock()
	c.run.reconnect = reconnect{token: m.ReconnectToken, to: c.to}
	p := c.run.p
	if p.all() {
		p.setBound(c)
		c.log.Info("bound to all sessions", "id", m.ProviderID)
		c.join()
	} else {
		c.run.session = c.helloSession
		c.openBinding(c.newBinding(c.helloSession))
	}
	c.sendChanges()
}

// newBinding makes the binding to a session that the provider has joined.
func (c *conn) newBinding(session string) *binding {
	s, _ := c.find(session)
	b := &binding{
		Binding: Binding{Session: session, CWD: s.CWD, ProviderID: c.providerID,
			PersistDir: c.persistDir},
		returned: make(chan struct{}), questions: map[string]context.CancelCauseFunc{},
	}
	b.ctx, b.cancel = context.WithCancelCause(c.ctx)
	c.bindings[session] = b
	c.mu.Lock()
	c.sessions[session] = true
	c.mu.Unlock()
	return b
}

// openBinding sends the parts of the offer that the hello could not contain, such as filters, and
// then starts the binding.
func (c *conn) openBinding(b *binding) {
	p := c.run.p
	p.mu.Lock()
	steps := append(p.sessionChanges(b.Session), &change{then: func() { c.startBinding(b) }})
	p.queue = slices.Insert(p.queue, 0, steps...)
	p.mu.Unlock()
}

// startBinding runs OnBound.
func (c *conn) startBinding(b *binding) {
	if b.started {
		return
	}
	b.started = true
	p := c.run.p
	p.setBound(c)
	c.log.Info("bound", "session", b.Session, "id", b.ProviderID)
	f := p.opts.OnBound
	if f == nil {
		close(b.returned)
		return
	}
	c.run.wg.Go(func() {
		defer close(b.returned)
		_ = guard(p.log, "callback", func() { f(b.ctx, b.Binding) })
	})
}

// offerChanged sends the gateway the changes of the offer since the last one sent.
func (c *conn) offerChanged() error {
	switch c.state {
	case awaitHello:
		return c.bind() // a hello that was refused may be accepted now
	case isBound:
		if c.run.p.all() {
			c.join() // a session.ready that was refused may be accepted now
		}
		c.sendChanges()
	}
	return nil
}

// reportRefusal logs and reports an error that does not end the run.
func (c *conn) reportRefusal(err error) {
	c.log.Warn("gateway refused", "error", err)
	c.run.report(err)
}

// handleError handles an error message. It returns an error if that ends the connection, and a
// fatalError if it ends the run.
func (c *conn) handleError(m *protocol.Error) error {
	err := error(fromGateway(m))
	switch {
	case m.Code == protocol.CodeAuthFailed && c.state == awaitSessions:
		return fmt.Errorf("%w: %s", errRefused, m.Message)
	case m.Code == protocol.CodeAuthFailed:
		return err
	case m.Code == protocol.CodeUnsupportedVersion:
		return fatalError{fmt.Errorf("the gateway speaks another version: %w", err)}
	case c.state == awaitAck && (m.ReplyTo == protocol.TypeHello || m.ReplyTo == ""):
		return c.handleHelloError(m.Code, err)
	case c.isAboutSent(m):
		c.finishChange(err, c.sent.change)
		c.sendChanges()
		return nil
	case c.failRequest(m, err):
		return nil
	case m.ReplyTo == protocol.TypeSessionReady:
		c.notReady(m)
	}
	if isOutdated(m) {
		c.log.Debug("gateway refused", "error", err, "to", m.ReplyTo)
		return nil
	}
	c.reportRefusal(err)
	return nil
}

// isOutdated reports whether an error only means that the provider's message was about something
// that had just ended.
func isOutdated(m *protocol.Error) bool {
	switch m.ReplyTo {
	case protocol.TypeShutdownReady, protocol.TypeToolProgress, protocol.TypeToolResult,
		protocol.TypeGateResult,
		protocol.TypeTransformResult,
		protocol.TypeSessionReady, protocol.TypeToolsUpdate, protocol.TypeHooksUpdate,
		protocol.TypeContextUpdate, protocol.TypeFilterSet:
	default:
		return false
	}
	return m.Code == protocol.CodeInvalidState || m.Code == protocol.CodeInvalidSession ||
		m.Code == protocol.CodeUnknownCallID
}

// handleHelloError chooses after a refused hello: give up, try another session, or try again later.
func (c *conn) handleHelloError(code protocol.Code, err error) error {
	c.answerTimer.Stop()
	c.state = awaitHello
	c.unlink()
	err = fmt.Errorf("binding to session %s: %w", c.helloSession, err)
	switch code {
	case protocol.CodeInvalidJSON, protocol.CodePayloadTooLarge, protocol.CodeUnauthorized:
		return fatalError{err}
	case protocol.CodeInvalidSession:
		if c.to.paired() {
			return fatalError{fmt.Errorf("%w: %w", ErrNotPaired, err)}
		}
		// It has ended or is not open to this provider. A new list comes when anything changes, and
		// clears this.
		c.unbindable[c.helloSession] = true
		c.log.Info("session not bound", "error", err)
		return c.bind()
	}
	c.reportRefusal(err)
	c.retryTimer.Reset(c.retryIn)
	c.retryIn = min(2*c.retryIn, maxRetry)
	return nil
}

// handleLifecycle handles a change of a bound session's state.
func (c *conn) handleLifecycle(m *protocol.SessionLifecycle) {
	if c.state != isBound {
		return
	}
	e := SessionEvent{
		Session: m.SessionID, State: SessionState(m.State),
		Deadline: time.Duration(m.Deadline) * time.Millisecond,
	}
	b := c.bindings[m.SessionID]
	if b == nil && e.State == SessionStarted && c.run.p.all() {
		b = c.joined(m.SessionID)
	}
	if b == nil || b.ending {
		return
	}
	if e.State != SessionEnding {
		if f := c.run.p.opts.OnSession; f != nil {
			c.run.callback(func() { f(b.ctx, e) })
		}
		return
	}

	if m.Deadline <= 0 {
		e.Deadline = protocol.ShutdownDeadline
	}
	c.beginEnding(b, e)
}

// beginEnding cancels everything that runs for a session that is about to end. When all of it has
// returned, or the deadline has passed, the loop gets the binding from cleaned.
func (c *conn) beginEnding(b *binding, e SessionEvent) {
	c.log.Info("session is ending", "session", b.Session)
	b.ending = true
	c.ended[b.Session] = true
	if !c.run.p.all() {
		c.state = isEnding
		c.unlink()
	}
	b.cancel(&CancelError{ReasonSessionEnded})
	if !b.started {
		b.started = true
		close(b.returned)
	}
	if j := c.joining[b.Session]; j != nil {
		j.cancel()
		delete(c.joining, b.Session)
	}
	calls := c.cancelCalls(b.Session, ReasonSessionEnded)
	ctx, cancel := context.WithTimeout(c.ctx, e.Deadline)
	returned := c.run.callback(func() {
		if f := c.run.p.opts.OnSession; f != nil {
			f(ctx, e)
		}
	})
	c.run.wg.Go(func() {
		defer cancel()
		waits := []<-chan struct{}{returned, b.returned}
		for _, call := range calls {
			waits = append(waits, call.answered)
		}
		for _, w := range waits {
			select {
			case <-w:
			case <-ctx.Done():
			}
		}
		select {
		case c.cleaned <- b:
		case <-c.ctx.Done():
		}
	})
}

// finishEnding tells the gateway that the session may end, and looks for another.
func (c *conn) finishEnding(b *binding) error {
	_ = c.send(&protocol.ShutdownReady{SessionID: b.Session}) // the reader notices an error
	if err := c.endBinding(b); err != nil {
		return err
	}
	return c.bind()
}

// endBinding removes a binding whose session has ended. An error ends the run: a pairing is for one
// session.
func (c *conn) endBinding(b *binding) error {
	delete(c.bindings, b.Session)
	c.endSession(b.Session)
	if c.run.p.all() {
		c.sendChanges()
		return nil
	}
	c.unlink()
	c.run.p.setBound(nil)
	c.run.session, c.run.reconnect = "", reconnect{}
	c.state = awaitHello
	if c.to.paired() {
		return fatalError{fmt.Errorf("%w: session %s has ended", ErrNotPaired, b.Session)}
	}
	return nil
}
