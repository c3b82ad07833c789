package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// Slots bound the calls that a provider works on at the same time. Further calls wait.

// slotGrace is how long a cancelled call keeps its slot when the provider does not
// answer it.
const slotGrace = 5 * time.Second

// Scopes of a concurrency limit.
const (
	scopeInstance = "instance"
	scopeProvider = "provider"
	scopeTool     = "tool"
)

// slots limits the running calls of one scope. At most [protocol.MaxQueuedCalls] more
// wait in order. Its lock is a leaf. See docs/protocol.md, "Concurrency".
type slots struct {
	mu    sync.Mutex // guards the fields below
	max   int
	used  int
	queue []*call
}

// acquire gives a call a slot, or queues it when all are used. full means that the
// queue is full too.
func (s *slots) acquire(c *call) (acquired, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.used < s.max:
		s.used++
		return true, false
	case len(s.queue) >= protocol.MaxQueuedCalls:
		return false, true
	}
	s.queue = append(s.queue, c)
	return false, false
}

// dequeue removes a call that waits for a slot, if it still does.
func (s *slots) dequeue(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(queued *call) bool { return queued == c })
}

// free frees a slot.
func (s *slots) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
}

// next takes a slot for the call that has waited longest and returns that call. It returns nil if
// no call waits or no slot is free. A hello may have lowered the limit below the slots in use: then
// a slot that gets free is not given away.
func (s *slots) next() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.used >= s.max {
		return nil
	}
	s.used++
	c := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	return c
}

// release frees a slot and sends the calls that wait for one. Calls whose tool or
// rules have changed while they waited run again from their look-up. Call under no
// lock.
func (s *slots) release() {
	var stale []*call
	s.free()
	for c := s.next(); c != nil; c = s.next() {
		sent, isStale := c.sendQueued()
		if sent {
			c.tool.provider.peer.Flush()
			continue
		}
		s.free()
		if isStale {
			stale = append(stale, c)
		} // else it ended before it got the slot
	}
	for _, c := range stale {
		c.copyToRetry().run()
	}
}

// sendQueued sends a call that waited for a slot. When the session has another tool or
// other rules than when the call was queued, it removes the call from pending instead
// and reports isStale: no call of the old state follows the ack of a change.
func (c *call) sendQueued() (sent, isStale bool) {
	p, s := c.tool.provider, c.session
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[c.id] != c {
		return false, false
	}
	s.routesMu.RLock()
	defer s.routesMu.RUnlock()
	r := s.routes.Load()
	to := r.find(c.name)
	if to == nil || !slices.Contains(to.tools, c.tool) ||
		(c.checksRules && !r.hasRulesOf(c.decidedBy)) {
		delete(p.pending, c.id)
		p.notifyIfIdle()
		return false, true
	}
	c.isSent = true
	c.send()
	return true, false
}

// keptSlot is the slot of a cancelled call that the provider did not answer yet.
type keptSlot struct {
	slots *slots
	timer *time.Timer
}

// keepSlot keeps the slot of a cancelled call until the provider answers it, at most
// for slotGrace. Call with p.mu held.
func (p *Provider) keepSlot(id uuid.UUID, s *slots) {
	p.keptSlots[id] = &keptSlot{s, time.AfterFunc(slotGrace, func() { p.releaseKeptSlot(id) })}
}

// releaseKeptSlot frees the slot of a cancelled call, if it is still kept. Call under
// no lock.
func (p *Provider) releaseKeptSlot(id uuid.UUID) {
	p.mu.Lock()
	kept := p.keptSlots[id]
	delete(p.keptSlots, id)
	p.mu.Unlock()
	if kept != nil {
		kept.timer.Stop()
		kept.slots.release()
	}
}

// limits are the concurrency limits of a gateway. They live as long as a provider of
// the name is connected. Guarded by Gateway.mu.
type limits map[limitKey]*slots

type limitKey struct{ owner, provider, instance, tool string }

// slotsFor finds the slots that calls of a tool need, or nil if the calls have no limit. The limit
// of the provider's file goes before the one of its hello. Call with Gateway.mu held.
func (l limits) slotsFor(p *Provider, tool string) *slots {
	limit := p.concurrency
	if n := p.policy.Concurrency; n > 0 {
		limit = &protocol.Concurrency{Max: &n, Scope: scopeProvider}
	}
	if limit == nil || limit.Max == nil {
		return nil
	}
	key := limitKey{owner: p.owner, provider: p.name, instance: p.instance}
	switch limit.Scope {
	case scopeProvider:
		key.instance = ""
	case scopeTool:
		key = limitKey{owner: p.owner, provider: p.name, tool: tool}
	default:
		if key.instance == "" {
			key.instance = p.id // without instances each connection is one
		}
	}
	s := l[key]
	if s == nil {
		s = &slots{}
		l[key] = s
	}
	s.mu.Lock()
	s.max = *limit.Max
	s.mu.Unlock()
	return s
}

// dropLimits removes the limits of a provider that disconnected: its own, and those of
// its name when it was the last connection of that name. Call with Gateway.mu held.
func (g *Gateway) dropLimits(p *Provider) {
	last := true
	for c := range g.conns {
		last = last && (c.provider == nil || c.provider.name != p.name ||
			c.provider.owner != p.owner)
	}
	for key := range g.limits {
		if key.provider == p.name && key.owner == p.owner && (last || key.instance == p.id) {
			delete(g.limits, key)
		}
	}
}
