// Package gateway is the domain: sessions, the providers that are bound to
// them, and what goes between. It knows neither sockets nor JSON-RPC nor
// Copilot; a [Host] stands for a session's agent and a [Peer] for the way to a
// provider.
//
// Three things always hold. A call ends exactly once, at its timeout at the
// latest. What a provider sends is taken in the order it was sent. Nothing is
// sent, and no host is called, while a lock is held that another session or
// provider could wait for: Peer.Send only queues.
//
// Lock order: Gateway.mu, Provider.mu, Session.routesMu, Session.mu, then the leaves
// (questions.mu; feed.mu, below it Responses.mu; ticks.mu below all).
package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Options of a gateway. The zero value works.
type Options struct {
	// PersistDir makes and names the directory that providers of a name keep
	// files in; nil: providers get none.
	PersistDir func(provider string) (string, error)
	// ReadFile reads a result that a provider left in that directory, and
	// nowhere else; nil: there are no such results.
	ReadFile func(provider string, ref protocol.FileRef) (*File, error)
	Log      *slog.Logger
	// Tracer makes spans of what sessions do; nil: nobody wants any.
	Tracer trace.Tracer
	// Starters make sessions, by kind of host.
	Starters map[string]Starter
}

// Gateway joins sessions and providers.
type Gateway struct {
	// Fixed at creation.
	persistDir    func(string) (string, error)
	readFile      func(string, protocol.FileRef) (*File, error)
	log           *slog.Logger
	starters      map[string]Starter
	instanceToken string
	adminToken    string
	schemas       schemaCache
	stats         Stats
	hooks         atomic.Pointer[userHooks] // the user's own; nil: none
	tracer        trace.Tracer              // nil: no spans
	pairings      windows                   // by origin, "" for what is no page of another
	questions     questions
	injectQuiet   atomic.Int64 // see InjectQuiet

	fileReads sync.WaitGroup // of results that are files

	mu            sync.Mutex
	sessions      map[string]*Session // until they are torn down
	order         []*Session          // by creation, oldest first
	foreground    string              // chosen by somebody; "" for the newest
	conns         map[*Conn]struct{}
	tokens        map[tokenKey]*identity
	reservedNames []ReservedName
	memories      map[tokenKey]*memory
	limits        limits
	waitingEvents waitingEvents
	isDraining    bool

	changed chan struct{} // holds one
	changes changes
	diag    diag
}

// New makes a gateway with fresh tokens.
func New(o Options) *Gateway {
	g := &Gateway{
		persistDir:    o.PersistDir,
		readFile:      o.ReadFile,
		log:           o.Log,
		starters:      o.Starters,
		tracer:        o.Tracer,
		instanceToken: newSecret(prefixProvider),
		adminToken:    newSecret(prefixAdmin),
		sessions:      map[string]*Session{},
		conns:         map[*Conn]struct{}{},
		tokens:        map[tokenKey]*identity{},
		memories:      map[tokenKey]*memory{},
		limits:        limits{},
		changed:       make(chan struct{}, 1),
		pairings:      windows{max: protocol.MaxPairingsAMinute, all: window{max: maxPagePairings}},
		diag:          newDiag(),
		questions:     newQuestions(),
	}
	g.questions.touch = g.touch
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.addToken(g.instanceToken, &identity{trust: TrustProject})
	g.addToken(g.adminToken, &identity{trust: TrustInternal})
	return g
}

// SessionSpec describes a session to register.
type SessionSpec struct {
	ID         string // "" for a new one
	Label      string
	CWD        string
	Model      string
	Foreground bool
}

