// Package server puts the gateway on the network: HTTP and WebSocket, the guard
// in front of both, the providers' wire, the session hosts' JSON-RPC, the admin
// API and the metrics. What it reads it hands to the domain in order; what it
// writes never blocks the one who wrote.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// Options of a server.
type Options struct {
	Gateway *gateway.Gateway
	Log     *slog.Logger
	Version string
	// Hosts are names, beside the loopback ones, that a Host header may hold.
	Hosts []string
	// MaxConnections is how many providers may be connected; 0: 50.
	MaxConnections int
	// TLS serves https and wss; nil: http and ws.
	TLS *tls.Config
	// Status tells what the status command shows.
	Status func() StatusInfo
	// Supervisor runs the providers that files name; nil: there are none.
	Supervisor Supervisor
	// Page serves a plain GET of /, and all below /page/; nil: a line of text.
	Page http.Handler
	// SigninDir is a directory of the user's own, for files that lead a browser to
	// a sign-in link; "": there are none.
	SigninDir string
	// OpenREST serves the session contract under /api/ without a token, for a
	// server on loopback only. /api/v1/ needs it all the same.
	OpenREST bool
}

// Server serves one gateway.
type Server struct {
	gateway      *gateway.Gateway
	log          *slog.Logger
	version      string
	settings     atomic.Pointer[settings]
	tls          *tls.Config
	http         *http.Server
	connections  connectionLimit
	authFailures authFailures
	signins      signins
	ownerOf      func(peer, own netip.AddrPort) (proc.Owner, bool)
	remoteHosts  remoteHosts
	rest         *restAPI
	api          http.Handler

	draining        atomic.Bool
	lastActive      atomic.Int64 // when the last admin request came, Unix nanoseconds
	ctx             context.Context
	cancel          context.CancelFunc
	serving         context.Context // ends when Shutdown begins
	endServing      context.CancelFunc
	upgraded        sync.WaitGroup // upgraded connections, which http.Server forgets
	closeHandshakes sync.WaitGroup // closing handshakes

	listeners []net.Listener
}

// settings are what can change while the server runs.
type settings struct {
	hosts    map[string]bool
	openREST bool
}

// Configure sets Hosts, OpenREST and MaxConnections of [Options] anew, for requests
// that come from now on.
func (s *Server) Configure(hosts []string, openREST bool, maxConnections int) {
	now := &settings{hosts: map[string]bool{}, openREST: openREST}
	for _, h := range hosts {
		now.hosts[strings.ToLower(h)] = true
	}
	s.settings.Store(now)
	s.connections.setLimit(cmp.Or(maxConnections, protocol.MaxConnections))
	s.gateway.Touch() // it shows
}

