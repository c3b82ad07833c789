package gateway

import (
	"context"
	"slices"
)

// AwaitProviders waits until the connected providers that may bind themselves to the session have done so, or until ctx
// ends. A host calls it once for a session whose agent works already, before it asks about the first call: the gates
// of a session that has only just begun are not bound yet.
func (s *Session) AwaitProviders(ctx context.Context) {
	for {
		n := s.g.ToolChanges()
		if !s.g.expectsProvider(s) || s.g.toolChanges.wait(ctx, n, s.stopping) != nil {
			return
		}
	}
}

// expectsProvider reports whether a connected provider has yet to bind itself to a session: a
// provider of all sessions, or one that waits for a session.
func (g *Gateway) expectsProvider(s *Session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		switch {
		case c.identity == nil || !c.identity.mayBind(s):
		case c.is(awaitHello), c.is(unbound):
			return true
		case c.is(bound) && c.provider.all:
			isHere := func(b *binding) bool { return b.session == s }
			if !slices.ContainsFunc(c.provider.bindings, isHere) {
				return true
			}
		}
	}
	return false
}
