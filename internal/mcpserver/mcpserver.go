// Package mcpserver makes each session of a gateway an MCP server: its providers' tools, its
// streams as resources, and tools to push, to read streams and to wait for events. One URL answers
// all revisions of the protocol that the SDK knows. The server in front of [Handler] has checked
// the caller's token, Host, Origin and body; docs/mcp.md is for users.
//
// A session costs nothing here before its first request. From then on it has an [endpoint]: one
// [mcp.Server] and its watchers, until the session ends or the endpoint has been unused for
// idleTime.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// DefaultToolThreshold is how many tools of providers a session may have until it offers
// search_tools, describe_tool and call_tool instead of the tools themselves.
const DefaultToolThreshold = 60

// idleTime is how long an endpoint stays without a request and without a client.
const idleTime = 5 * time.Minute

// Options configure a [Handler].
type Options struct {
	Gateway       *gateway.Gateway
	Log           *slog.Logger // nil: nothing is logged
	Version       string       // of the program, for clients
	ToolThreshold int          // see [DefaultToolThreshold]; 0: the tools are always searched
	Terminals     Terminals    // nil: terminals can't join
}

// Terminals knows the Copilot CLIs that people run in terminals, which are sessions of the gateway.
type Terminals interface {
	// Join makes the CLI's session one of the gateway until leave is called; if the CLI has joined
	// in other ways too, until these end. pid is the CLI's process, 0 if it is unknown.
	Join(ctx context.Context, session string, pid int, cwd string) (leave func(), err error)
	// HasLink reports whether the CLI gets the tools of providers in another way. A change counts
	// in [gateway.Gateway.ToolChanges].
	HasLink(session string) bool
}

// Handler serves the sessions of a gateway as MCP servers. The path value "id" of a request names
// the session; without one it is the foreground session of each moment. The path value "terminal"
// names the session of a Copilot CLI that has started tapgw mcp. Make it with [New], end it with
// [Handler.Close].
type Handler struct {
	gateway   *gateway.Gateway
	terminals Terminals
	log       *slog.Logger
	version   string
	threshold atomic.Int64
	running   sync.WaitGroup // goroutines of endpoints

	mu        sync.Mutex // guards the fields below
	endpoints map[target]*endpoint
	isClosed  bool
}

// target is the session that an endpoint serves.
type target struct {
	session  string // its id; "" for the foreground session
	terminal bool   // to the session's own CLI
}

