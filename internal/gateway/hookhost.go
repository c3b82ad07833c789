package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"tapgw/internal/protocol"
)

// HookHost is a [Host] that calls PreToolUse, UserPrompt and Hook only from when
// [HostCalls.WantsHooks] says that it is worth it: to ask costs each turn time.
type HookHost interface {
	Host
	// NeedHooks sees to it that what the session does from now on is asked about, in
	// a turn that runs too. It may be called from any goroutine, and is cheap where
	// that is so already. After an error nobody is asked.
	NeedHooks(ctx context.Context) error
}

// WantsHooks implements [HostCalls].
func (s *Session) WantsHooks() bool {
	h := s.g.hooks.Load()
	return s.wantsHooks.Load() || h != nil && h.wanted()
}

// wanted reports whether a hook is of a kind that the host asks.
func (h *hooks) wanted() bool {
	return slices.ContainsFunc(h.all, func(h Hook) bool { return h.On != HookError && h.On != HookSessionEnd })
}

// hooked reports whether an offer has something that a host is to ask about at each
// call or prompt.
func (o *offer) hooked() bool {
	if len(o.rules) > 0 || o.context != "" || o.startup != "" {
		return true
	}
	for _, t := range o.transforms {
		if t.asks() {
			return true
		}
	}
	return false
}

// lockHooked locks Gateway.mu once the hosts of the sessions that pick returns ask
// their hooks: what comes next brings some. So none is there without being asked.
// Pick is called with Gateway.mu held.
func (g *Gateway) lockHooked(pick func() []*Session) {
	var ready []*Session
	for {
		g.mu.Lock()
		var missing []*Session
		for _, s := range pick() {
			if !slices.Contains(ready, s) {
				missing = append(missing, s)
			}
		}
		if len(missing) == 0 {
			return
		}
		g.mu.Unlock()
		var wg sync.WaitGroup
		for _, s := range missing {
			wg.Go(s.needHooks)
		}
		wg.Wait()
		ready = append(ready, missing...)
	}
}

// needHooks has the host ask about what the session does from now on. Where it can't,
// nothing goes on: the turn is stopped, and a host that is given a prompt tries again.
func (s *Session) needHooks() {
	s.wantsHooks.Store(true)
	h, ok := s.host.(HookHost)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	err := h.NeedHooks(ctx)
	if err == nil || s.ending() {
		return
	}
	s.g.diag.noteError(s.id, "", CodeSession, err.Error())
	s.note(LogError, sourceGateway, fmt.Sprintf("hooks and gates can't be asked, so the session does nothing until they can: %v", err))
	ctx, cancel = context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	if err := s.Interrupt(ctx, "hooks and gates can't be asked"); err != nil {
		s.Ended(fmt.Sprintf("its hooks and gates can't be asked, and its turn can't be stopped: %v", err))
	}
}

// hookedBy are the sessions into which a hello brings something to be asked about.
// Call with Gateway.mu held.
func (c *Conn) hookedBy(m *protocol.Hello) []*Session {
	restore := c.claim(m)
	if !hooked(m) && (restore == nil || !restore.provider.base.hooked()) {
		return nil
	}
	sessions, err := c.target(m, restore)
	if err != nil || c.identity.checkHello(m) != nil {
		return nil // nothing comes of it
	}
	return sessions
}

// hooked is [offer.hooked] of a hello.
func hooked(m *protocol.Hello) bool {
	if m.StartupContext != "" || m.Context != nil && *m.Context != "" {
		return true
	}
	if m.Hooks == nil {
		return false
	}
	for _, t := range m.Hooks.Transforms {
		if t != nil && t.Action == protocol.TransformCallback {
			return true
		}
	}
	return len(m.Hooks.OnPreToolUse) > 0
}

// hookedByUpdate are the sessions into which an update brings something to be asked
// about. Call with Gateway.mu held.
func (c *Conn) hookedByUpdate(t protocol.Type, session string, make change) []*Session {
	bindings, err := c.scope(session, t)
	if err != nil || t == protocol.TypeToolsUpdate {
		return nil
	}
	var hooked []*Session
	for _, b := range bindings {
		if o, err := make(b.offer); err == nil && o.hooked() {
			hooked = append(hooked, b.session)
		}
	}
	return hooked
}

// hookedByReady are the sessions into which the provider comes with something to be
// asked about. Call with Gateway.mu held.
func (c *Conn) hookedByReady(session string) []*Session {
	s := c.g.sessions[session]
	if s == nil || !c.is(bound) || !c.provider.all || !c.provider.base.hooked() {
		return nil
	}
	return []*Session{s}
}
