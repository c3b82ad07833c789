package providers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tapgw/internal/protocol"
)

// A refused hello is sent again, but ten a minute are all that a gateway takes.
const (
	firstRetry = time.Second
	maxRetry   = 15 * time.Second
)

// state of a connection, as the gateway sees it too.
type state int

const (
	awaitSessions state = iota // auth was sent
	awaitHello                 // there is no session to bind to, or not yet again
	awaitAck                   // hello was sent
	isBound
	isEnding // the only session ends, the user's code cleans up
)

// binding is the time from when a session is joined to its end.
type binding struct {
	Binding
	ctx    context.Context
	cancel context.CancelCauseFunc
	ending bool
	begun  bool          // OnBound was started, or never will be
	over   chan struct{} // OnBound has returned
}

// receive handles one message of the gateway.
func (c *conn) receive(data []byte) error {
	frame, bad := protocol.Open(data)
	if bad != nil {
		c.log.Warn("gateway sent what is no message; ignored", "error", bad.Message)
		return nil
	}
	if !frame.Type.FromGateway() {
		c.log.Debug("gateway sent an unknown message; ignored", "type", frame.Type)
		return nil
	}
	m, bad := frame.Decode()
	if bad != nil {
		c.log.Warn("gateway sent a wrong message; ignored", "type", frame.Type, "error", bad.Message)
		return nil
	}
	switch m := m.(type) {
	case *protocol.Sessions:
		return c.listed(m.Active, true)
	case *protocol.SessionsUpdated:
		return c.listed(m.Active, false)
	case *protocol.HelloAck:
		c.acked(m)
	case *protocol.ToolCall:
		c.called(m)
	case *protocol.ToolCancel:
		c.mu.Lock()
		call := c.calls[m.ID]
		c.mu.Unlock()
		if call != nil { // else its result is on the way
			call.abort(m.Reason)
		}
	case *protocol.GateCheck:
		c.check(m)
	case *protocol.TransformRequest:
		c.rewrite(m)
	case *protocol.SessionEvent:
		c.happened(m)
	case *protocol.SessionLifecycle:
		c.lifecycle(m)
	case *protocol.Ack:
		if t := c.telling; t != nil && t.id == m.RequestID {
			c.confirmed(m)
		} else {
			c.acknowledged(m)
		}
	case *protocol.StreamHistory:
		c.queried(m)
	case *protocol.Error:
		return c.refused(m)
	default:
		c.log.Debug("gateway sent what this provider did not ask for; ignored", "type", frame.Type)
	}
	return nil
}

