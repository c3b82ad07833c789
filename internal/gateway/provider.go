package gateway

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Provider is a connection as sessions see it from one successful hello to the next: its name, its
// bindings, its pending calls and its gate checks. Other packages see it only as
// [adminapi.Provider].
type Provider struct {
	// Fixed at creation.
	id          string
	name        string       // its normal form, see [protocol.NormalName]
	spelling    string       // as hello wrote the name
	owner       string       // of the name, see identity
	instance    string       // "" for none
	title       string       // metadata.title, else metadata.url; tells instances apart
	metadata    protocol.Raw // nil for none
	trust       Trust
	gateway     string // that it is connected to, as PassSpec
	concurrency *protocol.Concurrency
	policy      *ToolPolicy
	subscribed  []string
	mayAnswer   bool // and so may hear of questions
	peer        Peer
	connectedAt time.Time

	lastActive atomic.Int64 // when it last sent a message, Unix nanoseconds
	latencies  *latencies   // also of the calls before the last hello or reconnect

	// Guarded by Gateway.mu.
	all      bool // bound to all sessions
	base     *offer
	bindings []*binding
	records  []*record

	mu                sync.Mutex // guards the fields that follow; the maps are nil for a user hook
	isGone            bool
	idle              chan struct{} // see idleChannel
	alarm             *time.Timer   // see setAlarm; nil when it is not set
	alarmAt           time.Time
	pending           map[uuid.UUID]*call
	ended             tombstones
	keptSlots         map[uuid.UUID]*keptSlot // of cancelled calls without an answer
	gateChecks        map[uuid.UUID]*gateCheck
	transformRequests map[uuid.UUID]chan string // each has room for one answer
}

// maxTitle bounds Provider.title in bytes: the definition of each tool has the titles of all
// instances.
const maxTitle = 200

// tool is a tool of a provider in sessions. It is immutable.
type tool struct {
	protocol.Tool        // its Name has the prefix of the provider's file
	called        string // its name at the provider
	described     string // the description for a host
	provider      *Provider
	timeout       time.Duration
	check         bool   // arguments are checked against the schema
	slots         *slots // nil: no limit
	// in all sessions; nil where the provider has instances, which share routes
	alone *route
}

// take makes a copy of a tool that is the provider's.
func (p *Provider) take(t tool) *tool {
	t.provider, t.alone = p, nil
	if p.instance == "" {
		t.alone = &route{name: t.Name, provider: p, tools: []*tool{&t}, timeout: t.timeout}
		t.alone.define()
	}
	return &t
}

// binding joins a provider and a session. Guarded by Gateway.mu.
type binding struct {
	provider     *Provider
	session      *Session
	offer        *offer
	record       *record
	told         []string // ids of the open questions that the provider has heard of
	isUnanswered bool     // it was sent shutdown.pending and has not answered
}

// record holds the state of a provider's binding in a session that the next binding takes over.
type record struct {
	session      string // its id
	revision     uint64 // of the last update
	startupGiven bool   // its startup context was added to a prompt
}

// recordIn returns the provider's record in a session. Call with Gateway.mu held.
func (p *Provider) recordIn(session string) *record {
	for _, r := range p.records {
		if r.session == session {
			return r
		}
	}
	r := &record{session: session}
	p.records = append(slices.Clip(p.records), r)
	return r
}

// forget removes the provider's record in a session. Call with Gateway.mu held.
func (p *Provider) forget(session string) {
	var others []*record // the list is that of former providers, too
	for _, r := range p.records {
		if r.session != session {
			others = append(others, r)
		}
	}
	p.records = others
}

// newProvider makes the provider that a hello describes. It has the id of the memory that it
// restores, or else the id of the connection's previous provider. Call with Gateway.mu held.
func newProvider(c *Conn, m *protocol.Hello, restore *reconnectMemory) *Provider {
	p := &Provider{
		name: m.Name, owner: c.identity.owner, instance: m.Instance, trust: c.identity.Trust,
		gateway:     c.identity.Gateway,
		concurrency: m.Concurrency, policy: &c.identity.Tools, subscribed: m.Subscribe,
		mayAnswer: c.identity.may(mayAnswer), peer: c.peer, connectedAt: time.Now(),
		pending: map[uuid.UUID]*call{}, keptSlots: map[uuid.UUID]*keptSlot{},
		gateChecks: map[uuid.UUID]*gateCheck{}, transformRequests: map[uuid.UUID]chan string{},
	}
	if m.Metadata.Kind() == '{' {
		p.metadata = slices.Clone(m.Metadata)
		p.title = titleOf(p.metadata)
	}
	p.lastActive.Store(time.Now().UnixNano())
	switch {
	case restore != nil:
		p.id, p.records, p.latencies = restore.provider.id, restore.provider.records,
			restore.provider.latencies
	case c.provider != nil:
		p.id, p.records, p.latencies = c.provider.id, c.provider.records, c.provider.latencies
	default:
		p.id, p.records, p.latencies = "p-"+newSecret("")[:8], nil, &latencies{}
	}
	return p
}

// titleOf returns the text by which people and models tell instances apart: metadata's title or
// url.
func titleOf(metadata protocol.Raw) string {
	var title, url string
	_ = protocol.Object(metadata, func(name string, v protocol.Raw) error {
		switch name {
		case "title":
			title, _ = protocol.Text(v)
		case "url":
			url, _ = protocol.Text(v)
		}
		return nil
	})
	return cut(stripEscapes(cmp.Or(title, url)), maxTitle)
}

// replace takes over from the connection's provider before, which has lost its calls and
// bindings. Call with Gateway.mu held.
func (p *Provider) replace(old *Provider) {
	if old == nil {
		return
	}
	p.connectedAt = old.connectedAt
	old.mu.Lock()
	defer old.mu.Unlock()
	old.isGone = true
	// Late answers to the old provider's calls come on the same connection.
	p.ended, old.ended = old.ended, tombstones{}
	for id, kept := range old.keptSlots {
		kept.timer.Stop()
		p.keepSlot(id, kept.slots)
	}
	clear(old.keptSlots)
}

// onlySession is the id of the provider's session. It is "" unless the provider is bound in exactly
// one. Call with Gateway.mu held.
func (p *Provider) onlySession() string {
	if !p.all && len(p.bindings) == 1 {
		return p.bindings[0].session.id
	}
	return ""
}

// view is the provider in the admin API. Call with Gateway.mu held.
func (p *Provider) view(c *Conn) adminapi.Provider {
	p.mu.Lock()
	inFlight := len(p.pending)
	p.mu.Unlock()
	v := adminapi.Provider{
		ID: p.id, Name: p.name, Instance: p.instance, Trust: string(p.trust),
		State:   state(c.state.Load()).String(),
		Session: p.onlySession(), Tools: p.base.toolCount(), InFlight: inFlight,
		ConnectedAt: p.connectedAt.UTC(), Own: c.identity.Own, Gateway: p.gateway,
	}
	if p.all {
		v.Session = protocol.AllSessions
	}
	return v
}
