package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// ExpectedProvider is the provider of a provider file in the sessions that the file is for, also
// while it does not run. See docs/adr/0043-required-providers.md.
type ExpectedProvider struct {
	Name  string                      // of the file, for people
	Says  string                      // its name in hello
	Owner string                      // as PassSpec.Owner
	Match func(adminapi.Session) bool // nil: all sessions. It must not block
	// Required says that calls wait while the provider is not bound, and are then denied.
	Required bool
	// Why returns in one line why the provider is not bound in a session. It is called under no
	// lock.
	Why func(session string) string
}

// expectedProvider is an ExpectedProvider with the names by which a binding is known to be its. It
// is immutable.
type expectedProvider struct {
	ExpectedProvider
	key offerKey
}

// offerKey identifies the provider of a file: its normal name and the owner of that.
type offerKey struct{ name, owner string }

func (e *expectedProvider) is(p *Provider) bool { return e.key == offerKey{p.name, p.owner} }

// expectation is a provider that a session expects. Guarded by Gateway.mu.
type expectation struct {
	*expectedProvider
	last      *offer // when it left the session; nil: it was never bound there
	awaySince time.Time
}

// absence is a required provider that is not bound in a session. offer is its last one, there or in
// another session. Without an offer, or with one that has no rules yet, the provider may have a
// rule about any call: it may register its rules after its hello. An absence is immutable.
type absence struct {
	*expectedProvider
	offer *offer
}

// ExpectProviders replaces the providers that sessions expect, in sessions that run too. A session
// whose host can't enable its hooks for a required one within 5 seconds ends, as with
// [Gateway.SetHooks].
func (g *Gateway) ExpectProviders(list []ExpectedProvider) {
	now := make([]*expectedProvider, len(list))
	for i, e := range list {
		now[i] = &expectedProvider{e, offerKey{protocol.NormalName(e.Says), fileOwner(e.Owner)}}
	}
	g.lockWithHooksOrEnd(func() []*Session {
		return slices.DeleteFunc(slices.Clone(g.order), func(s *Session) bool {
			return !s.requiresAny(now)
		})
	})
	defer g.mu.Unlock()
	g.expected = now
	offers := make(map[offerKey]*offer, len(now))
	for _, e := range now {
		offers[e.key] = g.lastOffers[e.key]
	}
	g.lastOffers = offers
	for c := range g.conns {
		g.rememberOffer(c.provider)
	}
	for _, s := range g.order {
		s.expect()
		s.rebuildRoutes()
	}
}

// rememberOffer keeps the offer of an expected provider for the time when it is away. Call with
// Gateway.mu held.
func (g *Gateway) rememberOffer(p *Provider) {
	if p == nil {
		return
	}
	key := offerKey{p.name, p.owner}
	if _, isExpected := g.lastOffers[key]; isExpected {
		g.lastOffers[key] = p.base
	}
}

// requiresAny reports whether a provider of a list is required in the session. Call with Gateway.mu
// held.
func (s *Session) requiresAny(list []*expectedProvider) bool {
	view := sync.OnceValue(s.view)
	return slices.ContainsFunc(list, func(e *expectedProvider) bool {
		return e.Required && e.matches(view())
	})
}

func (e *expectedProvider) matches(v adminapi.Session) bool { return e.Match == nil || e.Match(v) }

// expect updates the list of the providers that the session expects. Call with Gateway.mu held, and
// rebuild the routes.
func (s *Session) expect() {
	before := s.expects
	s.expects = nil
	if len(s.g.expected) == 0 {
		return
	}
	v := s.view()
	for _, e := range s.g.expected {
		if !e.matches(v) {
			continue
		}
		x := &expectation{expectedProvider: e, awaySince: s.createdAt}
		for _, old := range before {
			if old.key == e.key {
				x.last, x.awaySince = old.last, old.awaySince
			}
		}
		s.expects = append(s.expects, x)
	}
}

// expectAgain is expect for a session with another label.
func (s *Session) expectAgain() {
	g := s.g
	g.lockWithHooksOrEnd(func() []*Session {
		if g.sessions[s.id] != s || !s.requiresAny(g.expected) {
			return nil
		}
		return []*Session{s}
	})
	defer g.mu.Unlock()
	if len(g.expected) > 0 {
		s.expect()
		s.rebuildRoutes()
	}
}

// noteLeft keeps the offer of an expected provider that leaves the session. Call with Gateway.mu
// held.
func (s *Session) noteLeft(b *binding) {
	for _, x := range s.expects {
		if x.is(b.provider) {
			x.last, x.awaySince = b.offer, time.Now()
		}
	}
}

// isAway reports whether an expected provider is not bound. Call with Gateway.mu held.
func (s *Session) isAway(x *expectation) bool {
	return !slices.ContainsFunc(s.bindings, func(b *binding) bool { return x.is(b.provider) })
}

// lastOffer returns the last offer of an expected provider, here or in another session; nil if it
// is unknown. Call with Gateway.mu held.
func (s *Session) lastOffer(x *expectation) *offer { return cmp.Or(x.last, s.g.lastOffers[x.key]) }

// awayRequired returns the required providers that are not bound. Call with Gateway.mu held.
func (s *Session) awayRequired() (list []absence) {
	for _, x := range s.expects {
		if x.Required && s.isAway(x) {
			list = append(list, absence{x.expectedProvider, s.lastOffer(x)})
		}
	}
	return list
}

// holds reports whether a call waits for the provider: it may have a rule about the call, or the
// tool is its own.
func (a *absence) holds(c *toolCall, hasTool bool, g *Gateway) bool {
	return a.offer == nil || len(a.offer.rules) == 0 ||
		slices.ContainsFunc(a.offer.rules, func(r *rule) bool { return r.match(c, g) }) ||
		!hasTool && slices.ContainsFunc(a.offer.tools, func(t *tool) bool {
			return t.Name == c.tool
		})
}