// listed takes a list of sessions; greeting says that it answers auth, or that
// the wait for a first session is over.
func (c *conn) listed(list []protocol.SessionInfo, greeting bool) error {
	if c.state == awaitSessions {
		if !greeting {
			return nil
		}
		c.await.Stop()
		c.state = awaitHello
		c.since = time.Now()
		c.run.failing = false
		clear(c.run.refused)
		c.run.reconnect = reconnect{} // a token is good for one connection
	}
	before := c.active
	c.active = make([]Session, len(list))
	for i, s := range list {
		c.active[i] = Session{ID: s.ID, Label: s.Label, CWD: s.CWD, Foreground: s.Foreground}
	}
	clear(c.unfit)
	for id := range c.ended {
		if !c.isActive(id) {
			delete(c.ended, id)
		}
	}
	for _, s := range before {
		if !c.isActive(s.ID) {
			delete(c.run.prepared, s.ID)
			c.run.p.disown(s.ID)
		}
	}
	for id, b := range c.bindings {
		if !c.isActive(id) && !b.ending { // it ended without a word
			b.cancel(&CancelError{ReasonSessionEnded})
			c.cancelCalls(id, ReasonSessionEnded)
			if err := c.leave(b); err != nil {
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
	c.proceed()
	return c.bind()
}

// find looks for a session in the list.
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

// pick chooses the session to bind to, "" for none of these.
func (c *conn) pick() string {
	if len(c.ended) > 0 {
		return "" // the gateway is not done with it; a list follows
	}
	o := &c.run.p.opts
	var id string
	switch {
	case c.run.p.all():
		if len(c.active) == 0 || !c.prepare() {
			return ""
		}
		return AllSessions
	case o.Session != "":
		id = o.Session
	case o.PickSession != nil:
		guard(c.log, func() { id = o.PickSession(slices.Clone(c.active)) })
	case c.isActive(c.run.session) && !c.unfit[c.run.session]:
		id = c.run.session
	default:
		// Without a directory it is one that this provider may not bind to.
		for i, s := range c.active {
			if !c.unfit[s.ID] && (i == 0 || s.CWD != "") {
				return s.ID
			}
		}
	}
	if c.unfit[id] || !c.isActive(id) {
		return ""
	}
	return id
}

// bind sends hello if it is time for one and there is a session.
func (c *conn) bind() error {
	if c.state != awaitHello {
		return nil
	}
	c.retry.Stop()
	id := c.pick()
	if id == "" {
		if !c.waiting && len(c.joining) == 0 {
			c.waiting = true
			c.log.Info("connected; waiting for a session")
		}
		return nil
	}
	hello := c.run.p.hello(c)
	hello.Metadata, hello.Session, hello.ReconnectToken = c.run.metadata, id, c.restoring
	c.asked, c.state = id, awaitAck
	for _, j := range c.joining {
		j.asked = true // this asks for all
	}
	c.await.Reset(answerTimeout)
	err := c.send(hello)
	if isTooLarge(err) {
		return fatalError{err}
	}
	return nil // a lost connection shows in the reader
}

// acked begins a binding, or those to all sessions.
func (c *conn) acked(m *protocol.HelloAck) {
	if c.state != awaitAck {
		return
	}
	c.await.Stop()
	c.state, c.retryIn, c.restoring, c.waiting = isBound, firstRetry, "", false
	c.providerID, c.persistDir = m.ProviderID, m.PersistDir
	// Gateways of the core profile give no such token, and no answers to updates.
	c.confirms = m.ReconnectToken != ""
	c.run.reconnect = reconnect{token: m.ReconnectToken, to: c.to}
	p := c.run.p
	if p.all() {
		p.setBound(c)
		c.log.Info("bound to all sessions", "id", m.ProviderID)
		c.join()
	} else {
		c.run.session = c.asked
		c.open(c.enter(c.asked))
	}
	c.proceed()
}

// enter makes the binding to a session that the gateway has joined.
func (c *conn) enter(session string) *binding {
	s, _ := c.find(session)
	b := &binding{
		Binding: Binding{Session: session, CWD: s.CWD, ProviderID: c.providerID, PersistDir: c.persistDir},
		over:    make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancelCause(c.ctx)
	c.bindings[session] = b
	c.mu.Lock()
	c.sessions[session] = true
	c.mu.Unlock()
	return b
}

// open gives a session what the hello could not carry, and then hands it to the
// user's code.
func (c *conn) open(b *binding) {
	p := c.run.p
	p.mu.Lock()
	steps := append(p.restores(b.Session), &change{then: func() { c.start(b) }})
	p.queue = slices.Insert(p.queue, 0, steps...)
	p.mu.Unlock()
}

// start runs OnBound.
func (c *conn) start(b *binding) {
	if b.begun {
		return
	}
	b.begun = true
	p := c.run.p
	p.setBound(c)
	c.log.Info("bound", "session", b.Session, "id", b.ProviderID)
	f := p.opts.OnBound
	if f == nil {
		close(b.over)
		return
	}
	c.run.wg.Go(func() {
		defer close(b.over)
		guard(p.log, func() { f(b.ctx, b.Binding) })
	})
}

// offerChanged tells the gateway of what it does not have yet.
func (c *conn) offerChanged() error {
	switch c.state {
	case awaitHello:
		return c.bind() // the offer may have been what was refused
	case isBound:
		if c.run.p.all() {
			c.join() // the same, for a session
		}
		c.proceed()
	}
	return nil
}

// complain logs and reports what the run survives.
func (c *conn) complain(err error) {
	c.log.Warn("gateway refused", "error", err)
	c.run.report(err)
}

// refused handles an error of the gateway's. It returns an error when the
// connection, or the run, is over by it.
func (c *conn) refused(m *protocol.Error) error {
	err := error(fromGateway(m))
	switch {
	case m.Code == protocol.CodeAuthFailed && c.state == awaitSessions:
		return fmt.Errorf("%w: %s", errRefused, m.Message)
	case m.Code == protocol.CodeAuthFailed:
		return err
	case m.Code == protocol.CodeUnsupportedVersion:
		return fatalError{fmt.Errorf("the gateway speaks another version: %w", err)}
	case c.state == awaitAck && (m.ReplyTo == protocol.TypeHello || m.ReplyTo == ""):
		return c.helloRefused(m.Code, err)
	case c.answersTelling(m):
		c.told(err, c.telling.change)
		c.proceed()
		return nil
	case c.refusedRequest(m, err):
		return nil
	case m.ReplyTo == protocol.TypeSessionReady:
		c.notReady(m)
	}
	if crossed(m) {
		c.log.Debug("gateway refused", "error", err, "to", m.ReplyTo)
		return nil
	}
	c.complain(err)
	return nil
}

// crossed reports whether an error only says that what the provider sent was
// about something that ended meanwhile.
func crossed(m *protocol.Error) bool {
	switch m.ReplyTo {
	case protocol.TypeShutdownReady, protocol.TypeToolProgress, protocol.TypeToolResult, protocol.TypeGateResult,
		protocol.TypeTransformResult,
		protocol.TypeSessionReady, protocol.TypeToolsUpdate, protocol.TypeHooksUpdate, protocol.TypeContextUpdate,
		protocol.TypeFilterSet:
	default:
		return false
	}
	return m.Code == protocol.CodeInvalidState || m.Code == protocol.CodeInvalidSession ||
		m.Code == protocol.CodeUnknownCallID
}

// helloRefused decides what becomes of a provider that was not bound.
func (c *conn) helloRefused(code protocol.Code, err error) error {
	c.await.Stop()
	c.state = awaitHello
	c.unlink()
	err = fmt.Errorf("binding to session %s: %w", c.asked, err)
	switch code {
	case protocol.CodeInvalidJSON, protocol.CodePayloadTooLarge, protocol.CodeUnauthorized:
		return fatalError{err}
	case protocol.CodeInvalidSession:
		if c.to.paired() {
			return fatalError{fmt.Errorf("%w: %w", ErrNotPaired, err)}
		}
		// It ended meanwhile, or is not for us; a new list comes when
		// anything changes. One that came since the hello has it no more.
		c.unfit[c.asked] = true
		c.log.Info("session not bound", "error", err)
		return c.bind()
	}
	c.complain(err)
	c.retry.Reset(c.retryIn)
	c.retryIn = min(2*c.retryIn, maxRetry)
	return nil
}

// lifecycle follows a bound session.
func (c *conn) lifecycle(m *protocol.SessionLifecycle) {
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
	c.log.Info("session is ending", "session", b.Session)
	b.ending = true
	c.ended[b.Session] = true
	if !c.run.p.all() {
		c.state = isEnding
		c.unlink()
	}
	b.cancel(&CancelError{ReasonSessionEnded})
	if !b.begun {
		b.begun = true
		close(b.over)
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
		waits := []<-chan struct{}{returned, b.over}
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

// unbound lets a session end and looks for another.
func (c *conn) unbound(b *binding) error {
	_ = c.send(&protocol.ShutdownReady{SessionID: b.Session}) // the reader notices
	if err := c.leave(b); err != nil {
		return err
	}
	return c.bind()
}

// leave ends a binding whose session is gone. The error ends the run.
func (c *conn) leave(b *binding) error {
	delete(c.bindings, b.Session)
	c.gone(b.Session)
	if c.run.p.all() {
		c.proceed()
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
