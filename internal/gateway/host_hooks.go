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

// NeedsHooks implements [HostCalls]: it is true once a provider with rules, context or a
// transform by callback was bound, or is about to be, and while there are user hooks that
// the host must ask.
func (s *Session) NeedsHooks() bool {
	h := s.g.hooks.Load()
	return s.needsHooks.Load() || s.pendingHooks.Load() > 0 || h != nil && h.needHost() ||
		s.ownHooks.needHost()
}

// needHost reports whether a host must call one of the hooks. The gateway calls those
// on errors and at the session's end itself.
func (h *userHooks) needHost() bool {
	return slices.ContainsFunc(h.all, func(h Hook) bool {
		return h.On != HookError && h.On != HookSessionEnd
	})
}

// needsHooks reports whether the host must call its hooks for the offer to have effect.
func (o *offer) needsHooks() bool {
	if len(o.rules) > 0 || o.context != "" || o.startup != "" {
		return true
	}
	for _, t := range o.transforms {
		if t.isCallback() {
			return true
		}
	}
	return false
}

// hooksTimeout bounds the wait for a host to enable its hooks, which takes some
// milliseconds. The provider that needs them is not read meanwhile.
const hooksTimeout = 5 * time.Second

// hooksError says that a session's host can't enable its hooks.
type hooksError struct {
	session *Session
	cause   error
}

func (e *hooksError) Error() string {
	return fmt.Sprintf(
		"hooks and gates can't be enabled in session %s, so nothing that needs them may be bound "+
			"there: %v; try again",
		e.session.id, e.cause)
}

// refusal is the answer to a provider's message that needs hooks.
func (e *hooksError) refusal() *protocol.Error {
	return &protocol.Error{Code: protocol.CodeInternal, Message: e.Error(), SessionID: e.session.id}
}

// lockWithHooks enables hooks in the sessions that targets returns and then locks
// Gateway.mu. The order matters: a rule that is bound before its session's host calls
// hooks would be skipped. When hosts can't enable them, the result has an error for
// each, the lock is not held, and the caller must bind nothing. targets runs with
// Gateway.mu held, and again when sessions came meanwhile.
func (g *Gateway) lockWithHooks(targets func() []*Session) []*hooksError {
	var enabled []*Session
	defer func() {
		for _, s := range enabled {
			s.pendingHooks.Add(-1)
		}
	}()
	for {
		g.mu.Lock()
		sessions := targets()
		var missing []*Session
		for _, s := range sessions {
			if !slices.Contains(enabled, s) {
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
			// From here on a host without hooks gets no prompt, even if its runtime is
			// replaced before the change is bound.
			s.pendingHooks.Add(1)
		}
		enabled = append(enabled, missing...)
		if failed := enableHooks(missing); len(failed) > 0 {
			return failed
		}
	}
}

// lockWithHooksOrEnd is lockWithHooks for changes that must have effect in all sessions: it ends a
// session whose host can't enable its hooks. It may change the slice that targets returns.
func (g *Gateway) lockWithHooksOrEnd(targets func() []*Session) {
	var ended []*Session
	for {
		failed := g.lockWithHooks(func() []*Session {
			return slices.DeleteFunc(targets(), func(s *Session) bool {
				return slices.Contains(ended, s)
			})
		})
		if len(failed) == 0 {
			return
		}
		var ending sync.WaitGroup
		for _, err := range failed {
			ended = append(ended, err.session)
			ending.Go(func() {
				err.session.interruptWithoutHooks()
				err.session.Ended("its hooks can't be asked: " + err.cause.Error())
			})
		}
		ending.Wait()
	}
}

// enableHooks enables hooks in several sessions at once.
func enableHooks(sessions []*Session) []*hooksError {
	errs := make([]*hooksError, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.enableHooks() })
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err *hooksError) bool { return err == nil })
}

// enableHooks enables the hooks of the session's host, if it can disable them. A
// session that is ending is interrupted instead when that fails.
func (s *Session) enableHooks() *hooksError {
	if s.info.EnableHooks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, hooksTimeout)
	defer cancel()
	err := s.info.EnableHooks(ctx)
	switch {
	case err == nil:
		return nil
	case s.isEnding():
		s.interruptWithoutHooks() // its turn would go on until the providers are ready
		return nil
	}
	s.g.diag.noteError(s.id, "", adminapi.CodeSession, err.Error())
	s.note(adminapi.LogError, sourceGateway, fmt.Sprintf("hooks and gates can't be asked: %v", err))
	return &hooksError{s, err}
}

func (s *Session) interruptWithoutHooks() {
	ctx, cancel := context.WithTimeout(s.ctx, hooksTimeout)
	defer cancel()
	_, _ = s.Interrupt(ctx, "hooks and gates can't be asked")
}

// sessionsForHello are the sessions in which a hello needs hooks. Call with Gateway.mu
// held.
func (c *Conn) sessionsForHello(m *protocol.Hello) []*Session {
	restore := c.memoryFor(m)
	if !helloNeedsHooks(m) && (restore == nil || !restore.provider.base.needsHooks()) {
		return nil
	}
	sessions, err := c.targetSessions(m, restore)
	if err != nil || c.identity.checkHello(m) != nil {
		return nil // bind will refuse it
	}
	return sessions
}

// helloNeedsHooks is [offer.needsHooks] of a hello.
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

// sessionsForUpdate are the sessions in which an update needs hooks. Call with
// Gateway.mu held.
func (c *Conn) sessionsForUpdate(t protocol.Type, session string, change offerChange) []*Session {
	bindings, err := c.bindingsOf(session, t)
	if err != nil || t == protocol.TypeToolsUpdate {
		return nil
	}
	var sessions []*Session
	for _, b := range bindings {
		if o, err := change(b.offer); err == nil && o.needsHooks() {
			sessions = append(sessions, b.session)
		}
	}
	return sessions
}

// sessionsForReady is the session of a session.ready, if the provider needs hooks there.
// Call with Gateway.mu held.
func (c *Conn) sessionsForReady(session string) []*Session {
	s := c.g.sessions[session]
	if s == nil || !c.is(bound) || !c.provider.all || !c.provider.base.needsHooks() {
		return nil
	}
	return []*Session{s}
}
