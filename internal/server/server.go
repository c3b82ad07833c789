// Package server puts the gateway on the network: HTTP and WebSocket, the guard in front of both,
// the providers' wire, the session hosts' JSON-RPC, the admin API, the session API and the
// metrics. The goroutine that reads a connection calls the domain, so messages keep their order.
// Writing never blocks the caller: a peer that stops reading is closed.
//
// docs/protocol.md describes the wire, docs/admin-api.md the admin API and the session API. rpc.go
// says why /host has a JSON-RPC of its own.
package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// Options configure a [Server]. Only Gateway is required. [Server.Configure] changes Hosts,
// MaxConnections and OpenREST later; the others are fixed by [New].
type Options struct {
	Gateway *gateway.Gateway
	Log     *slog.Logger // nil: no log
	Version string       // of the program, for answers
	// Hosts are names that a Host header may have beside the loopback names, without a port.
	Hosts []string
	// MaxConnections is how many providers may be connected; 0: protocol.MaxConnections.
	MaxConnections int
	// TLS makes the server speak https and wss; nil: http and ws.
	TLS *tls.Config
	// Status returns the facts that only the program around the server knows: URL, PID, Version,
	// StartedAt and Faults. The server fills in the rest.
	Status func() adminapi.Status
	// End makes the program around the server end, as SIGTERM does. It does not wait. nil: only its
	// signals do.
	End func()
	// Supervisor runs the providers that files name. It may be nil.
	Supervisor Supervisor
	// Records finds the gateway's records. With nil, the gateway writes no records.
	Records Records
	// Goals keeps sessions at work on their goals. It may be nil.
	Goals Goals
	// Cluster are the other gateways. It may be nil.
	Cluster Cluster
	// Terminals are the Copilot CLIs of people. It may be nil.
	Terminals Terminals
	// Page serves a plain GET of / and all paths below /page/; nil: / is a line of text.
	Page http.Handler
	// MCP serves /mcp and /mcp/s/ID for MCP clients whose token was checked. With nil, these paths
	// do not exist. The path value id is the session's, empty for the foreground session.
	MCP http.Handler
	// Webhooks takes the requests to /hooks/NAME. With nil, that path does not exist.
	Webhooks WebhookFunc
	// SigninDir is a directory that only the user can read, for files that lead a browser to a
	// sign-in link. With "", there are no such files.
	SigninDir string
	// OpenREST serves the session API below /api/ without a token, for a server on loopback
	// only. The admin API below /api/v1/ needs the token all the same.
	OpenREST bool
}

// Server serves one gateway: providers and session hosts on WebSockets, the admin API, the session
// API and pages. Make one with [New], give it addresses with [Server.Listen], and run
// [Server.Serve] until [Server.Shutdown].
type Server struct {
	// Fixed by New.
	o        Options
	gateway  *gateway.Gateway
	log      *slog.Logger
	http     *http.Server
	webhooks *webhooks // nil without [Options].Webhooks
	rest     *restAPI
	api      *api
	ownerOf  func(peer, own netip.AddrPort) (proc.Owner, bool) // finds the process at the other end

	settings     atomic.Pointer[settings]
	connections  connectionLimit
	unproven     unproven // at the listeners for everything
	authFailures authFailures
	signins      signins
	remoteHosts  sync.Map // the *remoteHost of each session whose agent another process runs, by id
	hostConns    sync.Map // the *hostConn of those processes

	draining        atomic.Bool
	lastActive      atomic.Int64    // the last admin request, in Unix nanoseconds, or 0
	heldRequests    atomic.Int64    // that run: of MCP clients, and logins
	ctx             context.Context // ends when Shutdown has waited for the connections
	cancel          context.CancelFunc
	serving         context.Context // ends when Shutdown begins
	endServing      context.CancelFunc
	mcpContext      context.Context // ends when the sessions have ended at Shutdown
	upgraded        sync.WaitGroup  // handlers of WebSockets, for which http.Server does not wait
	closeHandshakes sync.WaitGroup

	// Set before Serve.
	listeners []net.Listener
	pageName  string // of the page's host, random; "" if the gateway is not there
	pageKey   []byte // by which an open page knows the gateway
}

