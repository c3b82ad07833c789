package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Provider is one connection's part in sessions: who it is, what it is bound
// to, and the calls that it has to answer.
type Provider struct {
	// Fixed at creation.
	id          string
	name        string // as [protocol.NormalName] shows it
	spelling    string // as its hello had it
	owner       string // of the name, see identity
	instance    string
	title       string       // of metadata: title or url, to tell instances apart
	metadata    protocol.Raw // nil when it gave none
	trust       Trust
	concurrency *protocol.Concurrency
	policy      *ToolPolicy
	subscribed  []string
	peer        Peer
	connectedAt time.Time

	lastActive atomic.Int64 // when it last sent something, Unix nanoseconds
	latencies  *latencies   // of its calls, and of those of the connection or identity that it succeeds

	// Guarded by Gateway.mu.
	all      bool // bound to all sessions
	base     *offer
	bindings []*binding
	records  map[string]*record // by session id

	mu                sync.Mutex
	isGone            bool
	idle              chan struct{} // closed when no call is left; nil: nobody waits
	alarm             *time.Timer   // for the deadlines of pending calls; nil: none is set
	alarmAt           time.Time
	pending           map[uuid.UUID]*call
	ended             tombstones
	keptSlots         map[uuid.UUID]*keptSlot // cancelled calls that keep their slot
	gates             map[uuid.UUID]*gateWait
	transformRequests map[uuid.UUID]chan string // transform.requests in flight; each holds one
}

// maxTitle bounds, in bytes, what tells instances apart: it is in the definition
// of each of their tools.
const maxTitle = 200

// tool is a tool of a provider. It is fixed once made.
type tool struct {
	protocol.Tool
	called   string // its name at the provider
	provider *Provider
	timeout  time.Duration
	check    bool
	slots    *slots // nil: no limit
}

// binding joins a provider and a session. Guarded by Gateway.mu.
type binding struct {
	provider *Provider
	session  *Session
	offer    *offer
	record   *record
	pending  bool // told that the session ends, not answered yet
}

// past is what a session and a provider have behind them. It belongs to the
// identity, so that a binding anew begins nothing again.
type record struct {
	revision     uint64
	startupGiven bool // its startup context was given
}

// recordIn is the provider's past in a session. Call with Gateway.mu held.
func (p *Provider) recordIn(session string) *record {
	if p.records[session] == nil {
		p.records[session] = &record{}
	}
	return p.records[session]
}

// newProvider makes the provider that a hello describes. Call with Gateway.mu held.
func newProvider(c *Conn, m *protocol.Hello, restore *memory) *Provider {
	p := &Provider{name: m.Name, owner: c.identity.owner, instance: m.Instance, trust: c.identity.trust, concurrency: m.Concurrency, policy: &c.identity.policy, subscribed: m.Subscribe,
		peer: c.peer, connectedAt: time.Now(), pending: map[uuid.UUID]*call{}, keptSlots: map[uuid.UUID]*keptSlot{},
		gates: map[uuid.UUID]*gateWait{}, transformRequests: map[uuid.UUID]chan string{}}
	if m.Metadata.Kind() == '{' {
		p.metadata = slices.Clone(m.Metadata)
		var d struct{ Title, URL string }
		_ = protocol.Object(p.metadata, func(name string, v protocol.Raw) error {
			switch name {
			case "title":
				d.Title, _ = protocol.Text(v)
			case "url":
				d.URL, _ = protocol.Text(v)
			}
			return nil
		})
		p.title = clean(cmp.Or(d.Title, d.URL))
		if len(p.title) > maxTitle {
			p.title = strings.ToValidUTF8(p.title[:maxTitle], "") + "…"
		}
	}
	p.lastActive.Store(time.Now().UnixNano())
	switch {
	case restore != nil:
		p.id, p.records, p.latencies = restore.provider.id, restore.provider.records, restore.provider.latencies
	case c.provider != nil:
		p.id, p.records, p.latencies = c.provider.id, c.provider.records, c.provider.latencies
	default:
		p.id, p.records, p.latencies = "p-"+newSecret("")[:8], map[string]*record{}, &latencies{}
	}
	return p
}

// succeed takes the place of what the connection was before, which has lost its
// calls and bindings. Call with Gateway.mu held.
func (p *Provider) replace(old *Provider) {
	if old == nil {
		return
	}
	p.connectedAt = old.connectedAt
	old.mu.Lock()
	defer old.mu.Unlock()
	old.isGone = true
	// It is the connection that remembers how its calls ended.
	p.ended, old.ended = old.ended, tombstones{}
	for id, l := range old.keptSlots {
		l.timer.Stop()
		p.keepSlot(id, l.slots)
	}
	clear(old.keptSlots)
}

