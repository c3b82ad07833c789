package gateway

import (
	"slices"

	"tapgw/internal/protocol"
)

func tooManyHellos() *protocol.Error {
	return errorf(protocol.CodeRateLimited, "more than %d hellos a minute",
		protocol.MaxRebindsAMinute)
}

// hello handles hello: it binds the provider, after removing its old bindings. A hello
// that is refused leaves a bound provider without bindings. See docs/protocol.md,
// "Binding to a session".
func (c *Conn) hello(m *protocol.Hello) {
	g := c.g
	if c.isIgnored(m) {
		return
	}
	if !c.is(awaitHello) && !c.rebinds.allow() {
		c.reportError(tooManyHellos())
		return
	}
	spelling := m.Name
	m.Name = protocol.NormalName(m.Name)
	persistDir, err := c.makePersistDir(m, spelling)
	if err != nil {
		g.mu.Lock()
	} else if failed := g.lockWithHooks(func() []*Session {
		return c.sessionsForHello(m)
	}); len(failed) > 0 {
		err = failed[0].refusal()
		g.mu.Lock()
	}
	if c.is(closed) { // meanwhile, by another goroutine
		g.mu.Unlock()
		return
	}
	var ended []*call
	if c.is(bound) {
		ended = c.unbind()
	}
	var takenOver *Conn
	if err == nil {
		takenOver, err = c.bind(m, spelling, persistDir)
	}
	g.mu.Unlock()
	finishAll(ended, reboundOutcome)
	if takenOver != nil {
		takenOver.close(protocol.CloseTakenOver, "a newer connection took this identity")
	}
	if err != nil {
		if c.identity.Refused != nil {
			refused := *err // a copy to keep, because reportError changes err
			c.identity.Refused(&refused)
		}
		c.reportError(err)
		return
	}
	c.peer.Flush()
}

// reboundOutcome ends the calls of a provider that binds anew.
var reboundOutcome = cancelledOutcome("the provider is binding anew")

// isIgnored reports whether a hello gets no answer: it asks for all sessions while the gateway has
// no session. See docs/protocol.md, "All sessions".
func (c *Conn) isIgnored(m *protocol.Hello) bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return m.Session == protocol.AllSessions && c.g.foregroundSession() == nil
}

// makePersistDir makes the directory that the provider may keep files in. It returns "" if the
// provider gets no directory. If the provider has no bindings yet, it first finds out whether the
// hello is refused, and returns why. A refusal must leave no directory behind, and a directory
// can't be made later, under Gateway.mu.
func (c *Conn) makePersistDir(m *protocol.Hello, spelling string) (string, *protocol.Error) {
	if !c.identity.hasFiles() || c.g.o.PersistDir == nil || c.identity.checkName(m.Name) != nil {
		return "", nil
	}
	if !c.is(bound) {
		c.g.mu.Lock()
		_, err := c.planBind(m, spelling)
		c.g.mu.Unlock()
		if err != nil {
			return "", err
		}
	}
	dir, err := c.g.o.PersistDir(m.Name)
	if err != nil {
		c.g.o.Log.Warn("making a provider's directory", "provider", m.Name, "error", err)
	}
	return dir, nil
}

// bindPlan is a checked hello: the bindings that it makes, and the connections whose bindings it
// ends.
type bindPlan struct {
	hello     *protocol.Hello
	spelling  string // of the name
	restore   *reconnectMemory
	sessions  []*Session
	takenOver *Conn   // is still connected with the identity that is restored; or nil
	replaced  []*Conn // of the passes that this connection's pass replaces
	provider  *Provider
	offer     *offer
}

// bind checks a hello and makes its bindings. It returns the connection that it takes
// over, for the caller to close. After an error nothing has changed. Call with
// Gateway.mu held.
func (c *Conn) bind(
	m *protocol.Hello, spelling, persistDir string,
) (takenOver *Conn, err *protocol.Error) {
	plan, err := c.planBind(m, spelling)
	if err != nil || plan == nil {
		return nil, err
	}
	c.applyBind(plan, persistDir)
	return plan.takenOver, nil
}

