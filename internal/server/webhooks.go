package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const webhookPrefix = "/hooks/"

// Limits of requests to /hooks/NAME, which may come from anywhere and without a secret.
const (
	webhookMaxBody = 1 << 20 // bytes
	// webhookMaxBodies is how many bodies of more than webhookSmallBody bytes are read at a time:
	// they are in memory before their senders are known.
	webhookMaxBodies     = 64
	webhookSmallBody     = 64 << 10
	webhookHeaderTimeout = 5 * time.Second
	webhookBodyTimeout   = 10 * time.Second
	webhookTimeout       = 15 * time.Second // for the next request of a connection
)

// WebhookFunc takes a request to /hooks/NAME. It returns the answer's HTTP status, 401 for
// everything but a right secret, and a line for the sender.
type WebhookFunc func(ctx context.Context, name string, h http.Header, body []byte) (status int,
	message string)

// webhooks serves /hooks/NAME: on the gateway's own port, and at a listener that serves nothing
// else.
type webhooks struct {
	server    *Server
	take      WebhookFunc
	http      *http.Server // of the listeners
	listeners []net.Listener
	unproven  unproven // at the listeners
	bodies    unproven // connections from which a large body is read
}

func newWebhooks(s *Server, take WebhookFunc) *webhooks {
	h := &webhooks{server: s, take: take}
	h.unproven.log, h.unproven.what, h.unproven.groupOf = s.log, "connections for webhooks",
		sourceOf
	h.bodies.log, h.bodies.what, h.bodies.groupOf = s.log, "senders of webhooks with half a body",
		sourceOf
	h.unproven.setLimit(maxUnproven)
	h.bodies.setLimit(webhookMaxBodies)
	mux := http.NewServeMux()
	mux.Handle(webhookPrefix+"{name}", h)
	mux.HandleFunc("/", notFound)
	h.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			setSafeHeaders(w.Header())
			mux.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: webhookHeaderTimeout,
		ReadTimeout:       webhookBodyTimeout,
		WriteTimeout:      2 * webhookTimeout,
		IdleTimeout:       webhookTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       contextWithConn,
		ConnState:         followState,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          s.http.ErrorLog,
	}
	return h
}

// ListenWebhooks binds an address that serves /hooks/NAME and nothing else, as [Server.Listen]
// binds one for everything. Call it before Serve. It returns the address that it got.
func (s *Server) ListenWebhooks(addr string) (net.Addr, error) {
	list, _, err := listen(addr, nil)
	if err != nil {
		return nil, err
	}
	s.webhooks.listeners = append(s.webhooks.listeners, list...)
	return list[0].Addr(), nil
}

// webhooksURL is the address that serves webhooks alone, or "".
func (s *Server) webhooksURL() string {
	if s.webhooks == nil || len(s.webhooks.listeners) == 0 {
		return ""
	}
	scheme := "http"
	if s.o.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + s.webhooks.listeners[0].Addr().String()
}

// ServeHTTP implements [http.Handler] for /hooks/NAME. A sender without a secret can't learn which
// names exist.
func (h *webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.server.draining.Load() {
		refuseWebhook(w, http.StatusServiceUnavailable,
			"the gateway is shutting down; send it again")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "INVALID_STATE", "only POST")
		return
	}
	body, err := h.read(w, r)
	if _, isLong := errors.AsType[*http.MaxBytesError](err); isLong {
		fail(w, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE",
			"the body has more than 1 MiB")
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "INVALID_ARGUMENTS", "reading the body failed")
		return
	}
	status, message := h.take(r.Context(), r.PathValue("name"), r.Header, body)
	if status != http.StatusUnauthorized {
		prove(r)
	}
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

// read reads a request's body. The memory grows with the bytes that have come, not with the
// announced length.
func (h *webhooks) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(webhookBodyTimeout))
	from := http.MaxBytesReader(w, r.Body, webhookMaxBody)
	body, err := io.ReadAll(io.LimitReader(from, webhookSmallBody+1))
	if err != nil || len(body) <= webhookSmallBody {
		return body, err
	}
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		h.bodies.enter(c)
		defer h.bodies.leave(c)
	}
	rest, err := io.ReadAll(from)
	return append(body, rest...), err
}

// isWebhook reports whether a request is for a webhook, whose sender shows a secret that no page
// has.
func isWebhook(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, webhookPrefix)
}
