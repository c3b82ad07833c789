package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const webhookPrefix = "/hooks/"

// Limits of requests to /hooks/NAME, which may come from anywhere and without a secret.
const (
	webhookMaxBody = 1 << 20 // bytes
	// webhookMaxBodies bounds what of all bodies is in memory at a time, in bytes.
	webhookMaxBodies = 64 << 20
	// webhookMaxConns and webhookMaxConnsEach bound the connections at the listener for webhooks alone: all, and those
	// of one address.
	webhookMaxConns     = 256
	webhookMaxConnsEach = 32
	webhookTimeout      = 15 * time.Second // for a request, and for its answer
)

// WebhookFunc takes what was sent to /hooks/NAME. It returns the answer's HTTP status, 401 for everything but a right
// secret, and a line for the sender.
type WebhookFunc func(ctx context.Context, name string, h http.Header, body []byte) (status int, message string)

// webhooks serves /hooks/NAME: on the gateway's own port, and at a listener that serves nothing else.
type webhooks struct {
	server    *Server
	take      WebhookFunc
	http      *http.Server // of the listeners
	listeners []net.Listener
	bodies    atomic.Int64 // bytes of bodies in memory
}

func newWebhooks(s *Server, take WebhookFunc) *webhooks {
	h := &webhooks{server: s, take: take}
	mux := http.NewServeMux()
	mux.Handle(webhookPrefix+"{name}", h)
	mux.HandleFunc("/", notFound)
	h.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			setSafeHeaders(w.Header())
			mux.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: webhookTimeout,
		ReadTimeout:       webhookTimeout,
		WriteTimeout:      2 * webhookTimeout,
		IdleTimeout:       webhookTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       contextWithConn,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          s.http.ErrorLog,
	}
	return h
}

// ListenWebhooks binds an address that serves /hooks/NAME and nothing else, as [Server.Listen] binds one for
// everything. Call it before Serve. It returns the address that it got.
func (s *Server) ListenWebhooks(addr string) (net.Addr, error) {
	list, _, err := listen(addr, nil)
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		s.webhooks.listeners = append(s.webhooks.listeners, &fewConns{Listener: l})
	}
	return list[0].Addr(), nil
}

// webhooksURL is the address that serves webhooks alone; "" for none.
func (s *Server) webhooksURL() string {
	if s.webhooks == nil || len(s.webhooks.listeners) == 0 {
		return ""
	}
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	return scheme + "://" + s.webhooks.listeners[0].Addr().String()
}

// ServeHTTP implements [http.Handler] for /hooks/NAME. What does not know a secret learns nothing of which names there
// are.
func (h *webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.server.draining.Load() {
		refuseWebhook(w, http.StatusServiceUnavailable, "the gateway is shutting down; send it again")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "INVALID_STATE", "only POST")
		return
	}
	body, err := h.read(w, r)
	defer h.bodies.Add(-int64(cap(body)))
	if _, isLong := errors.AsType[*http.MaxBytesError](err); isLong {
		fail(w, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "the body has more than 1 MiB")
		return
	}
	switch {
	case errors.Is(err, errManyBodies):
		refuseWebhook(w, http.StatusServiceUnavailable, err.Error())
		return
	case err != nil:
		fail(w, http.StatusBadRequest, "INVALID_ARGUMENTS", "reading the body failed")
		return
	}
	status, message := h.take(r.Context(), r.PathValue("name"), r.Header, body)
	switch {
	case status == http.StatusUnauthorized && h.server.countAuthFailure(r):
		failTooMany(w)
	case status == http.StatusUnauthorized && isForeignOrigin(r):
		fail(w, http.StatusForbidden, "UNAUTHORIZED", "requests from other origins are refused")
	case status < http.StatusBadRequest:
		_ = writeJSON(w, status, map[string]string{"status": message})
	default:
		refuseWebhook(w, status, message)
	}
}

// refuseWebhook answers with an error. For those that pass, it says when to send the request again.
func refuseWebhook(w http.ResponseWriter, status int, message string) {
	code := "INVALID_ARGUMENTS"
	switch status {
	case http.StatusUnauthorized:
		code = "AUTH_FAILED"
	case http.StatusServiceUnavailable:
		code = "INVALID_STATE"
		w.Header().Set("Retry-After", "30")
	case http.StatusTooManyRequests:
		code = "RATE_LIMITED"
		w.Header().Set("Retry-After", "60")
	}
	fail(w, status, code, message)
}

var errManyBodies = errors.New("too many requests at once; send it again")

// read reads a request's body. Its capacity is counted in h.bodies, also if there is an error. Memory is taken for what
// has come, not for what the sender announces.
func (h *webhooks) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(webhookTimeout))
	from := http.MaxBytesReader(w, r.Body, webhookMaxBody)
	var body []byte
	for {
		if len(body) == cap(body) {
			more := make([]byte, len(body), max(2*cap(body), 4<<10))
			if h.bodies.Add(int64(cap(more)-cap(body))) > webhookMaxBodies {
				h.bodies.Add(-int64(cap(more) - cap(body)))
				return body, errManyBodies
			}
			copy(more, body)
			body = more
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return body, err
		}
	}
}

// fewConns is a listener that hangs up on who has too many connections already.
type fewConns struct {
	net.Listener

	mu        sync.Mutex
	all       int
	byAddress map[string]int
}

// Accept implements [net.Listener].
func (l *fewConns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressSource(c.RemoteAddr().String())
		if l.admit(address) {
			return &fewConn{Conn: c, release: sync.OnceFunc(func() { l.release(address) })}, nil
		}
		_ = c.Close()
	}
}

func (l *fewConns) admit(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= webhookMaxConns || l.byAddress[address] >= webhookMaxConnsEach {
		return false
	}
	if l.byAddress == nil {
		l.byAddress = map[string]int{}
	}
	l.all++
	l.byAddress[address]++
	return true
}

func (l *fewConns) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byAddress[address]--; l.byAddress[address] == 0 {
		delete(l.byAddress, address)
	}
}

type fewConn struct {
	net.Conn

	release func()
}

// Close implements [net.Conn].
func (c *fewConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// isWebhook reports whether a request is for a webhook, whose sender shows a secret that no page has.
func isWebhook(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, webhookPrefix)
}
