// Package gateway is the domain: sessions, the providers that are bound to them, and
// the calls, rules and pushes between the two. It knows neither sockets nor JSON-RPC nor
// Copilot: a [Host] runs a session's agent, and a [Peer] is the way to a provider.
//
// Three things always hold. A call ends exactly once, at its timeout at the latest.
// The messages of a provider are handled in the order in which they came. Nothing is
// sent and no host is called while a lock is held that another session or provider could
// wait for: [Peer].Send only queues. ARCHITECTURE.md has the map of the package.
//
// Lock order: Gateway.mu, Provider.mu, Session.routesMu, Session.mu, prompts.mu, then the
// leaves (questions.mu; Recording.mu, below it buffer.mu; streams.mu, below it feed.mu,
// below it Responses.mu; counter.mu below all).
package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Options of a gateway. The zero value works: no files of providers, no log and no spans,
// and only sessions that a host registers itself. The functions may be called from any
// goroutine.
type Options struct {
	// PersistDir makes the directory where providers of a name store files, and returns its path;
	// nil: providers get no directory.
	PersistDir func(provider string) (string, error)
	// ReadFile reads the file of a result, which must be in that directory; nil:
	// results can't be files.
	ReadFile func(provider string, ref protocol.FileRef) (*File, error)
	Log      *slog.Logger // nil: no log
	Tracer   trace.Tracer // nil: no spans
	// TraceContent puts arguments and results of calls into the spans, if the user asks for them.
	TraceContent bool
	Recorder     Recorder // nil: no records
	Keeper       Keeper   // nil: no stream lasts
	// Private returns the directories with tokens and with files of all sessions, which
	// [Session.PermitRead] never allows. It may be nil.
	Private func() []string
	// UploadDir is the directory of the files that prompts bring; "": they can't bring any. The
	// gateway removes a session's files with it.
	UploadDir string
	// Starters make sessions, by kind of host.
	Starters map[string]Starter
}

// Gateway holds the sessions and the providers and joins them: it dispatches tool calls,
// asks gates and delivers pushes. All methods may be called from any goroutine.
type Gateway struct {
	// Fixed at creation.
	o             Options // with a log
	instanceToken string
	adminToken    string
	schemas       schemaCache
	stats         Stats
	hooks         atomic.Pointer[userHooks] // nil: none
	spans         *spans.Maker              // nil: no spans
	metrics       spans.Metrics
	pairings      windows // by the page's origin; "" for programs
	questions     questions
	injectQuiet   atomic.Int64                 // nanoseconds; 0 for the default
	recordings    atomic.Pointer[[]*Recording] // nil: none; written with mu held

	fileReads sync.WaitGroup // of results that are files

	mu            sync.Mutex          // guards the fields down to isDraining
	sessions      map[string]*Session // until they are torn down
	order         []*Session          // by creation, oldest first
	foreground    string              // the id of the chosen session; "" for the newest
	conns         map[*Conn]struct{}
	tokens        map[tokenKey]*identity
	mcpTokens     map[tokenKey]*Session
	reservedNames []ReservedName
	expected      []*expectedProvider
	lastOffers    map[offerKey]*offer // of expected providers; nil before their first hello
	memories      map[tokenKey]*reconnectMemory
	limits        limits
	waitingEvents waitingEvents
	isDraining    bool

	sessionsChanged chan struct{} // holds one
	changes         changes
	toolChanges     counter
	diag            diag
}

// New makes a gateway without sessions, with fresh instance and admin tokens. It starts no
// goroutine. [Gateway.Drain] ends the sessions and connections that the gateway then has.
func New(o Options) *Gateway {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		o:               o,
		spans:           spans.NewMaker(o.Tracer, o.Recorder != nil),
		instanceToken:   newSecret(prefixProvider),
		adminToken:      newSecret(prefixAdmin),
		sessions:        map[string]*Session{},
		conns:           map[*Conn]struct{}{},
		tokens:          map[tokenKey]*identity{},
		mcpTokens:       map[tokenKey]*Session{},
		memories:        map[tokenKey]*reconnectMemory{},
		limits:          limits{},
		sessionsChanged: make(chan struct{}, 1),
		pairings: windows{max: protocol.MaxPairingsAMinute,
			all: window{max: maxPagePairings}},
		diag:      newDiag(),
		questions: newQuestions(),
	}
	g.questions.touch = g.touch
	g.addToken(g.instanceToken, &identity{PassSpec: PassSpec{Trust: TrustProject}})
	g.addToken(g.adminToken, &identity{PassSpec: PassSpec{Trust: TrustInternal}})
	return g
}