// Register adds a session that a host runs. The error is INVALID_SESSION when
// the id is taken, or INVALID_STATE while the gateway shuts down.
func (g *Gateway) Register(spec SessionSpec, info HostInfo, h Host) (*Session, error) {
	if spec.ID == "" {
		spec.ID = uuid.NewString()
	}
	s := newSession(g, spec, info, h)
	g.mu.Lock()
	if g.isDraining {
		g.mu.Unlock()
		return nil, errorf(protocol.CodeInvalidState, "the gateway is shutting down")
	}
	if g.sessions[spec.ID] != nil {
		g.mu.Unlock()
		return nil, errorf(protocol.CodeInvalidSession, "session %q exists already", spec.ID)
	}
	g.sessions[spec.ID] = s
	s.routes.Store(&routes{rules: g.hookRules()})
	g.order = append(g.order, s)
	if spec.Foreground {
		g.foreground = spec.ID
	}
	if h := g.hooks.Load(); h != nil && h.needHost() {
		s.needsHooks.Store(true) // also when they go before its first prompt: it has begun with them
	}
	s.worker.Go(s.work)
	for c := range g.conns {
		c.needsSessionList = c.needsSessionList || c.is(unbound)
	}
	waiting := g.announce()
	kept := g.waitingEvents
	g.waitingEvents = waitingEvents{}
	g.mu.Unlock()
	flush(waiting)
	s.note(LogInfo, sourceGateway, "session started")
	s.storeWaitingEvents(kept)
	s.askStartHooks()
	g.log.Info("session started", "session", s.id, "host", info.Kind, "cwd", spec.CWD)
	return s, nil
}

// Start makes a session of the kind that the request names.
func (g *Gateway) Start(ctx context.Context, r StartRequest) (*Session, error) {
	starter := g.starters[r.Host]
	if starter == nil {
		return nil, errorf(protocol.CodeInvalidJSON, "host: %q is not one of %v", r.Host, slices.Sorted(maps.Keys(g.starters)))
	}
	return starter.Start(ctx, g, r)
}

// Models lists the models of a kind of host.
func (g *Gateway) Models(ctx context.Context, host string) ([]adminapi.Model, error) {
	starter := g.starters[host]
	if starter == nil {
		return nil, errorf(protocol.CodeInvalidJSON, "host: %q is not one of %v", host, slices.Sorted(maps.Keys(g.starters)))
	}
	return starter.Models(ctx)
}

// Session finds a session by its id.
func (g *Gateway) Session(id string) (*Session, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[id]
	return s, s != nil
}

// Sessions lists all sessions, oldest first.
func (g *Gateway) Sessions() []adminapi.Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := make([]adminapi.Session, 0, len(g.order))
	for _, s := range g.order {
		views = append(views, s.view())
	}
	return views
}

// Providers lists the providers that said hello, in the order in which they
// connected.
func (g *Gateway) Providers() []adminapi.Provider {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := make([]adminapi.Provider, 0, len(g.conns))
	for c := range g.conns {
		if p := c.provider; p != nil {
			views = append(views, p.view(c))
		}
	}
	slices.SortFunc(views, func(a, b adminapi.Provider) int {
		return cmp.Or(a.ConnectedAt.Compare(b.ConnectedAt), cmp.Compare(a.ID, b.ID))
	})
	return views
}

// StopProvider closes the connections of all providers of a name and says how
// many there were.
func (g *Gateway) StopProvider(name string) int {
	g.mu.Lock()
	name = protocol.NormalName(name)
	var stop []*Conn
	for c := range g.conns {
		if c.provider != nil && c.provider.name == name {
			stop = append(stop, c)
		}
	}
	g.mu.Unlock()
	for _, c := range stop {
		c.close(protocol.CloseNormal, "stopped by the user")
	}
	return len(stop)
}

// SessionsChanged receives when a session came, went or has another label. It is for one
// listener, which looks at [Gateway.Sessions] then.
func (g *Gateway) SessionsChanged() <-chan struct{} { return g.changed }

// SetForeground makes a session the first that providers are offered.
func (g *Gateway) SetForeground(id string) error {
	g.mu.Lock()
	s := g.sessions[id]
	if s == nil || s.isEnding() {
		g.mu.Unlock()
		return noSession(id)
	}
	g.foreground = id
	waiting := g.announce()
	g.mu.Unlock()
	flush(waiting)
	return nil
}

// InUse reports whether there is any session or provider.
func (g *Gateway) InUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions) > 0 || len(g.conns) > 0
}

// Drain ends every session, telling the providers, and then every connection.
// It returns when that is done or ctx ends.
func (g *Gateway) Drain(ctx context.Context) {
	g.mu.Lock()
	g.isDraining = true
	sessions := slices.Clone(g.order)
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			if err := s.Stop(ctx, "the gateway is shutting down"); err != nil {
				g.log.Warn("stopping a session", "session", s.id, "error", err)
			}
		})
	}
	wg.Wait()
	g.mu.Lock()
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		c.close(protocol.CloseGoingAway, "the gateway is shutting down")
	}
	g.fileReads.Wait()
}