// planBind checks a hello. It changes nothing. A nil plan without an error means that
// the hello is ignored. Call with Gateway.mu held.
func (c *Conn) planBind(m *protocol.Hello, spelling string) (*bindPlan, *protocol.Error) {
	restore := c.memoryFor(m)
	sessions, err := c.targetSessions(m, restore)
	if err != nil || sessions == nil {
		return nil, err
	}
	plan := &bindPlan{
		hello: m, spelling: spelling, restore: restore, sessions: sessions,
		replaced: c.g.connsReplacedBy(c.identity),
	}
	if restore != nil {
		plan.takenOver = restore.conn
	}
	if err := c.identity.checkHello(m); err != nil {
		return nil, err
	}
	leaving := plan.leavingProviders()
	for _, s := range sessions {
		if err := s.checkOwner(c.identity, m.Name, spelling, leaving...); err != nil {
			return nil, err
		}
	}
	if err := c.checkInstance(plan); err != nil {
		return nil, err
	}
	p := newProvider(c, m, restore)
	p.spelling = spelling
	o, err := p.newOffer(m)
	if err != nil {
		return nil, err
	}
	if restore != nil {
		p.inheritOffer(restore.provider, m, o)
	}
	for _, s := range sessions {
		if err := s.checkTools(p, o.tools, leaving...); err != nil {
			return nil, err
		}
	}
	plan.provider, plan.offer = p, o
	return plan, nil
}

// leavingProviders are the providers whose bindings the plan ends.
func (b *bindPlan) leavingProviders() []*Provider {
	var leaving []*Provider
	if b.takenOver != nil {
		leaving = append(leaving, b.takenOver.provider)
	}
	for _, other := range b.replaced {
		leaving = append(leaving, other.provider)
	}
	return leaving
}

// checkInstance refuses an instance that is connected already. Call with Gateway.mu held.
func (c *Conn) checkInstance(plan *bindPlan) *protocol.Error {
	m := plan.hello
	if m.Instance == "" {
		return nil
	}
	for other := range c.g.conns {
		p := other.provider
		if other == c || other == plan.takenOver || p == nil ||
			slices.Contains(plan.replaced, other) {
			continue
		}
		if p.name == m.Name && p.owner == c.identity.owner && p.instance == m.Instance {
			return errorf(protocol.CodeDuplicateInstance,
				"instance %q of provider %q is connected already; "+
					"choose another instance, or reconnect with its reconnectToken", m.Instance,
				m.Name)
		}
	}
	return nil
}

// applyBind makes the bindings of a plan in one step and queues the hello.ack. Call with
// Gateway.mu held.
func (c *Conn) applyBind(plan *bindPlan, persistDir string) {
	g, p := c.g, plan.provider
	// Not before: a hello that fails must not leave its limits behind.
	for _, t := range plan.offer.tools {
		t.slots = g.limits.slotsFor(p, t.Name)
	}
	if plan.takenOver != nil {
		// Its calls end when the caller closes it.
		plan.takenOver.removeBindings(plan.sessions...)
		g.dropMemory(plan.restore)
	}
	g.unbindReplaced(c.identity, plan.replaced, plan.sessions)
	if c.memory != nil {
		g.dropMemory(c.memory)
	}
	c.restore = nil
	old := c.provider
	p.replace(old)
	c.provider = p
	if old != nil && old.name != p.name {
		g.dropLimits(old)
	}
	p.all = c.requestedSession(plan.hello, plan.restore) == protocol.AllSessions
	c.memory = &reconnectMemory{
		identity: c.identity, provider: p, conn: c, session: protocol.AllSessions,
	}
	if !p.all {
		c.memory.session = plan.sessions[0].id
	}
	p.base = plan.offer
	g.rememberOffer(p)
	c.state.Store(int32(bound))
	c.needsSessionList = false
	if c.identity.namedByHello {
		c.identity.Name, c.identity.namedByHello = p.name, false
	}
	p.mu.Lock() // until the ack is queued, so that no call is sent before it
	owner, line := c.identity.nameOwner(p.name, plan.spelling), joinLine(p, plan.offer)
	for _, s := range plan.sessions {
		s.setNameOwner(p.name, owner)
		s.bind(p, plan.offer, line)
	}
	c.peer.Send(&protocol.HelloAck{
		ProtocolVersion: protocol.Version, ProviderID: p.id, SessionID: c.memory.session,
		ReconnectToken: g.newReconnectToken(c.memory), PersistDir: persistDir,
		Name: changedName(plan.spelling),
	})
	for _, s := range plan.sessions {
		c.sendSessionState(s)
	}
	for _, b := range p.bindings {
		b.tellQuestions()
	}
	p.mu.Unlock()
	c.identity.notifyBound()
}

// sendSessionState queues session.lifecycle: started, and idle if the session is. Call
// with Gateway.mu held.
func (c *Conn) sendSessionState(s *Session) {
	c.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleStarted})
	if s.isIdle() {
		c.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleIdle})
	}
}

// memoryFor returns the reconnect memory that a hello restores, by its own reconnect token or the
// one of auth. It is nil without such a memory, and if the memory is of another identity, name or
// instance. Call with Gateway.mu held.
func (c *Conn) memoryFor(m *protocol.Hello) *reconnectMemory {
	if restore := c.g.useReconnectToken(m.ReconnectToken); restore != nil {
		c.restore = restore // for another hello, if this one fails
	}
	restore := c.restore
	if restore == nil || restore.identity.owner != c.identity.owner ||
		restore.provider.name != m.Name {
		return nil
	}
	if m.Instance != "" && restore.provider.instance != m.Instance {
		return nil
	}
	if restore.conn == c {
		restore.conn = nil // a connection does not take itself over
	}
	m.Instance = restore.provider.instance
	return restore
}

