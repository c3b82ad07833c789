package mcpserver

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
)

const sessionHeader = "Mcp-Session-Id"

// visits are the clients of handshake revisions over HTTP, by their Mcp-Session-Id: many never say that they go.
type visits struct {
	mu   sync.Mutex // guards byID
	byID map[string]*visit
}

type visit struct {
	running int       // requests, its stream among them
	last    time.Time // when the last one ended
}

// begin notes a request of a client. Call done at its end.
func (v *visits) begin(id string) (done func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byID == nil {
		v.byID = map[string]*visit{}
	}
	own := v.byID[id]
	if own == nil {
		own = &visit{}
		v.byID[id] = own
	}
	own.running++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		own.running--
		own.last = time.Now()
	}
}

// idlest forgets those who are gone, and returns the client that has asked for nothing for the longest time, or
// nil if each has a request that runs.
func (v *visits) idlest(clients []*mcp.ServerSession) (idlest *mcp.ServerSession) {
	v.mu.Lock()
	defer v.mu.Unlock()
	here := map[string]*visit{}
	for _, client := range clients {
		visit := v.byID[client.ID()]
		if visit == nil { // of a newer revision, or at its handshake
			continue
		}
		here[client.ID()] = visit
		if visit.running == 0 && (idlest == nil || visit.last.Before(here[idlest.ID()].last)) {
			idlest = client
		}
	}
	v.byID = here
	return idlest
}

// makeRoom reports whether the endpoint takes another client. If it has too many, it ends the connection of one that
// is idle, which may shake hands again.
func (e *endpoint) makeRoom() bool {
	clients := slices.Collect(e.server.Sessions())
	idlest := e.visits.idlest(clients)
	switch {
	case len(clients) < maxClients:
		return true
	case idlest == nil:
		return false
	}
	_ = idlest.Close()
	return true
}

// serveHandshake answers a request of a revision with a handshake.
func (e *endpoint) serveHandshake(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get(sessionHeader); id != "" {
		if e.isClient(id) {
			defer e.visits.begin(id)()
		}
		e.legacy.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost && !e.makeRoom() {
		writeError(w, http.StatusTooManyRequests, &protocol.Error{Code: protocol.CodeRateLimited,
			Message: fmt.Sprintf("%d MCP clients are connected to this session already", maxClients)})
		return
	}
	e.legacy.ServeHTTP(w, r)
	if id := w.Header().Get(sessionHeader); id != "" {
		e.visits.begin(id)() // it may not come again
	}
}

// isClient reports whether a client with an Mcp-Session-Id is connected.
func (e *endpoint) isClient(id string) bool {
	for client := range e.server.Sessions() {
		if client.ID() == id {
			return true
		}
	}
	return false
}
