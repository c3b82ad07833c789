package gateway

import (
	"cmp"
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
	gateChecks        map[uuid.UUID]*gateCheck
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
	provider     *Provider
	session      *Session
	offer        *offer
	record       *record
	isUnanswered bool // it was sent shutdown.pending and has not answered
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
		gateChecks: map[uuid.UUID]*gateCheck{}, transformRequests: map[uuid.UUID]chan string{}}
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
		p.title = stripEscapes(cmp.Or(d.Title, d.URL))
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
