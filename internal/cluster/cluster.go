// Package cluster joins gateways through NATS. A provider of this gateway serves sessions of
// another one as a provider connection there: its frames travel between the two, and the session's
// gateway judges them as it judges those of any provider. So schema, gates, budgets and limits have
// one judge, and the config of each gateway decides what others may do there.
//
// A message of another gateway is trusted as little as a provider's. Its subject names the sender,
// and the NATS server vouches for the subject (docs/cluster.md).
package cluster

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// Options say how a gateway takes part.
type Options struct {
	Gateway *gateway.Gateway
	Log     *slog.Logger
	Version string // the program's version, shown by the other gateways
	Name    string // of this gateway among the others
	// Share has globs of the labels of sessions and the names of providers that admitted gateways
	// may see and use.
	Share []string
	// Admit has the trust of the providers of each admitted gateway here, by the gateway's name.
	Admit map[string]gateway.Trust
	// Control names the admitted gateways whose users may use the API, an admin API without a check
	// of tokens, here.
	Control []string
	API     http.Handler
	// Changed is called when the sessions that [Cluster.Elsewhere] returns may be others. It must
	// not block; nil for nothing.
	Changed func()
	// Record writes down requests to other gateways and from them. It may be nil.
	Record func(adminapi.Record)
	// PersistDir makes a provider's directory, and ReadFile reads a file in it, as those of
	// [gateway.Options]; both may be nil. A provider keeps its files here, also while it serves
	// sessions elsewhere.
	PersistDir func(provider string) (string, error)
	ReadFile   func(provider string, ref protocol.FileRef) (*gateway.File, error)
	// Keeper is the gateway's own; nil: no stream of this gateway lasts.
	Keeper *Keeper
	// StateFile holds how far sessions have got in the streams that last. If it is "", a restart
	// forgets that.
	StateFile string
	// Flush returns once all records so far are in their files. It is nil without records.
	Flush func(context.Context)
}

// Cluster is the part of a gateway that joins others. Make one with [Join].
type Cluster struct {
	// Fixed at start.
	o       Options
	name    string
	log     *slog.Logger
	gateway *gateway.Gateway
	share   []match.ToolGlob
	bus     Bus
	trunks  map[string]*trunk // of the admitted gateways, by their names
	stops   []func()          // of subscriptions
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	lists   lists

	// Of streams that last; nil without JetStream. They are set by [Join] before anybody else has
	// the cluster.
	js        jetstream.JetStream
	positions *positions

	mu            sync.Mutex // guards the fields that follow
	members       map[string]*member
	relays        map[*relay]bool
	refused       map[string]map[string]uint64 // by gateway and by kind of refusal
	retired       map[*gateway.Pass]*time.Timer
	fault         string          // the last of the connection to NATS
	said          map[string]bool // faults of this connection that the log has
	registryError string          // "" while the registry works
	isClosed      bool
	saved         map[string]*savedState // by reconnect tokens
	followers     map[string]*follower
}

// Start takes part in the cluster of a bus: it subscribes to the messages of the admitted gateways
// and begins to look for them. [Join] does that over NATS.
func Start(o Options, b Bus) (*Cluster, error) {
	c := &Cluster{
		o: o, name: o.Name, log: o.Log, gateway: o.Gateway, bus: b, trunks: map[string]*trunk{},
		members: map[string]*member{}, relays: map[*relay]bool{}, saved: map[string]*savedState{},
		refused: map[string]map[string]uint64{}, retired: map[*gateway.Pass]*time.Timer{},
		followers: map[string]*follower{}, said: map[string]bool{},
	}
	for _, glob := range o.Share {
		c.share = append(c.share, match.NewToolGlob(glob))
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for name, trust := range o.Admit {
		c.trunks[name] = newTrunk(c, name, trust)
		c.trunks[name].mayControl = slices.Contains(o.Control, name)
	}
	for _, tr := range c.trunks {
		stop, err := b.Subscribe(tr.from, tr.receive)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.stops = append(c.stops, stop)
		c.work.Go(func() { tr.run(c.ctx) })
	}
	c.work.Go(c.tick)
	for _, tr := range c.trunks {
		tr.hello()
	}
	return c, nil
}

// Close leaves the cluster: providers of others are gone here, and those of this gateway elsewhere.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.isClosed = true
	for _, t := range c.retired {
		t.Stop()
	}
	relays := slices.Collect(maps.Keys(c.relays))
	c.mu.Unlock()
	for _, r := range relays {
		r.leave()
	}
	for _, tr := range c.trunks {
		tr.leave()
	}
	for _, stop := range c.stops {
		stop()
	}
	c.cancel()
	c.work.Wait()
}

// tickEvery is how often trunks are looked after.
const tickEvery = 100 * time.Millisecond

func (c *Cluster) tick() {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			c.forgetSaved(now)
			c.noteStates(now)
			for name, tr := range c.trunks {
				tr.tick(now, c.isExpected(name, now))
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// isShared reports whether admitted gateways may see and use the sessions or providers with this
// name or label.
func (c *Cluster) isShared(name string) bool {
	return slices.ContainsFunc(c.share, func(g match.ToolGlob) bool { return g.Match(name) })
}

// isSharedSession reports whether admitted gateways may see and use a session.
func (c *Cluster) isSharedSession(s adminapi.Session) bool { return c.isShared(s.Label) }

// count counts something that another gateway sent and that was refused.
func (c *Cluster) count(peer, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[peer] == nil {
		if len(c.refused) >= maxMembers {
			return
		}
		c.refused[peer] = map[string]uint64{}
	}
	c.refused[peer][what]++
	if n := c.refused[peer][what]; n&(n-1) == 0 { // the first, the second, the fourth …
		c.log.Warn("refused what a gateway sent", "gateway", peer, "what", what, "count", n)
	}
}

// connLost is called when the connection to NATS is lost: no other gateway is within reach.
func (c *Cluster) connLost(why string) {
	for _, tr := range c.trunks {
		tr.fail(why)
	}
}

// trunkUp is called when a gateway is within reach.
func (c *Cluster) trunkUp(tr *trunk) {
	c.log.Info("a gateway is within reach", "gateway", tr.peer)
	c.mu.Lock()
	relays := slices.Collect(maps.Keys(c.relays))
	c.mu.Unlock()
	for _, r := range relays {
		r.openAt(tr)
	}
	c.begin(func() { c.refresh(c.ctx, tr) })
	c.gateway.Touch()
	if c.o.Keeper != nil { // it may have missed messages while it was out of reach
		tr.push(opKept, 0, nil)
		tr.flush()
	}
}

// begin runs f in a goroutine that Close waits for. After Close it does nothing.
func (c *Cluster) begin(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed {
		c.work.Go(f)
	}
}

// retire voids a token once its provider can't come back with a reconnect token.
func (c *Cluster) retire(p *gateway.Pass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed || p == nil {
		return
	}
	c.retired[p] = time.AfterFunc(protocol.ReconnectWindow, func() {
		c.mu.Lock()
		delete(c.retired, p)
		c.mu.Unlock()
		p.Revoke()
	})
}