// settings are the options that can change while the server runs.
type settings struct {
	hosts    map[string]bool
	openREST bool
}

// Configure changes Hosts, OpenREST and MaxConnections of [Options] for requests that come from now
// on; 0 is protocol.MaxConnections. Connections over a lower limit stay. Any goroutine may call it,
// also while the server runs.
func (s *Server) Configure(hosts []string, openREST bool, maxConnections int) {
	current := &settings{hosts: map[string]bool{}, openREST: openREST}
	for _, h := range hosts {
		current.hosts[strings.ToLower(h)] = true
	}
	s.settings.Store(current)
	maxConnections = cmp.Or(maxConnections, protocol.MaxConnections)
	s.connections.setLimit(maxConnections)
	s.unproven.setLimit(maxUnproven + maxConnections)
	s.gateway.Touch() // followers of the status see it
}

// New makes a server with its handlers. It has no address yet: see [Server.Listen] and
// [Server.Use]. It starts nothing before [Server.Serve].
func New(o Options) *Server {
	s := &Server{o: o, gateway: o.Gateway, log: o.Log, ownerOf: proc.PeerOf}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.pageKey = randomBytes(sha256.Size)
	if s.o.TLS == nil { // else a certificate says which names lead here
		s.pageName = newPageName()
	}
	s.connections.log, s.connections.statusChanged = s.log, s.gateway.Touch
	s.unproven.log, s.unproven.what, s.unproven.groupOf = s.log, "connections", userOrSource
	s.unproven.peersOf = proc.PeersOf
	s.Configure(o.Hosts, o.OpenREST, o.MaxConnections)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.serving, s.endServing = context.WithCancel(s.ctx)
	s.rest = newREST(o.Gateway, o.Supervisor, s.log)
	s.api = newAPI(s, o)
	var endMCP context.CancelFunc
	s.mcpContext, endMCP = context.WithCancel(s.ctx)
	s.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       contextWithConn,
		ConnState:         followState,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(endMCP)
	if o.Webhooks != nil {
		s.webhooks = newWebhooks(s, o.Webhooks)
	}
	s.http.Handler = s.guard(s.routes(o.Page, o.MCP))
	return s
}

// routes maps paths to handlers; page and mcp may be nil. An unknown path is 404 for everybody,
// except below /api/, where such a path needs the same rights as the session API.
func (s *Server) routes(page, mcp http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serveHealthz)
	mux.Handle("GET /metrics", s.requireAdmin(s.metricsHandler()))
	mux.Handle(apiPrefix+"/", s.requireAdmin(s.api))
	mcp = s.requireMCP(mcp)
	mux.Handle("/mcp", mcp)
	mux.Handle("/mcp/s/{id}", mcp)
	mux.Handle("/mcp/t/{terminal}", mcp)
	open, closed := s.withActivity(s.rest), s.requireAdmin(s.rest)
	mux.HandleFunc(restPrefix, func(w http.ResponseWriter, r *http.Request) {
		if s.settings.Load().openREST {
			open.ServeHTTP(w, r)
			return
		}
		closed.ServeHTTP(w, r)
	})
	if s.webhooks != nil {
		mux.Handle(webhookPrefix+"{name}", s.webhooks)
	}
	mux.Handle("GET "+signinPath, s.atPageHost(http.HandlerFunc(s.serveSignin)))
	mux.Handle("GET /host", s.trackHandler(s.serveHost))
	mux.Handle("GET "+terminalPath, s.trackHandler(s.serveTerminal))
	mux.Handle("GET "+pageStreamsPath, s.requireAdmin(s.trackHandler(s.servePageStreams)))
	if page != nil {
		page = s.atPageHost(page)
		mux.Handle("/page/", page)
	} else {
		page = http.HandlerFunc(s.servePlainPage)
	}
	providers := s.trackHandler(s.serveProvider)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if isUpgrade(r) {
			providers.ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", notFound)
	return mux
}