// holder returns the provider that a call must wait for, nil if it need not wait. matched are the
// rules of the routes r that match the call. A call that one of them denies need not wait.
func (s *Session) holder(
	r *routes, matched []*rule, tool string, args protocol.Raw,
) *expectedProvider {
	if len(r.required) == 0 ||
		slices.ContainsFunc(matched, func(r *rule) bool {
			return r.Action == protocol.ActionDeny
		}) {
		return nil
	}
	c, hasTool := s.newToolCall(r, tool, args), r.find(tool) != nil
	for i := range r.required {
		if r.required[i].holds(c, hasTool, s.g) {
			return r.required[i].expectedProvider
		}
	}
	return nil
}

// MayHaveTool reports whether the session has a tool of a provider, or a required provider that is
// away may have it, so that a call waits for it.
func (s *Session) MayHaveTool(name string) bool {
	r := s.routes.Load()
	return r.find(name) != nil || s.holder(r, nil, name, nil) != nil
}

// errInterrupted ends the waits for required providers in an interrupted session.
var errInterrupted = errors.New("the session was interrupted")

// awaitRequired waits until no required provider that is away has a say about a call, until a time
// at most. The decision is a denial otherwise, also when ctx or the session ends.
func (s *Session) awaitRequired(
	ctx context.Context, until time.Time, tool string, args protocol.Raw, parent string,
) Decision {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	begun := time.Now()
	var noted *expectedProvider
	for {
		n := s.g.ToolChanges()
		r := s.routes.Load()
		e := s.holder(r, s.matchingRules(r, tool, args), tool, args)
		switch {
		case e == nil && noted != nil:
			s.note(adminapi.LogInfo, sourceGateway, fmt.Sprintf("%s waited %s for provider %s",
				tool, time.Since(begun).Round(time.Millisecond), noted.Name))
			return Decision{}
		case e == nil:
			return Decision{}
		case noted == nil:
			s.note(adminapi.LogInfo, sourceGateway, fmt.Sprintf(
				"%s waits for provider %s, which is required here and is not connected", tool,
				e.Name))
		}
		noted = e
		if err := s.g.toolChanges.wait(limited, n, s.stopping); err == nil {
			continue
		}
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return Decision{Deny: true, Reason: context.Cause(ctx).Error(), By: "the gateway"}
		case s.isEnding():
			return Decision{Deny: true, Reason: ErrSessionEnded.Error(), By: "the gateway"}
		}
		d := s.denyFor(e)
		gate := &rule{Rule: protocol.Rule{Action: protocol.ActionGate},
			provider: &Provider{name: e.Name}}
		s.noteGate(gate, gateCall{tool, args, begun, spans.Below(parent)}, protocol.DecisionDeny,
			d.Reason)
		return d
	}
}

// denyFor is the denial of a call because a required provider is away.
func (s *Session) denyFor(e *expectedProvider) Decision {
	why := ""
	if e.Why != nil {
		why = e.Why(s.id)
	}
	if why == "" {
		why = "it has not joined this session"
	}
	reason := fmt.Sprintf("provider %s is required here and is not connected: %s", e.Name,
		shorten(why))
	return Decision{Deny: true, By: "provider " + e.Name, Reason: stripEscapes(reason)}
}

// interruptible returns a context that an interrupt of the session ends, with errInterrupted.
func (s *Session) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, interrupt := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitCount++
	n := s.waitCount
	s.waits[n] = interrupt
	return ctx, func() {
		interrupt(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, n)
	}
}

// interruptWaits ends the waits of the host's own calls for required providers.
func (s *Session) interruptWaits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, interrupt := range s.waits {
		interrupt(errInterrupted)
	}
}

// promptHold is how long a prompt waits for providers whose tools were there a moment ago, from
// when they left or the session began.
const promptHold = 2 * time.Second

// toolsOnTheirWay returns how much longer a prompt waits for providers with known tools that left a
// moment ago, or have not joined a session that began a moment ago. name is the name of one of
// them, "" if the prompt need not wait.
func (s *Session) toolsOnTheirWay() (name string, wait time.Duration) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.isEnding() {
		return "", 0
	}
	for _, x := range s.expects {
		rest := time.Until(x.awaySince.Add(promptHold))
		if rest > 0 && s.isAway(x) && s.lastOffer(x).toolCount() > 0 {
			name, wait = x.Name, max(wait, rest)
		}
	}
	return name, wait
}

// awaitTools waits for tools that are on their way, so that the model is not told that they don't
// exist.
func (s *Session) awaitTools(ctx context.Context) {
	isNoted := false
	for {
		n := s.g.ToolChanges()
		name, wait := s.toolsOnTheirWay()
		if wait <= 0 {
			return
		}
		if !isNoted {
			s.noteHeld(name)
			isNoted = true
		}
		limited, cancel := context.WithTimeout(ctx, wait)
		_ = s.g.toolChanges.wait(limited, n, s.stopping)
		cancel()
		if ctx.Err() != nil || s.isEnding() {
			return
		}
	}
}

func (s *Session) noteHeld(name string) {
	s.note(adminapi.LogInfo, sourceGateway,
		fmt.Sprintf("a prompt waits for provider %s, whose tools were here a moment ago", name))
}

// AwaitProviders waits until the connected providers that may bind themselves to the session have
// done so, or until ctx ends. A host calls it once for a session whose agent works already, before
// it asks about the first call: the gates of a session that has only just begun are not bound yet.
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