// own makes tools of definitions, of those that sessions may have.
func (p *Provider) newTools(defs []protocol.Tool) []*tool {
	tools := make([]*tool, 0, len(defs))
	for _, d := range defs {
		if !p.policy.allows(d.Name) {
			continue
		}
		// The definition shares the memory of the message that it came in.
		d.Parameters = slices.Clone(d.Parameters)
		t := &tool{Tool: d, called: d.Name, provider: p, timeout: protocol.DefaultToolTimeout, check: d.Validate == nil || *d.Validate}
		t.Name = p.policy.Prefix + d.Name
		if d.Timeout != nil {
			t.timeout = time.Duration(*d.Timeout) * time.Millisecond
		}
		if most := p.policy.Timeout; most > 0 {
			t.timeout = min(t.timeout, most)
		}
		tools = append(tools, t)
	}
	return tools
}

// merge adds or replaces tools by name and drops others.
func mergeTools(tools, changed []*tool, remove []string) []*tool {
	var list []*tool
	for _, t := range tools {
		if !slices.Contains(remove, t.Name) && !slices.ContainsFunc(changed, func(u *tool) bool { return u.Name == t.Name }) {
			list = append(list, t)
		}
	}
	return append(list, changed...)
}

// onlySession is the id of the session that the provider is bound to, if that
// is one. Call with Gateway.mu held.
func (p *Provider) onlySession() string {
	if !p.all && len(p.bindings) == 1 {
		return p.bindings[0].session.id
	}
	return ""
}

// view is the provider as people see it. Call with Gateway.mu held.
func (p *Provider) view(c *Conn) adminapi.Provider {
	p.mu.Lock()
	inFlight := len(p.pending)
	p.mu.Unlock()
	v := adminapi.Provider{ID: p.id, Name: p.name, Instance: p.instance, Trust: string(p.trust), State: state(c.state.Load()).String(),
		Session: p.onlySession(), Tools: p.base.count(), InFlight: inFlight, ConnectedAt: p.connectedAt.UTC()}
	if p.all {
		v.Session = protocol.AllSessions
	}
	return v
}

// take removes a call from pending, leaving its tombstone if the provider has
// heard of it; nil if it ended before. Call with p.mu held.
func (p *Provider) removePending(id uuid.UUID) *call {
	k := p.pending[id]
	if k == nil {
		return nil
	}
	delete(p.pending, id)
	p.notifyIfIdle()
	k.session.g.touch()
	if k.sent {
		p.ended.add(id)
	}
	return k
}

// drop takes a call out of pending that the provider is told to cancel. Call with
// p.mu held.
func (p *Provider) cancelPending(k *call, reason string) {
	p.removePending(k.id)
	if !k.sent {
		k.tool.slots.abandon(k)
		return
	}
	p.peer.Send(&protocol.ToolCancel{ID: k.id.String(), SessionID: k.session.id, Reason: reason})
	if k.tool.slots != nil {
		k.lingers = true
		p.keepSlot(k.id, k.tool.slots)
	}
}

// linger keeps the slot of a cancelled call until it is answered, for a while.
// Call with p.mu held.
func (p *Provider) keepSlot(id uuid.UUID, s *slots) {
	p.keptSlots[id] = &keptSlot{s, time.AfterFunc(slotGrace, func() { p.releaseKeptSlot(id) })}
}

// cancel takes out the calls that match, tells the provider to drop them, and
// returns them for the caller to end.
func (p *Provider) cancelCalls(match func(*call) bool, reason string) []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ended []*call
	for _, k := range p.pending {
		if match(k) {
			ended = append(ended, k)
		}
	}
	// In the order in which they were called: ids rise.
	slices.SortFunc(ended, func(a, b *call) int { return bytes.Compare(a.id[:], b.id[:]) })
	for _, k := range ended {
		p.cancelPending(k, reason)
	}
	return ended
}

// cancelOne is cancel for one call.
func (p *Provider) cancelCall(k *call, reason string) []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[k.id] != k {
		return nil
	}
	p.cancelPending(k, reason)
	return []*call{k}
}

// leave marks the provider as isGone, takes out all its calls, fails its gates and
// frees its slots.
func (p *Provider) disconnect() []*call {
	p.mu.Lock()
	p.isGone = true
	if p.alarm != nil {
		p.alarm.Stop()
		p.alarm = nil
	}
	ended := make([]*call, 0, len(p.pending))
	for id, k := range p.pending {
		if !k.sent {
			k.tool.slots.abandon(k)
		}
		ended = append(ended, p.removePending(id))
	}
	p.endRequests()
	var slots []uuid.UUID
	for id := range p.keptSlots {
		slots = append(slots, id)
	}
	p.mu.Unlock()
	for _, id := range slots {
		p.releaseKeptSlot(id)
	}
	return ended
}

// endRequests ends what waits for gate and transform results: gates as their
// rules say, sections as they are. Call with p.mu held.
func (p *Provider) endRequests() {
	p.failGates()
	p.endTransformRequests()
}

