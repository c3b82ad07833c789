package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// How many entries of each kind Diagnostics has at most.
const (
	callsNoted     = 200
	errorsNoted    = 100
	gatesNoted     = 100
	latenciesNoted = 256 // of each provider
)

// diag is what happened lately. Noting a call costs no allocation: a lock, and a
// place in a ring. Its lock is a leaf; it guards the latencies of providers too.
type diag struct {
	mu     sync.Mutex
	calls  ring[callNote]
	errors ring[errorNote]
	gates  ring[gateNote]
}

func newDiag() diag {
	return diag{calls: newRing[callNote](callsNoted), errors: newRing[errorNote](errorsNoted), gates: newRing[gateNote](gatesNoted)}
}

// ring keeps the newest of what is added.
type ring[T any] struct {
	items []T
	added uint64
}

func newRing[T any](most int) ring[T] { return ring[T]{items: make([]T, most)} }

// next is where the next one goes.
func (r *ring[T]) next() *T {
	at := &r.items[r.added%uint64(len(r.items))]
	r.added++
	return at
}

// newest lists what is kept, newest first.
func (r *ring[T]) newest() []T {
	n := min(r.added, uint64(len(r.items)))
	list := make([]T, n)
	for i := range list {
		list[i] = r.items[(r.added-1-uint64(i))%uint64(len(r.items))]
	}
	return list
}

type callNote struct {
	id                      uuid.UUID // zero where no provider had it
	session, provider, tool string
	begun                   int64 // Unix nanoseconds
	took                    time.Duration
	code                    protocol.Code
}

type errorNote struct {
	at                               time.Time
	session, provider, code, message string
}

type gateNote struct {
	at                                        time.Time
	session, provider, tool, decision, reason string
	took                                      time.Duration
}

// latencies are how long a provider's last calls took. Guarded by diag.mu.
type latencies struct {
	last          [latenciesNoted]uint32 // microseconds
	calls, errors uint64
}

// noteCall notes how a call ended. c.tool is nil when the call reached no provider.
func (d *diag) noteCall(c *call, o *Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.calls.next()
	*n = callNote{id: c.id, session: c.session.id, tool: c.name, begun: c.begun.UnixNano(), took: o.Duration, code: o.ErrorCode}
	if c.tool == nil {
		return
	}
	n.provider = c.tool.provider.name
	l := c.tool.provider.latencies
	l.last[l.calls%latenciesNoted] = uint32(min(o.Duration.Microseconds(), 1<<32-1))
	l.calls++
	if o.Failed() {
		l.errors++
	}
}

func (d *diag) noteError(session, provider, code, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.errors.next() = errorNote{time.Now(), session, provider, code, shorten(message)}
}

// decided notes what came of a rule that was asked, or that denied by itself.
func (s *Session) noteGate(r *rule, tool, decision, reason string, begun time.Time) {
	now := time.Now()
	d := &s.g.diag
	d.mu.Lock()
	*d.gates.next() = gateNote{at: now, session: s.id, provider: r.provider.name, tool: tool, decision: decision, reason: shorten(reason), took: now.Sub(begun)}
	d.mu.Unlock()
	if decision == protocol.DecisionDeny {
		s.noteDenial(r.owner(), tool, reason)
	}
}

// denied says in the timeline who denied a call, and why.
func (s *Session) noteDenial(who, tool, reason string) {
	s.note(LogWarning, sourceGateway, fmt.Sprintf("%s denied %s: %s", who, tool, reason))
}

// owner is whose the rule is, for people.
func (r *rule) owner() string {
	if r.hook != nil {
		return "hook " + r.hook.Name
	}
	return "provider " + r.provider.name
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Diagnostics returns what happened lately.
func (g *Gateway) Diagnostics() adminapi.Diagnostics {
	view := adminapi.Diagnostics{Calls: []adminapi.CallNote{}, Errors: []adminapi.ErrorNote{}, Gates: []adminapi.GateNote{}, Providers: []adminapi.ProviderLoad{}, Pushes: []adminapi.PushBudget{}}
	took := map[string]*latencies{}
	g.mu.Lock()
	for c := range g.conns {
		if c.provider != nil {
			took[c.provider.id] = c.provider.latencies
		}
	}
	sessions := slices.Clone(g.order)
	g.mu.Unlock()
	for _, p := range g.Providers() {
		if l := took[p.ID]; l != nil {
			load := adminapi.ProviderLoad{ID: p.ID, Name: p.Name, Instance: p.Instance, InFlight: p.InFlight}
			g.diag.load(&load, l)
			view.Providers = append(view.Providers, load)
		}
	}
	for _, s := range sessions {
		view.Pushes = append(view.Pushes, s.pushBudgets()...)
	}
	d := &g.diag
	d.mu.Lock()
	calls, errors, gates := d.calls.newest(), d.errors.newest(), d.gates.newest()
	d.mu.Unlock()
	for _, n := range calls {
		v := adminapi.CallNote{Session: n.session, Provider: n.provider, Tool: n.tool, StartedAt: time.Unix(0, n.begun).UTC(), DurationMs: milliseconds(n.took), Outcome: adminapi.OutcomeOK, ErrorCode: string(n.code)}
		if n.code != "" {
			v.Outcome = adminapi.OutcomeFailed
		}
		if n.id != uuid.Nil {
			v.ID = n.id.String()
		}
		view.Calls = append(view.Calls, v)
	}
	for _, n := range errors {
		view.Errors = append(view.Errors, adminapi.ErrorNote{At: n.at.UTC(), Session: n.session, Provider: n.provider, Code: n.code, Message: n.message})
	}
	for _, n := range gates {
		view.Gates = append(view.Gates, adminapi.GateNote{
			At: n.at.UTC(), Session: n.session, Provider: n.provider, Tool: n.tool,
			Decision: n.decision, Reason: n.reason, DurationMs: milliseconds(n.took),
		})
	}
	return view
}

// load reads a provider's counters.
func (d *diag) load(v *adminapi.ProviderLoad, l *latencies) {
	d.mu.Lock()
	v.Calls, v.Errors = l.calls, l.errors
	last := slices.Clone(l.last[:min(l.calls, latenciesNoted)])
	d.mu.Unlock()
	if len(last) == 0 {
		return
	}
	slices.Sort(last)
	at := func(percent int) float64 { return float64(last[(len(last)-1)*percent/100]) / 1000 }
	v.P50Ms, v.P99Ms = at(50), at(99)
}

// pushBudgets lists the budgets of those who pushed to the session, by name.
func (s *Session) pushBudgets() []adminapi.PushBudget {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []adminapi.PushBudget
	for _, p := range s.pushers {
		used := protocol.PushRate - int(p.limit.Tokens())
		list = append(list, adminapi.PushBudget{Provider: p.name, Session: s.id, Used: min(max(used, 0), protocol.PushRate), Limit: protocol.PushRate, Dropped: p.dropped})
	}
	slices.SortFunc(list, func(a, b adminapi.PushBudget) int { return cmp.Compare(a.Provider, b.Provider) })
	return list
}
