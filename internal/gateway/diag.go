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
	maxCallNotes  = 200
	maxErrorNotes = 100
	maxGateNotes  = 100
	maxLatencies  = 256 // of each provider
)

// diag keeps the newest calls, errors and gate decisions for Diagnostics. Noting a call
// allocates nothing. Its lock is a leaf, and guards the latencies of providers too.
type diag struct {
	mu     sync.Mutex // guards the fields below
	calls  ring[callNote]
	errors ring[adminapi.ErrorNote]
	gates  ring[adminapi.GateNote]
}

func newDiag() diag {
	return diag{
		calls: newRing[callNote](maxCallNotes), errors: newRing[adminapi.ErrorNote](maxErrorNotes),
		gates: newRing[adminapi.GateNote](maxGateNotes),
	}
}

// appendNewest appends an item to a list that keeps most of them, the newest.
func appendNewest[T any](list []T, item T, most int) []T {
	return append(slices.Delete(list, 0, max(0, len(list)+1-most)), item)
}

// ring keeps the newest items that were added.
type ring[T any] struct {
	items []T
	added uint64
}

func newRing[T any](size int) ring[T] { return ring[T]{items: make([]T, size)} }

// next returns the place of a new item.
func (r *ring[T]) next() *T {
	item := &r.items[r.added%uint64(len(r.items))]
	r.added++
	return item
}

// newest lists the items, newest first.
func (r *ring[T]) newest() []T {
	n := min(r.added, uint64(len(r.items)))
	list := make([]T, n)
	for i := range list {
		list[i] = r.items[(r.added-1-uint64(i))%uint64(len(r.items))]
	}
	return list
}

type callNote struct {
	id                      uuid.UUID // zero when no provider had the call
	session, provider, tool string
	begun                   int64 // Unix nanoseconds
	duration                time.Duration
	code                    protocol.Code
}

// latencies are the durations of a provider's last calls, and counts of all. Guarded by
// diag.mu.
type latencies struct {
	last          []uint32 // a ring of maxLatencies, in microseconds; nil before the first call
	calls, errors uint64
}

// noteCall notes how a call ended. c.tool is nil when the call reached no provider.
func (d *diag) noteCall(c *call, o *Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.calls.next()
	*n = callNote{
		id: c.id, session: c.session.id, tool: c.name, begun: c.begun.UnixNano(),
		duration: o.Duration, code: o.ErrorCode,
	}
	if c.tool == nil {
		return
	}
	n.provider = c.tool.provider.name
	l := c.tool.provider.latencies
	if l.last == nil {
		l.last = make([]uint32, maxLatencies)
	}
	l.last[l.calls%maxLatencies] = uint32(min(o.Duration.Microseconds(), 1<<32-1))
	l.calls++
	if o.Failed() {
		l.errors++
	}
}

func (d *diag) noteError(session, provider, code, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.errors.next() = adminapi.ErrorNote{At: time.Now().UTC(), Session: session,
		Provider: provider, Code: code, Message: shorten(message)}
}

// noteGate notes the decision of a gate, a user hook or a static denial. A denial is also a
// warning in the timeline.
func (s *Session) noteGate(r *rule, c gateCall, decision, reason string) {
	now := time.Now()
	d := &s.g.diag
	d.mu.Lock()
	*d.gates.next() = adminapi.GateNote{
		At: now.UTC(), Session: s.id, Provider: r.provider.name, Tool: c.tool,
		Args: shorten(string(c.args)),
		Rule: r.view(), Decision: decision, Reason: shorten(reason),
		DurationMs: milliseconds(now.Sub(c.begun)),
	}
	d.mu.Unlock()
	if s.g.o.Recorder != nil {
		s.recordGate(r, c, decision, reason, now.Sub(c.begun))
	}
	if decision == protocol.DecisionDeny {
		s.noteDenial(r.owner(), c.tool, reason)
	}
}

// noteDenial adds a warning to the timeline that a call was denied, by whom and why.
func (s *Session) noteDenial(by, tool, reason string) {
	s.note(adminapi.LogWarning, sourceGateway, fmt.Sprintf("%s denied %s: %s", by, tool, reason))
}

// owner names the user hook or provider that the rule is of, for people.
func (r *rule) owner() string {
	if r.hook != nil {
		return "hook " + r.hook.Name
	}
	return "provider " + r.provider.name
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Diagnostics lists the last calls, errors and gate decisions since the gateway's start,
// newest first, with the load of the connected providers and the push budgets of all
// sessions. It implements GET /diagnostics of docs/admin-api.md.
func (g *Gateway) Diagnostics() adminapi.Diagnostics {
	view := adminapi.Diagnostics{
		Calls: []adminapi.CallNote{}, Providers: g.providerLoads(), Pushes: []adminapi.PushBudget{},
	}
	for _, s := range g.allSessions() {
		view.Pushes = append(view.Pushes, s.pushBudgets()...)
	}
	d := &g.diag
	d.mu.Lock()
	calls := d.calls.newest()
	view.Errors, view.Gates = d.errors.newest(), d.gates.newest()
	d.mu.Unlock()
	for _, n := range calls {
		view.Calls = append(view.Calls, n.view())
	}
	return view
}

func (n *callNote) view() adminapi.CallNote {
	v := adminapi.CallNote{
		Session: n.session, Provider: n.provider, Tool: n.tool,
		StartedAt:  time.Unix(0, n.begun).UTC(),
		DurationMs: milliseconds(n.duration), Outcome: adminapi.OutcomeOK,
		ErrorCode: string(n.code),
	}
	if n.code != "" {
		v.Outcome = adminapi.OutcomeFailed
	}
	if n.id != uuid.Nil {
		v.ID = n.id.String()
	}
	return v
}

// providerLoads lists the calls and latencies of the connected providers.
func (g *Gateway) providerLoads() []adminapi.ProviderLoad {
	g.mu.Lock()
	defer g.mu.Unlock()
	loads := []adminapi.ProviderLoad{}
	for _, c := range g.connsWhere(isAnyConn) {
		v := c.provider.view(c)
		load := adminapi.ProviderLoad{ID: v.ID, Name: v.Name, Instance: v.Instance,
			InFlight: v.InFlight}
		g.diag.readLatencies(&load, c.provider.latencies)
		loads = append(loads, load)
	}
	return loads
}

// readLatencies sets the counts and the percentiles of v.
func (d *diag) readLatencies(v *adminapi.ProviderLoad, l *latencies) {
	d.mu.Lock()
	v.Calls, v.Errors = l.calls, l.errors
	last := slices.Clone(l.last[:min(l.calls, maxLatencies)])
	d.mu.Unlock()
	if len(last) == 0 {
		return
	}
	slices.Sort(last)
	percentile := func(percent int) float64 {
		return float64(last[(len(last)-1)*percent/100]) / 1000
	}
	v.P50Ms, v.P99Ms = percentile(50), percentile(99)
}

// pushBudgets lists the budgets of the session's pushers, by name.
func (s *Session) pushBudgets() []adminapi.PushBudget {
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	var list []adminapi.PushBudget
	for _, p := range s.prompts.pushers {
		used := protocol.PushRate - int(p.limit.Tokens())
		list = append(list, adminapi.PushBudget{
			Provider: p.name, Session: s.id, Used: min(max(used, 0), protocol.PushRate),
			Limit: protocol.PushRate, Dropped: p.dropped,
		})
	}
	slices.SortFunc(list, func(a, b adminapi.PushBudget) int {
		return cmp.Compare(a.Provider, b.Provider)
	})
	return list
}