// foregroundSession is the foreground session: the chosen one while it lives, else the
// newest. Call with g.mu held.
func (g *Gateway) foregroundSession() *Session {
	if s := g.sessions[g.foreground]; s != nil && !s.isEnding() {
		return s
	}
	for _, s := range slices.Backward(g.order) {
		if !s.isEnding() {
			return s
		}
	}
	return nil
}

// sessionsFor lists the sessions for an identity: those that it may bind first (its
// own, the foreground one, the most recent), the others without cwd. Call with
// g.mu held.
func (g *Gateway) sessionsFor(id *identity) []protocol.SessionInfo {
	front := g.foregroundSession()
	list := []protocol.SessionInfo{}
	add := func(s *Session) {
		if id.trust == TrustProject && !id.includes(s) {
			return // what runs for a project hears of its sessions only
		}
		info := protocol.SessionInfo{ID: s.id, Label: s.label(), Foreground: s == front}
		if id.mayBind(s) {
			info.CWD = s.cwd
		}
		list = append(list, info)
	}
	if front != nil {
		add(front)
	}
	for _, s := range slices.Backward(g.order) {
		if s != front && !s.isEnding() {
			add(s)
		}
	}
	slices.SortStableFunc(list, func(a, b protocol.SessionInfo) int {
		return g.rank(id, a.ID) - g.rank(id, b.ID)
	})
	return list
}

// rank orders sessions for an identity: those that it may bind first. Its own,
// if it has one, is the only such. Call with g.mu held.
func (g *Gateway) rank(id *identity, session string) int {
	if id.mayBind(g.sessions[session]) {
		return 0
	}
	return 1
}

// announce queues the session list to every connection that may want it and
// returns them, to be flushed once g.mu is free. Call with g.mu held.
func (g *Gateway) announce() []*Conn {
	g.touch()
	select {
	case g.changed <- struct{}{}:
	default: // it knows already
	}
	var told []*Conn
	for c := range g.conns {
		if c.announce() {
			told = append(told, c)
		}
	}
	return told
}

func flush(conns []*Conn) {
	for _, c := range conns {
		c.peer.Flush()
	}
}

func noSession(id string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session %q does not exist", id), SessionID: id}
}

// Stats counts what the gateway did since it started.
type Stats struct {
	Calls            atomic.Uint64
	FailedCalls      atomic.Uint64
	CallMicros       atomic.Uint64
	Pushes           atomic.Uint64
	DroppedPushes    atomic.Uint64
	PausedInjects    atomic.Uint64 // only shown: their provider injected too often without the user
	Turns            atomic.Uint64 // that ended
	Errors           atomic.Uint64 // error messages to providers
	UndecidedMatches atomic.Uint64 // patterns that took too long, texts too long to try
	Ignored          atomic.Uint64 // late results, progress and gate results
	Refreshes        atomic.Uint64 // tool lists given to hosts
	SlowPeers        atomic.Uint64
	Connections      atomic.Uint64
	AuthFailures     atomic.Uint64
}

// Stats returns the counters, which go on counting.
func (g *Gateway) Stats() *Stats { return &g.stats }

// schemaCache keeps the schemas compiled that calls use. A provider's tools are
// kept as raw text, since compiled ones take many times the memory and most
// tools are never called. Two generations make it an LRU of sorts: when the
// young one is full it becomes the old one.
type schemaCache struct {
	mu         sync.Mutex
	young, old map[*tool]*protocol.Schema
}

const schemasKept = 128

func (c *schemaCache) get(t *tool) (*protocol.Schema, error) {
	c.mu.Lock()
	s, ok := c.young[t]
	if !ok {
		if s, ok = c.old[t]; ok {
			c.put(t, s)
		}
	}
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := protocol.CompileSchema(t.Parameters)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.put(t, s)
	c.mu.Unlock()
	return s, nil
}

// put adds to the young generation. Call with c.mu held.
func (c *schemaCache) put(t *tool, s *protocol.Schema) {
	if len(c.young) >= schemasKept || c.young == nil {
		c.old, c.young = c.young, make(map[*tool]*protocol.Schema)
	}
	c.young[t] = s
}