// requestedSession returns the session id that a hello asks for, or "all". Without one in
// the hello it is the session of the identity, else of the restored memory, else "".
func (c *Conn) requestedSession(m *protocol.Hello, restore *reconnectMemory) string {
	switch {
	case m.Session != "":
		return m.Session
	case c.identity.Session != "":
		return c.identity.Session
	case restore != nil:
		return restore.session
	}
	return ""
}

// targetSessions returns the sessions that a hello binds to. Nil without an error means
// that the hello is ignored. Call with Gateway.mu held.
func (c *Conn) targetSessions(
	m *protocol.Hello, restore *reconnectMemory,
) ([]*Session, *protocol.Error) {
	g, id := c.g, c.requestedSession(m, restore)
	switch id {
	case "":
		return nil, errorf(protocol.CodeInvalidJSON,
			"hello.session: is required: an id from the sessions list")
	case protocol.AllSessions:
		var sessions []*Session
		for _, s := range g.order {
			if !s.isEnding() && !c.identity.replacedIn[s.id] && c.identity.includes(s) {
				sessions = append(sessions, s)
			}
		}
		if len(sessions) > 0 && !c.identity.may(mayBindAll) {
			return nil, c.identity.unauthorized("hello.session",
				"bind to all sessions; choose one id from the sessions list")
		}
		if c.identity.ended {
			return nil, errorf(protocol.CodeInvalidSession,
				"hello.session: this token has ended; another has taken its place")
		}
		return sessions, nil
	}
	s := g.sessions[id]
	if s == nil || s.isEnding() {
		return nil, noSession(id)
	}
	if !c.identity.mayBind(s) {
		err := errorf(protocol.CodeInvalidSession, "session %q is not open to this token", id)
		err.SessionID = id
		return nil, err
	}
	return []*Session{s}, nil
}

// unbind removes the provider's bindings and cancels its calls with reason rebind. The
// caller finishes the calls once Gateway.mu is free. Call with Gateway.mu held.
func (c *Conn) unbind() []*call {
	p := c.provider
	if p == nil {
		return nil
	}
	c.removeBindings()
	c.state.Store(int32(unbound))
	ended := p.cancelCalls(func(*call) bool { return true }, protocol.ReasonRebind)
	p.mu.Lock()
	p.endRequests()
	p.mu.Unlock()
	return ended
}

// removeBindings removes the provider from all its sessions. In the sessions of rebound
// it leaves the routes as they are, because the caller's next binding rebuilds them: no
// call must see the session without either provider's gates. Call with Gateway.mu held.
func (c *Conn) removeBindings(rebound ...*Session) {
	if c.provider == nil {
		return
	}
	for _, b := range slices.Clone(c.provider.bindings) {
		if slices.Contains(rebound, b.session) {
			b.session.removeBinding(b)
		} else {
			b.session.unbind(b)
		}
	}
}

// sessionReady handles session.ready.
func (c *Conn) sessionReady(m *protocol.SessionReady) {
	g := c.g
	var err *protocol.Error
	if failed := g.lockWithHooks(func() []*Session {
		return c.sessionsForReady(m.SessionID)
	}); len(failed) > 0 {
		err = failed[0].refusal()
	} else {
		if c.is(bound) {
			err = c.bindNewSession(m.SessionID)
		}
		g.mu.Unlock()
	}
	if err != nil {
		c.reportError(err)
		return
	}
	c.peer.Flush()
}

// bindNewSession binds a provider of all sessions to one that began later. Call with
// Gateway.mu held.
func (c *Conn) bindNewSession(session string) *protocol.Error {
	p := c.provider
	if _, err := c.bindingsOf(session, protocol.TypeSessionReady); err == nil {
		return nil
	} else if !p.all || c.identity.ended {
		return err
	}
	s := c.g.sessions[session]
	if s == nil || s.isEnding() || c.identity.replacedIn[session] || !c.identity.includes(s) {
		return noSession(session)
	}
	if err := s.checkOwner(c.identity, p.name, p.spelling); err != nil {
		return err
	}
	if err := s.checkTools(p, p.base.tools); err != nil {
		return err
	}
	s.setNameOwner(p.name, c.identity.nameOwner(p.name, p.spelling))
	p.mu.Lock()
	defer p.mu.Unlock()
	s.bind(p, p.base, joinLine(p, p.base))
	c.sendSessionState(s)
	p.bindings[len(p.bindings)-1].tellQuestions()
	return nil
}
