package cluster

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// This file knows the other gateways: which of them the registry has, which sessions and providers
// they share, and which have become doubtful.

// Times of the registry. A gateway that is gone is doubtful before it leaves the list, and leaves
// it within 15 s.
const (
	beatEvery     = 3 * time.Second
	doubtfulAfter = 2*beatEvery + 500*time.Millisecond
	goneAfter     = 12 * time.Second
)

// Beat is a gateway's entry in the registry. Other gateways show it to people but do not rely on
// it.
type Beat struct {
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Lists     uint64    `json:"lists"`          // changes whenever the shared lists change
	Keeps     bool      `json:"keeps,omitzero"` // it has streams that last
}

// member is a gateway of the registry.
type member struct {
	beat   Beat
	heard  time.Time // by this gateway's clock
	shared Shared    // the lists it shares, as of its last answer
	lists  uint64    // of the beat that this is of
	noted  string    // its state, as who watches was last told
}

// heard notes that the registry has news of a gateway.
func (c *Cluster) heard(name string, b Beat) {
	if name == c.name {
		return
	}
	c.mu.Lock()
	m := c.members[name]
	isKnown := m != nil
	if !isKnown && len(c.members) < maxMembers {
		m = &member{}
		c.members[name] = m
	}
	tr := c.trunks[name]
	isOld := false // whether the known lists are out of date
	if m != nil {
		m.beat, m.heard = b, time.Now()
		isOld = tr != nil && m.lists != b.Lists
	}
	c.mu.Unlock()
	if !isKnown {
		c.gateway.Touch()
	}
	if b.Keeps {
		c.follow(name)
	}
	if tr != nil && !isKnown {
		tr.greet()
	}
	if isOld {
		c.begin(func() { c.refresh(c.ctx, tr) })
	}
}

// refresh asks a gateway for the lists that it shares. Without an answer the known ones stay.
func (c *Cluster) refresh(ctx context.Context, tr *trunk) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	data, err := tr.askLists(ctx)
	if err != nil {
		return
	}
	var shared Shared
	if err := json.Unmarshal(data, &shared); err != nil {
		c.count(tr.peer, "malformed messages")
		return
	}
	c.mu.Lock()
	if m := c.members[tr.peer]; m != nil {
		m.shared, m.lists = shared, m.beat.Lists
	}
	c.mu.Unlock()
	c.gateway.Touch()
	c.changed()
}

func (c *Cluster) changed() {
	if c.o.Changed != nil {
		c.o.Changed()
	}
}

// maxSessionID bounds the ids of sessions of other gateways for which providers are run here.
const maxSessionID = 200

// Elsewhere returns the sessions of admitted gateways that a provider of this gateway may serve, if
// it shares that.
func (c *Cluster) Elsewhere(provider string) (list []adminapi.Session) {
	if !c.isShared(protocol.NormalName(provider)) {
		return nil
	}
	now := time.Now()
	c.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(c.trunks)) {
		m := c.members[name]
		if m == nil || m.state(now) == "" {
			continue
		}
		for _, s := range m.shared.Sessions {
			if s.ID != "" && len(s.ID) <= maxSessionID && s.State != "ending" {
				s.Gateway = name
				list = append(list, s)
			}
		}
	}
	c.mu.Unlock()
	// an id that this gateway has is its own
	return slices.DeleteFunc(list, func(s adminapi.Session) bool {
		_, isOwn := c.gateway.Session(s.ID)
		return isOwn
	})
}

// listWithin is how long a gateway has to answer with the lists that it shares.
const listWithin = time.Second

// askAll asks the other gateways for the lists that they share.
func (c *Cluster) askAll(ctx context.Context) {
	var asked sync.WaitGroup
	for _, tr := range c.trunks {
		if isUp, _, _ := tr.counts(); isUp {
			asked.Go(func() { c.refresh(ctx, tr) })
		}
	}
	asked.Wait()
}

// known returns the sessions and providers of this gateway, and those that the others shared in
// their last answer. Entries of a gateway out of reach are marked as doubtful.
func (c *Cluster) known() (sessions []adminapi.Session, providers []adminapi.Provider) {
	for _, s := range c.gateway.Sessions() {
		s.Gateway = c.name
		sessions = append(sessions, s)
	}
	for _, p := range append(c.gateway.Providers(), c.Abroad()...) {
		if p.Gateway == "" { // the others list theirs
			p.Gateway = c.name
			providers = append(providers, p)
		}
	}
	for _, m := range c.Members() {
		isDoubtful := !m.Reachable || m.State != adminapi.GatewayUp
		c.mu.Lock()
		var shared Shared
		if known := c.members[m.Name]; known != nil && m.Admitted {
			shared = known.shared
		}
		c.mu.Unlock()
		for _, s := range shared.Sessions {
			s.Gateway, s.Doubtful, s.Foreground = m.Name, isDoubtful, false
			sessions = append(sessions, s)
		}
		for _, p := range shared.Providers {
			p.Gateway, p.Doubtful = m.Name, isDoubtful
			providers = append(providers, p)
		}
	}
	return sessions, providers
}

// listsNumber is a number that changes whenever the lists that this gateway shares change.
func (c *Cluster) listsNumber() uint64 {
	shared := c.shared()
	for i := range shared.Providers {
		shared.Providers[i].InFlight = 0
	}
	data, _ := json.Marshal(shared) // cannot fail
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64() | 1
}

// maxMembers bounds the gateways that the registry may list.
const maxMembers = 10_000

// memberLeft notes that the registry has lost a gateway: it has ended, or has not been heard of.
func (c *Cluster) memberLeft(name string) {
	c.mu.Lock()
	delete(c.members, name)
	c.mu.Unlock()
	c.gateway.Touch()
	c.changed()
}

// isExpected reports whether the registry says that a gateway is there.
func (c *Cluster) isExpected(name string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[name]
	return m != nil && m.state(now) != ""
}

// Members lists the other gateways that the registry has, by name.
func (c *Cluster) Members() []adminapi.ClusterGateway {
	now := time.Now()
	list := []adminapi.ClusterGateway{}
	c.mu.Lock()
	for name, m := range c.members {
		if state := m.state(now); state != "" {
			list = append(list, adminapi.ClusterGateway{
				Name: name, Version: m.beat.Version, StartedAt: m.beat.StartedAt,
				State: state, Admitted: c.trunks[name] != nil, Refused: maps.Clone(c.refused[name]),
			})
		}
	}
	c.mu.Unlock()
	for i := range list {
		if tr := c.trunks[list[i].Name]; tr != nil {
			list[i].Reachable, _, _ = tr.counts()
		}
	}
	slices.SortFunc(list, func(a, b adminapi.ClusterGateway) int {
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// noteStates tells watchers when a gateway has become doubtful or is gone, since no message
// announces that.
func (c *Cluster) noteStates(now time.Time) {
	c.mu.Lock()
	isChanged := false
	for _, m := range c.members {
		if state := m.state(now); state != m.noted {
			m.noted, isChanged = state, true
		}
	}
	c.mu.Unlock()
	if isChanged {
		c.gateway.Touch()
		c.changed()
	}
}

// state is the state of a gateway, "" for one that is gone.
func (m *member) state(now time.Time) string {
	switch silent := now.Sub(m.heard); {
	case silent >= goneAfter:
		return ""
	case silent >= doubtfulAfter:
		return adminapi.GatewayDoubtful
	}
	return adminapi.GatewayUp
}