// connsWhere returns the connections of providers that have said hello and for which is holds, in
// the order in which they connected. Call with g.mu held.
func (g *Gateway) connsWhere(is func(*Conn) bool) []*Conn {
	var conns []*Conn
	for c := range g.conns {
		if c.provider != nil && is(c) {
			conns = append(conns, c)
		}
	}
	slices.SortFunc(conns, func(a, b *Conn) int {
		p, q := a.provider, b.provider
		return cmp.Or(p.connectedAt.Compare(q.connectedAt), cmp.Compare(p.id, q.id))
	})
	return conns
}

func isAnyConn(*Conn) bool { return true }

// Providers lists the connections of providers that said hello, in the order in which they
// connected, as GET /providers of docs/admin-api.md shows them. The list is a copy.
func (g *Gateway) Providers() []adminapi.Provider {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := []adminapi.Provider{}
	for _, c := range g.connsWhere(isAnyConn) {
		views = append(views, c.provider.view(c))
	}
	return views
}

// StopProvider closes the connections of all providers of a name, in any spelling, with
// close code 1000, and returns their number; 0 if none is connected. Their calls end with
// DISCONNECTED.
func (g *Gateway) StopProvider(name string) int {
	name = protocol.NormalName(name)
	g.mu.Lock()
	conns := g.connsWhere(func(c *Conn) bool { return c.provider.name == name })
	g.mu.Unlock()
	closeAll(conns, protocol.CloseNormal, "stopped by the user")
	return len(conns)
}

func closeAll(conns []*Conn, code protocol.CloseCode, reason string) {
	for _, c := range conns {
		c.close(code, reason)
	}
}

// allSessions lists the sessions, oldest first.
func (g *Gateway) allSessions() []*Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.order)
}

// SessionsChanged receives after a session came, ended, got another label or became the
// foreground session. It holds one signal, so several changes may give one. It is for one
// listener, which then reads [Gateway.Sessions].
func (g *Gateway) SessionsChanged() <-chan struct{} { return g.sessionsChanged }

// InUse reports whether there is any session or any connection, including connections that
// have not authenticated yet.
func (g *Gateway) InUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions) > 0 || len(g.conns) > 0
}

// Drain ends every session, so that providers can answer, and then every connection, with
// close code 1001. It also waits for the files that are read as results. New sessions are
// refused with INVALID_STATE from now on. ctx bounds the wait for the sessions' ends.
func (g *Gateway) Drain(ctx context.Context) {
	g.mu.Lock()
	g.isDraining = true
	sessions := slices.Clone(g.order)
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			if err := s.Stop(ctx, "the gateway is shutting down"); err != nil {
				g.o.Log.Warn("stopping a session", "session", s.id, "error", err)
			}
		})
	}
	wg.Wait()
	g.mu.Lock()
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	closeAll(conns, protocol.CloseGoingAway, "the gateway is shutting down")
	g.fileReads.Wait()
}

// Stats are the counters of the gateway since its start, for GET /metrics. Each only grows.
// The gateway writes them from many goroutines, so readers see each one by itself, not all
// of one moment.
type Stats struct {
	Calls            atomic.Uint64
	FailedCalls      atomic.Uint64
	CallMicros       atomic.Uint64 // the durations of all calls, in microseconds
	Pushes           atomic.Uint64
	DroppedPushes    atomic.Uint64
	PausedInjects    atomic.Uint64 // shown only: their provider injected too often in a row
	Turns            atomic.Uint64 // ended
	Errors           atomic.Uint64 // error messages to providers
	UndecidedMatches atomic.Uint64 // see match.Undecided
	Ignored          atomic.Uint64 // late results, progress and gate results
	Refreshes        atomic.Uint64 // tool lists given to hosts
	SlowPeers        atomic.Uint64
	Connections      atomic.Uint64
	AuthFailures     atomic.Uint64
}

// Stats returns the counters, which the gateway goes on updating. SlowPeers is left to the
// server, which cuts off slow connections.
func (g *Gateway) Stats() *Stats { return &g.stats }
