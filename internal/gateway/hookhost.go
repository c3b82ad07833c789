package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// HookHost is a [Host] that calls PreToolUse, UserPrompt and Hook only from when
// [HostCalls.NeedsHooks] says that it is worth it: to ask costs each turn time.
type HookHost interface {
	Host
	// EnableHooks sees to it that what the session does from now on is asked about, in
	// a turn that runs too. It may be called from any goroutine, and is cheap where
	// that is so already. After an error nothing may come that is to be asked about.
	EnableHooks(ctx context.Context) error
}

// NeedsHooks implements [HostCalls].
func (s *Session) NeedsHooks() bool {
	h := s.g.hooks.Load()
	return s.needsHooks.Load() || s.pendingHooks.Load() > 0 || h != nil && h.needHost()
}

// wanted reports whether a hook is of a kind that the host asks.
func (h *hooks) needHost() bool {
	return slices.ContainsFunc(h.all, func(h Hook) bool { return h.On != HookError && h.On != HookSessionEnd })
}

// hooked reports whether an offer has something that a host is to ask about at each
// call or prompt.
func (o *offer) needsHooks() bool {
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

// hooksTimeout bounds the wait for a host to ask its hooks, which takes one some
// milliseconds: nothing is read of the provider that brings them meanwhile.
const hooksTimeout = 5 * time.Second

// hooksError says that a session's host can't ask its hooks.
type hooksError struct {
	session *Session
	cause   error
}

func (e *hooksError) Error() string {
	return fmt.Sprintf("session %s can't ask about what it does, so nothing that has to be asked about may come into it: %v; try again", e.session.id, e.cause)
}

// refusal is the answer to a message of a provider's that brings what can't be asked
// about.
func (e *hooksError) refusal() *protocol.Error {
	return &protocol.Error{Code: protocol.CodeInternal, Message: e.Error(), SessionID: e.session.id}
}

// lockWithHooks locks Gateway.mu once the hosts of the sessions that pick returns ask
// their hooks: what comes next brings some. So none is there without being asked. Where
// hosts can't it returns an error for each, is not locked, and nothing may come. Pick is
// called with Gateway.mu held.
func (g *Gateway) lockWithHooks(pick func() []*Session) []*hooksError {
	var ready []*Session
	defer func() {
		for _, s := range ready {
			s.pendingHooks.Add(-1)
		}
	}()
	for {
		g.mu.Lock()
		sessions := pick()
		var missing []*Session
		for _, s := range sessions {
			if !slices.Contains(ready, s) {
				missing = append(missing, s)
			}
		}
		if len(missing) == 0 {
			for _, s := range sessions {
				s.needsHooks.Store(true)
			}
			return nil
		}
		g.mu.Unlock()
		for _, s := range missing {
			// From here on no prompt is given to a host that does not ask, also when
			// it comes back from the dead before what brings the hooks is there.
			s.pendingHooks.Add(1)
		}
		ready = append(ready, missing...)
		failed := make([]*hooksError, len(missing))
		var wg sync.WaitGroup
		for i, s := range missing {
			wg.Go(func() { failed[i] = s.enableHooks() })
		}
		wg.Wait()
		failed = slices.DeleteFunc(failed, func(err *hooksError) bool { return err == nil })
		if len(failed) > 0 {
			return failed
		}
	}
}

// enableHooks has the host ask about what the session does from now on.
func (s *Session) enableHooks() *hooksError {
	h, ok := s.host.(HookHost)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, hooksTimeout)
	defer cancel()
	err := h.EnableHooks(ctx)
	switch {
	case err == nil:
		return nil
	case s.isEnding():
		s.interruptWithoutHooks() // else its turn goes on until the providers are done
		return nil
	}
	s.g.diag.noteError(s.id, "", adminapi.CodeSession, err.Error())
	s.note(LogError, sourceGateway, fmt.Sprintf("hooks and gates can't be asked: %v", err))
	return &hooksError{s, err}
}

func (s *Session) interruptWithoutHooks() {
	ctx, cancel := context.WithTimeout(s.ctx, hooksTimeout)
	defer cancel()
	_, _ = s.Interrupt(ctx, "hooks and gates can't be asked")
}

// hookSessionsOfHello are the sessions into which a hello brings something to be asked about.
// Call with Gateway.mu held.
func (c *Conn) hookSessionsOfHello(m *protocol.Hello) []*Session {
	restore := c.memoryFor(m)
	if !helloNeedsHooks(m) && (restore == nil || !restore.provider.base.needsHooks()) {
		return nil
	}
	sessions, err := c.target(m, restore)
	if err != nil || c.identity.checkHello(m) != nil {
		return nil // nothing comes of it
	}
	return sessions
}

// hooked is [offer.hooked] of a hello.
func helloNeedsHooks(m *protocol.Hello) bool {
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

// hookSessionsOfUpdate are the sessions into which an update brings something to be asked
// about. Call with Gateway.mu held.
func (c *Conn) hookSessionsOfUpdate(t protocol.Type, session string, make change) []*Session {
	bindings, err := c.bindingsOf(session, t)
	if err != nil || t == protocol.TypeToolsUpdate {
		return nil
	}
	var hooked []*Session
	for _, b := range bindings {
		if o, err := make(b.offer); err == nil && o.needsHooks() {
			hooked = append(hooked, b.session)
		}
	}
	return hooked
}

// hookSessionsOfReady are the sessions into which the provider comes with something to be
// asked about. Call with Gateway.mu held.
func (c *Conn) hookSessionsOfReady(session string) []*Session {
	s := c.g.sessions[session]
	if s == nil || !c.is(bound) || !c.provider.all || !c.provider.base.needsHooks() {
		return nil
	}
	return []*Session{s}
}
