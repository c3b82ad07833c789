package gateway

import (
	"fmt"
	"slices"

	"tapgw/internal/protocol"
)

func tooManyHellos() *protocol.Error {
	return &protocol.Error{Code: protocol.CodeRateLimited, Message: fmt.Sprintf("more than %d hellos a minute", protocol.MaxRebindsAMinute), ReplyTo: protocol.TypeHello}
}

// hello binds the provider, anew if it was bound. It is one step for everybody
// else: what the old binding had is gone before the new one is there.
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
	persist := ""
	if g.persistDir != nil && c.identity.trust != TrustExternal && c.identity.checkName(m.Name) == nil {
		dir, err := g.persistDir(m.Name)
		if err != nil {
			g.log.Warn("making a provider's directory", "provider", m.Name, "error", err)
		}
		persist = dir
	}
	var err *protocol.Error
	if unasked := g.lockWithHooks(func() []*Session { return c.sessionsForHello(m) }); len(unasked) > 0 {
		err = unasked[0].refusal()
		g.mu.Lock()
	}
	if c.is(closed) { // by somebody else, meanwhile
		g.mu.Unlock()
		return
	}
	told := func() {}
	if c.is(bound) {
		told = c.unbind(protocol.ReasonRebind)
	}
	var taken *Conn
	if err == nil {
		taken, err = c.bind(m, spelling, persist)
	}
	g.mu.Unlock()
	told()
	if taken != nil {
		taken.close(protocol.CloseTakenOver, "a newer connection took this identity")
	}
	if err != nil {
		if err.ReplyTo == "" {
			err.ReplyTo = protocol.TypeHello
		}
		if c.identity.refused != nil {
			c.identity.refused(err)
		}
		c.reportError(err)
		return
	}
	c.peer.Flush()
}

// isIgnored reports whether a hello is one that gets no answer: it asks for all
// sessions while there is none.
func (c *Conn) isIgnored(m *protocol.Hello) bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return m.Session == protocol.AllSessions && c.g.foregroundSession() == nil
}

// bind checks a hello and makes its bindings. It returns the connection whose
// identity it took, which the caller closes. An error changed nothing; a nil
// error may also mean that the hello was isIgnored. Call with Gateway.mu held.
func (c *Conn) bind(m *protocol.Hello, spelling, persist string) (taken *Conn, err *protocol.Error) {
	g := c.g
	restore := c.memoryFor(m)
	sessions, err := c.targetSessions(m, restore)
	if err != nil || sessions == nil {
		return nil, err
	}
	if restore != nil {
		taken = restore.conn
	}
	leaving := g.connsReplacedBy(c.identity)
	if err := c.identity.checkHello(m); err != nil {
		return nil, err
	}
	var going []*Provider
	if taken != nil {
		going = append(going, taken.provider)
	}
	for _, other := range leaving {
		going = append(going, other.provider)
	}
	for _, s := range sessions {
		if err := s.checkOwner(c.identity, m.Name, spelling, going...); err != nil {
			return nil, err
		}
	}
	if m.Instance != "" {
		for other := range g.conns {
			if p := other.provider; other != c && other != taken && !slices.Contains(leaving, other) && p != nil && p.name == m.Name && p.owner == c.identity.owner && p.instance == m.Instance {
				return nil, errorf(protocol.CodeDuplicateInstance, "instance %q of provider %q is connected already; choose another instance, or reconnect with its reconnectToken", m.Instance, m.Name)
			}
		}
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
		if err := s.conflict(p, o.tools, going...); err != nil {
			return nil, err
		}
	}
	// Not before: a hello that failed would leave its limits behind.
	for _, t := range o.tools {
		t.slots = g.limits.slotsFor(p, t.Name)
	}
	if taken != nil {
		// Its tools make room in the same step; its calls end when it is closed.
		taken.release(sessions...)
		g.dropMemory(restore)
	}
	g.unbindReplaced(c.identity, leaving, sessions)
	if c.memory != nil {
		g.dropMemory(c.memory)
	}
	c.restore = nil
	was := c.provider
	p.replace(was)
	if c.provider = p; was != nil && was.name != p.name {
		g.dropLimits(was)
	}
	p.all = c.requestedSession(m, restore) == protocol.AllSessions
	c.memory = &memory{identity: c.identity, provider: p, conn: c, session: protocol.AllSessions}
	if !p.all {
		c.memory.session = sessions[0].id
	}
	p.base = o
	c.state.Store(int32(bound))
	c.needsSessionList = false
	// Held until the ack is queued, so that no call overtakes it.
	if c.identity.named {
		c.identity.name, c.identity.named = p.name, false
	}
	p.mu.Lock()
	for _, s := range sessions {
		s.setNameOwner(c.identity, p.name, spelling)
		s.bind(p, o)
	}
	c.peer.Send(&protocol.HelloAck{ProtocolVersion: protocol.Version, ProviderID: p.id, SessionID: c.memory.session, ReconnectToken: g.newReconnectToken(c.memory), PersistDir: persist, Name: changedName(spelling)})
	for _, s := range sessions {
		c.sendSessionState(s)
	}
	p.mu.Unlock()
	c.identity.notifyBound()
	return taken, nil
}