// New makes a server that listens nowhere yet.
func New(o Options) *Server {
	s := &Server{gateway: o.Gateway, log: o.Log, version: o.Version, tls: o.TLS, ownerOf: proc.PeerOf}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.connections.log, s.connections.statusChanged = s.log, s.gateway.Touch
	s.Configure(o.Hosts, o.OpenREST, o.MaxConnections)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.remoteHosts.init(s)
	s.serving, s.endServing = context.WithCancel(s.ctx)
	s.rest = newREST(o.Gateway, s.log)
	s.api = newAPI(s, o)
	page := o.Page
	if page == nil {
		page = http.HandlerFunc(s.servePlainPage)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", http.HandlerFunc(serveHealthz))
	mux.Handle("GET /metrics", s.requireAdmin(s.metricsHandler()))
	mux.Handle("/api/v1/", s.requireAdmin(s.api))
	open, closed := s.withActivity(s.rest), s.requireAdmin(s.rest)
	mux.HandleFunc(restPrefix, func(w http.ResponseWriter, r *http.Request) {
		if s.settings.Load().openREST {
			open.ServeHTTP(w, r)
			return
		}
		closed.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET "+signinPath, s.serveSignin)
	mux.Handle("GET /host", s.trackHandler(s.serveHost))
	mux.Handle("/{$}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUpgrade(r) {
			s.trackHandler(s.serveProvider).ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	}))
	if o.Page != nil {
		mux.Handle("/page/", o.Page)
	}
	mux.HandleFunc("/", notFound)
	s.http = &http.Server{
		Handler:           s.guard(mux),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       contextWithConn,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// tracked lets Shutdown wait for handlers of upgraded connections.
func (s *Server) trackHandler(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.upgraded.Add(1)
		defer s.upgraded.Done()
		h(w, r)
	})
}

// ListenError says at which address a server can't listen.
type ListenError struct {
	Addr string // host:port
	Err  error
}

func (e *ListenError) Error() string { return "listening on " + e.Addr + ": " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *ListenError) Unwrap() error { return e.Err }

// anyPortTries is how many ports are tried where any will do and the other
// loopback's is taken.
const anyPortTries = 10

// Listen binds an address. One on a loopback takes the other loopback at the same
// port too, if the machine has it: localhost resolves to either, and whoever has the
// other one would be taken for this gateway. The error is a [*ListenError].
func (s *Server) Listen(addr string) error {
	var err error
	for range anyPortTries {
		var both []net.Listener
		if both, err = listenBoth(addr); err == nil {
			for _, l := range both {
				s.Use(l)
			}
			return nil
		}
		if _, port, _ := net.SplitHostPort(addr); port != "0" || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// CanListen reports why a server can't listen on an address, a [*ListenError]; nil
// when it can.
func CanListen(addr string) error {
	s := &Server{}
	err := s.Listen(addr)
	for _, l := range s.listeners {
		_ = l.Close()
	}
	return err
}

// listenBoth binds an address and what belongs to it.
func listenBoth(addr string) ([]net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &ListenError{addr, err}
	}
	other := otherLoopback(l.Addr())
	if other == "" {
		return []net.Listener{l}, nil
	}
	second, err := net.Listen("tcp", other)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return []net.Listener{l}, nil // this machine has no such loopback
	}
	if err != nil {
		_ = l.Close()
		return nil, &ListenError{other, err}
	}
	return []net.Listener{l, second}, nil
}

// otherLoopback is the address that a listener is to have on the loopback of the
// other IP version, "" for none.
func otherLoopback(addr net.Addr) string {
	a, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return ""
	case a.IP.To4() != nil && (a.IP.IsLoopback() || a.IP.IsUnspecified()):
		return net.JoinHostPort("::1", strconv.Itoa(a.Port))
	case a.IP.IsLoopback():
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return "" // [::] has both
}

// Use adds a listener of the caller's.
func (s *Server) Use(l net.Listener) { s.listeners = append(s.listeners, l) }

// URL is where providers connect, without a trailing slash.
func (s *Server) URL() string {
	scheme := "ws"
	if s.tls != nil {
		scheme = "wss"
	}
	return scheme + "://" + s.listeners[0].Addr().String()
}

// Serve answers requests until Shutdown.
func (s *Server) Serve() error {
	errs := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		go func() {
			var on net.Listener = listener{l}
			if s.tls != nil {
				on = tls.NewListener(on, s.tls)
			}
			errs <- s.http.Serve(on)
		}()
	}
	var first error
	for range s.listeners {
		if err := <-errs; err != nil && !errors.Is(err, http.ErrServerClosed) && first == nil {
			first = err
			_ = s.http.Close() // one listener that fails ends the others
		}
	}
	return first
}

// Shutdown takes no new connection, lets the gateway end its sessions and
// providers, and returns when all connections are gone or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.endServing()
	s.gateway.Drain(ctx)
	s.remoteHosts.closeAll()
	handlers := make(chan struct{})
	go func() {
		s.upgraded.Wait()
		s.closeHandshakes.Wait()
		close(handlers)
	}()
	err := s.http.Shutdown(ctx)
	select {
	case <-handlers:
	case <-ctx.Done():
	}
	s.cancel()
	_ = s.http.Close()
	<-handlers
	return err
}

// LastActivity is when the last admin request came; the zero time for never.
func (s *Server) LastActivity() time.Time {
	if n := s.lastActive.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "NOT_FOUND", "there is no "+r.URL.Path)
}

func serveHealthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
}

func (s *Server) servePlainPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "INVALID_STATE", "only GET")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "tapgw %s\n\nProviders connect here by WebSocket. The admin API is at /api/v1/.\n", s.version)
}