// lingering is the slot of a cancelled call that the provider did not answer yet.
type keptSlot struct {
	slots *slots
	timer *time.Timer
}

// releaseKeptSlot frees the slot of a cancelled call. Call under no lock.
func (p *Provider) releaseKeptSlot(id uuid.UUID) {
	p.mu.Lock()
	l := p.keptSlots[id]
	delete(p.keptSlots, id)
	p.mu.Unlock()
	if l != nil {
		l.timer.Stop()
		l.slots.free()
	}
}

// result ends the call that a provider answers.
func (c *Conn) toolResult(m *protocol.ToolResult) {
	id, known := c.pendingCall(m.ID)
	if known == nil {
		if !c.isLateAnswer(m.ID) {
			c.reportError(&protocol.Error{Code: protocol.CodeUnknownCallID, Message: fmt.Sprintf("tool.result.id: no call has the id %q", m.ID), ReplyTo: protocol.TypeToolResult})
			c.failFast("", protocol.CodeInternal, fmt.Sprintf("the provider answered a call that nobody made (%q)", m.ID))
		}
		return
	}
	p := c.provider
	p.mu.Lock()
	k := p.removePending(id)
	p.mu.Unlock()
	if k == nil { // its timeout was faster
		c.g.stats.Ignored.Add(1)
		return
	}
	if m.File != nil && !m.Failed() {
		c.readResult(k, *m.File)
		return
	}
	k.finish(outcome(m))
}

// outcome is what a session is told of a result. Both data and error is an error.
func outcome(m *protocol.ToolResult) Outcome {
	if !m.Failed() {
		return Outcome{Data: m.Data}
	}
	o := Outcome{Error: m.Error, ErrorCode: m.ErrorCode.ResultCode(), Retryable: m.Retryable}
	if o.Error == "" {
		o.Error = string(m.ErrorCode)
	}
	return o
}

// find looks for the call in flight with an id. The provider is the reader's
// own here: only a hello, which the reader handles, changes it.
func (c *Conn) pendingCall(id string) (uuid.UUID, *call) {
	p := c.provider
	key, err := uuid.Parse(id)
	if p == nil || err != nil {
		return key, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return key, p.pending[key]
}

// late reports whether an id is that of a call that ended: what comes for it is
// ignored in silence.
func (c *Conn) isLateAnswer(id string) bool {
	p := c.provider
	key, err := uuid.Parse(id)
	if p == nil || err != nil {
		return false
	}
	p.mu.Lock()
	ended := p.ended.has(key)
	p.mu.Unlock()
	if ended {
		p.releaseKeptSlot(key)
		c.g.stats.Ignored.Add(1)
	}
	return ended
}

// failFast applies the fail-fast rule (core, "Tool call terminal semantics" 4)
// to input that may have been the answer to a call: the call that it names
// fails, or the only one in flight; with several the provider is disconnected.
func (c *Conn) failFast(id string, code protocol.Code, message string) {
	p := c.provider
	if p == nil {
		return
	}
	key, err := uuid.Parse(id)
	p.mu.Lock()
	if id != "" && err == nil && p.ended.has(key) {
		p.mu.Unlock()
		return
	}
	var k *call
	if id != "" && err == nil {
		k = p.removePending(key)
	}
	several := false
	if k == nil {
		var sent []uuid.UUID // what waits for a slot nobody can have answered
		for id, k := range p.pending {
			if k.sent {
				sent = append(sent, id)
			}
		}
		if several = len(sent) > 1; len(sent) == 1 {
			k = p.removePending(sent[0])
		}
	}
	p.mu.Unlock()
	switch {
	case k != nil:
		k.finish(Outcome{Error: "protocol error: " + message, ErrorCode: code})
	case several:
		c.close(protocol.CloseFailedFast, "cannot tell which call was answered")
	}
}

func (c *Conn) toolProgress(m *protocol.ToolProgress) {
	_, k := c.pendingCall(m.ID)
	if k == nil {
		c.g.stats.Ignored.Add(1)
		return
	}
	k.session.show(LogInfo, c.provider.name, k.tool.Name+": "+m.Message)
}

// tombstones remembers the last calls that ended, so that late answers to them
// are told from answers to calls that nobody made.
type tombstones struct {
	ids  map[uuid.UUID]struct{}
	ring []uuid.UUID
	next int
}

func (t *tombstones) add(id uuid.UUID) {
	if t.ids == nil {
		t.ids = map[uuid.UUID]struct{}{}
	}
	if len(t.ring) < protocol.MaxFinishedCalls {
		t.ring = append(t.ring, id)
	} else {
		delete(t.ids, t.ring[t.next])
		t.ring[t.next] = id
		t.next = (t.next + 1) % len(t.ring)
	}
	t.ids[id] = struct{}{}
}

func (t *tombstones) has(id uuid.UUID) bool {
	_, ok := t.ids[id]
	return ok
}