// sendSessionState tells the provider of the session's state. Call with Gateway.mu held.
func (c *Conn) sendSessionState(s *Session) {
	c.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleStarted})
	if s.isIdle() {
		c.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleIdle})
	}
}

// memoryFor finds what the hello restores: by auth's reconnect token or by its own.
// One of another identity counts as absent. Call with Gateway.mu held.
func (c *Conn) memoryFor(m *protocol.Hello) *memory {
	if restore := c.g.useReconnectToken(m.ReconnectToken); restore != nil {
		c.restore = restore // a hello that fails may be tried again
	}
	restore := c.restore
	if restore == nil || restore.identity.owner != c.identity.owner || restore.provider.name != m.Name || (m.Instance != "" && restore.provider.instance != m.Instance) {
		return nil
	}
	if restore.conn == c {
		restore.conn = nil // it takes over nobody but itself
	}
	m.Instance = restore.provider.instance
	return restore
}

// wanted is the session that a hello means, or "all"; "" when it can't be told.
func (c *Conn) requestedSession(m *protocol.Hello, restore *memory) string {
	switch {
	case m.Session != "":
		return m.Session
	case c.identity.session != "":
		return c.identity.session
	case restore != nil:
		return restore.session
	}
	return ""
}

// target finds the sessions that a hello binds to; none and no error means that
// it is to be isIgnored. Call with Gateway.mu held.
func (c *Conn) targetSessions(m *protocol.Hello, restore *memory) ([]*Session, *protocol.Error) {
	g, want := c.g, c.requestedSession(m, restore)
	switch want {
	case "":
		return nil, errorf(protocol.CodeInvalidJSON, "hello.session: is required: an id from the sessions list")
	case protocol.AllSessions:
		var live []*Session
		for _, s := range g.order {
			if !s.isEnding() && !c.identity.replacedIn[s.id] && c.identity.includes(s) {
				live = append(live, s)
			}
		}
		if len(live) > 0 && !c.identity.may(mayBindAll) {
			return nil, c.identity.unauthorized("hello.session", "bind to all sessions; choose one id from the sessions list")
		}
		if c.identity.ended {
			return nil, errorf(protocol.CodeInvalidSession, "hello.session: this token has ended; another has taken its place")
		}
		return live, nil
	}
	s := g.sessions[want]
	if s == nil || s.isEnding() {
		return nil, noSession(want)
	}
	if !c.identity.mayBind(s) {
		return nil, &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session %q is not open to this token", want), SessionID: want}
	}
	return []*Session{s}, nil
}

// unbind takes the provider out of its sessions and cancels its calls. What it
// returns is to be called once Gateway.mu is free. Call with Gateway.mu held.
func (c *Conn) unbind(reason string) func() {
	p := c.provider
	if p == nil {
		return func() {}
	}
	c.release()
	c.state.Store(int32(unbound))
	ended := p.cancelCalls(func(*call) bool { return true }, reason)
	p.mu.Lock()
	p.endRequests()
	p.mu.Unlock()
	return func() {
		finishAll(ended, Outcome{Error: "Cancelled: the provider is binding anew", ErrorCode: protocol.CodeCancelled})
	}
}

// release removes the provider from all its sessions. In those that another is bound
// to next, that step swaps the routes: nobody sees what lies between, a gate that is
// gone say. Call with Gateway.mu held.
func (c *Conn) release(next ...*Session) {
	if c.provider == nil {
		return
	}
	for _, b := range slices.Clone(c.provider.bindings) {
		if slices.Contains(next, b.session) {
			b.session.removeBinding(b)
		} else {
			b.session.unbind(b)
		}
	}
}

func (c *Conn) sessionReady(m *protocol.SessionReady) {
	g := c.g
	var err *protocol.Error
	if unasked := g.lockWithHooks(func() []*Session { return c.sessionsForReady(m.SessionID) }); len(unasked) > 0 {
		err = unasked[0].refusal()
	} else {
		if c.is(bound) {
			err = c.join(m.SessionID)
		}
		g.mu.Unlock()
	}
	if err != nil {
		err.ReplyTo = protocol.TypeSessionReady
		c.reportError(err)
		return
	}
	c.peer.Flush()
}

// join binds a provider of all sessions to a new one. Call with Gateway.mu held.
func (c *Conn) join(session string) *protocol.Error {
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
	if err := s.conflict(p, p.base.tools); err != nil {
		return err
	}
	s.setNameOwner(c.identity, p.name, p.spelling)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.bind(p, p.base)
	c.sendSessionState(s)
	return nil
}