// New makes a handler. It starts nothing before the first request.
func New(o Options) *Handler {
	h := &Handler{gateway: o.Gateway, terminals: o.Terminals, log: o.Log, version: o.Version,
		endpoints: map[target]*endpoint{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.threshold.Store(int64(o.ToolThreshold))
	return h
}

// Configure changes the threshold of [Options] for sessions that run already, too.
func (h *Handler) Configure(toolThreshold int) {
	h.threshold.Store(int64(toolThreshold))
	for _, e := range h.list() {
		e.sync()
		e.tellChange()
	}
}

// ServeHTTP answers a request of the streamable HTTP transport, or a WebSocket of tapgw mcp. A
// session that does not exist is 404.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of := target{session: r.PathValue("id")}
	if id := r.PathValue("terminal"); id != "" {
		of = target{session: id, terminal: true}
		leave, err := h.join(id, r)
		if err != nil {
			writeError(w, statusOf(err), err)
			return
		}
		defer leave()
	}
	e, err := h.acquire(of)
	if err != nil {
		writeError(w, http.StatusNotFound, err)
		return
	}
	defer h.release(e)
	e.sync()
	e.serve(w, withCaller(r))
}

// join makes the CLI that has started tapgw mcp a terminal of the gateway.
func (h *Handler) join(session string, r *http.Request) (leave func(), err error) {
	query := r.URL.Query()
	pid, err := strconv.Atoi(query.Get("pid"))
	switch {
	case h.terminals == nil || !isWebSocket(r):
		return nil, &protocol.Error{Code: protocol.CodeInvalidState,
			Message: "this is for tapgw mcp in a terminal"}
	case err != nil:
		return nil, &protocol.Error{Code: protocol.CodeInvalidArguments,
			Message: "pid: must be a number"}
	}
	return h.terminals.Join(r.Context(), session, pid, query.Get("cwd"))
}

// statusOf is the HTTP status of an error of [Terminals.Join].
func statusOf(err error) int {
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Code == protocol.CodeInvalidState {
		return http.StatusConflict
	}
	return http.StatusBadRequest
}

// acquire returns the endpoint of a session, and keeps it until release. It makes it if it is the
// first request.
func (h *Handler) acquire(of target) (*endpoint, error) {
	var session *gateway.Session
	if of.session != "" {
		s, ok := h.gateway.Session(of.session)
		if !ok {
			return nil, &protocol.Error{Code: protocol.CodeInvalidSession,
				Message: fmt.Sprintf("session %q does not exist", of.session)}
		}
		session = s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isClosed {
		return nil, &protocol.Error{Code: protocol.CodeInvalidState,
			Message: "the gateway is shutting down"}
	}
	e := h.endpoints[of]
	// an earlier session had the same id, and is about to be removed
	if e != nil && e.fixed != session {
		h.remove(e)
		e = nil
	}
	if e == nil {
		e = newEndpoint(h, of, session)
		h.endpoints[of] = e
	}
	e.users++
	return e, nil
}

// release ends the use of an endpoint. An endpoint that stays unused for idleTime is removed.
func (h *Handler) release(e *endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.users--; e.users > 0 || h.endpoints[e.target] != e {
		return
	}
	if e.idle == nil {
		e.idle = time.AfterFunc(idleTime, func() { h.removeIdle(e) })
		return
	}
	e.idle.Reset(idleTime)
}

// removeIdle removes an unused endpoint: no request runs, no client of a handshake revision is
// connected, and it holds no call.
func (h *Handler) removeIdle(e *endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case e.users > 0 || h.endpoints[e.target] != e:
	case e.clients() > 0 || len(e.held.all()) > 0:
		e.idle.Reset(idleTime)
	default:
		h.remove(e)
	}
}

// remove ends an endpoint: its watchers, its held calls and its clients' connections. Calls under
// way are answered first. Call with mu held.
func (h *Handler) remove(e *endpoint) {
	if h.endpoints[e.target] != e {
		return
	}
	delete(h.endpoints, e.target)
	if e.idle != nil {
		e.idle.Stop()
	}
	e.cancel()
	for _, c := range e.held.all() {
		c.drop()
	}
	if !h.isClosed {
		h.running.Go(e.closeClients)
	}
}

func (h *Handler) list() []*endpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*endpoint, 0, len(h.endpoints))
	for _, e := range h.endpoints {
		list = append(list, e)
	}
	return list
}

// Faults say which of the server's own tools have another name in a session, or are missing,
// because a provider has a tool of that name.
func (h *Handler) Faults() (faults []string) {
	for _, e := range h.list() {
		faults = append(faults, e.conflicts()...)
	}
	return faults
}

// Close ends all endpoints and waits for their goroutines. Requests that come later get 404. The
// sessions have ended before, so that no call is under way.
func (h *Handler) Close() {
	h.mu.Lock()
	var ended []*endpoint
	for _, e := range h.endpoints {
		ended = append(ended, e)
	}
	h.isClosed = true
	for _, e := range ended {
		h.remove(e)
	}
	h.mu.Unlock()
	for _, e := range ended {
		e.mu.Lock()   // a sync that began before the end has started its watchers
		e.mu.Unlock() //nolint:staticcheck // see above
		e.closeClients()
	}
	h.running.Wait()
}

// writeError answers as the server's other paths do.
func writeError(w http.ResponseWriter, status int, err error) {
	failure := adminapi.Failure{Code: string(protocol.CodeInternal), Message: err.Error()}
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		failure.Code, failure.Message = string(e.Code), e.Message
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(adminapi.Error{Error: failure})
}

// isWebSocket reports whether a request asks for a WebSocket.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// maxLine bounds the result of shortLine, in bytes.
const maxLine = 1 << 10

// shortLine is a text of a client, for people, in one line.
func shortLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " …"
	}
	return visible.Line(text)
}