// trackHandler makes Shutdown wait for the handler of a connection that is upgraded.
func (s *Server) trackHandler(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.upgraded.Add(1)
		defer s.upgraded.Done()
		h(w, r)
	})
}

// Use adds a listener that the caller made; [Server.Serve] puts TLS over it if [Options] have it.
// Call it before Serve. The server closes the listener at Shutdown.
func (s *Server) Use(l net.Listener) { s.listeners = append(s.listeners, l) }

// Listeners returns the listeners that serve everything, without those for webhooks alone. The next
// server gets them before [Server.Shutdown] closes them.
func (s *Server) Listeners() []net.Listener { return s.listeners }

// URL returns the address that providers connect to, such as ws://127.0.0.1:9400, of the first
// listener; wss with TLS. It panics without a listener.
func (s *Server) URL() string {
	scheme := "ws"
	if s.o.TLS != nil {
		scheme = "wss"
	}
	return scheme + "://" + s.listeners[0].Addr().String()
}

// Serve answers requests on all listeners until Shutdown, and then returns nil. If one listener
// fails it closes the others and returns the error. Call it once.
func (s *Server) Serve() error {
	by := map[listener]*http.Server{}
	for _, l := range s.listeners {
		by[listener{l, &s.unproven}] = s.http
	}
	if s.webhooks != nil {
		for _, l := range s.webhooks.listeners {
			by[listener{l, &s.webhooks.unproven}] = s.webhooks.http
		}
	}
	errs := make(chan error, len(by))
	for l, h := range by {
		go func() {
			var wrapped net.Listener = l
			if s.o.TLS != nil {
				wrapped = tls.NewListener(wrapped, s.o.TLS)
			}
			errs <- h.Serve(wrapped)
		}()
	}
	var first error
	for range by {
		if err := <-errs; err != nil && !errors.Is(err, http.ErrServerClosed) && first == nil {
			first = err
			s.closeNow() // ends the other listeners
		}
	}
	return first
}

// closeNow closes all listeners and connections.
func (s *Server) closeNow() {
	_ = s.http.Close()
	if s.webhooks != nil {
		_ = s.webhooks.http.Close()
	}
}

// Shutdown refuses new connections, lets the gateway end its sessions and providers, and closes
// all connections. It returns when they are gone; when ctx ends first it cuts them off and
// returns an error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.endServing()
	s.gateway.Drain(ctx)
	s.hostConns.Range(func(c, _ any) bool {
		c.(*hostConn).rpc.Close(protocol.CloseGoingAway, "the gateway is shutting down")
		return true
	})
	err := s.http.Shutdown(ctx)
	if s.webhooks != nil {
		err = errors.Join(err, s.webhooks.http.Shutdown(ctx))
	}
	// No request upgrades its connection any more: those that came have been counted.
	handlers := make(chan struct{})
	go func() {
		s.upgraded.Wait()
		s.closeHandshakes.Wait()
		close(handlers)
	}()
	select {
	case <-handlers:
	case <-ctx.Done():
	}
	s.cancel()
	s.closeNow()
	<-handlers
	return err
}

// LastActivity returns the time of the last request of the admin or the session API, or of an MCP
// client; zero before the first one. It is now while an MCP client is connected, or a login runs.
// Providers and session hosts don't count.
func (s *Server) LastActivity() time.Time {
	if s.heldRequests.Load() > 0 {
		return time.Now()
	}
	if n := s.lastActive.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// notFound answers an unknown path with 404.
func notFound(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "NOT_FOUND", "there is no "+r.URL.Path)
}

func serveHealthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
}

// servePlainPage answers / of a server without a page.
func (s *Server) servePlainPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "INVALID_STATE", "only GET")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "tapgw %s\n\nProviders connect here by WebSocket. "+
		"The admin API is at /api/v1/.\n", s.o.Version)
}
