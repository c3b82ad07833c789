package gateway

import (
	"slices"
	"sync"
	"time"

	"tapgw/internal/protocol"
)

// slotGrace is how long the slot of a cancelled call stays taken while the
// provider does not answer.
const slotGrace = 5 * time.Second

// Scopes of a concurrency limit.
const (
	scopeInstance = "instance"
	scopeProvider = "provider"
	scopeTool     = "tool"
)

// slots limits the calls in flight in one scope; more wait in order, at most
// [protocol.MaxQueuedCalls]. Its lock is a leaf.
type slots struct {
	mu    sync.Mutex
	max   int
	used  int
	queue []*call
}

// enter takes a slot for a call or puts it into the queue; full means neither.
func (s *slots) enter(k *call) (in, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.used < s.max:
		s.used++
		return true, false
	case len(s.queue) >= protocol.MaxQueuedCalls:
		return false, true
	}
	s.queue = append(s.queue, k)
	return false, false
}

// abandon takes a call out of the queue; false if it was not there any more.
func (s *slots) abandon(k *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == k {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// leave frees a slot and returns the call that gets it, if one waits.
func (s *slots) leave() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.used--
		return nil
	}
	k := s.queue[0]
	s.queue = s.queue[1:]
	return k
}

// free frees a slot and sends the call that gets it. Call under no lock.
func (s *slots) free() {
	var stale []*call
	for k := s.leave(); k != nil; k = s.leave() {
		sent, changed := k.start()
		if sent {
			k.tool.provider.peer.Flush()
			break
		}
		if changed {
			stale = append(stale, k)
		}
		// Else it ended while it got the slot: on to the next.
	}
	for _, k := range stale {
		anew := *k
		anew.goOn()
	}
}

// start sends a call that waited for a slot. Where its tool or the rules are
// others than when it came, it is taken out instead, to be looked at anew: no
// call of the old state follows the ack of a change.
func (k *call) start() (sent, changed bool) {
	p, s := k.tool.provider, k.session
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[k.id] != k {
		return false, false
	}
	s.swap.RLock()
	defer s.swap.RUnlock()
	r := s.routes.Load()
	to := r.tools[k.tool.Name]
	if to == nil || !slices.Contains(to.tools, k.tool) || (k.asks && !r.hasRulesOf(k.asked)) {
		delete(p.pending, k.id)
		p.notifyIfIdle()
		return false, true
	}
	k.sent = true
	k.send()
	return true, false
}

// limits are the concurrency limits of a gateway by what they apply to; they
// live as long as a provider of the name is connected. Guarded by Gateway.mu.
type limits map[limitKey]*slots

type limitKey struct{ owner, provider, instance, tool string }

// of finds the slots that a tool's calls need; nil for no limit. Call with
// Gateway.mu held.
func (l limits) of(p *Provider, tool string) *slots {
	c := p.concurrency
	if most := p.policy.Concurrency; most > 0 {
		c = &protocol.Concurrency{Max: &most, Scope: scopeProvider}
	}
	if c == nil || c.Max == nil {
		return nil
	}
	key := limitKey{owner: p.owner, provider: p.name, instance: p.instance}
	switch c.Scope {
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
	s.max = *c.Max
	s.mu.Unlock()
	return s
}

// dropLimits drops the limits of a provider that has gone: its own, and those
// of its name with the last connection of it. Call with Gateway.mu held.
func (g *Gateway) dropLimits(p *Provider) {
	last := true
	for c := range g.conns {
		last = last && (c.provider == nil || c.provider.name != p.name || c.provider.owner != p.owner)
	}
	for key := range g.limits {
		if key.provider == p.name && key.owner == p.owner && (last || key.instance == p.id) {
			delete(g.limits, key)
		}
	}
}
