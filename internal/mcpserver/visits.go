package mcpserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
)

const sessionHeader = "Mcp-Session-Id"

// visits are the clients of handshake revisions over HTTP, by their Mcp-Session-Id: many never say
// that they go.
type visits struct {
	mu   sync.Mutex // guards byID
	byID map[string]*visit
}

type visit struct {
	running int                           // requests, its stream among them
	last    time.Time                     // when the last one ended
	seen    time.Time                     // when the SDK got the last one
	calls   map[string]context.CancelFunc // that serveCall answers, by id
}

// seenEvery is how often the SDK gets a call of a client, so that clientTimeout begins again.
const seenEvery = clientTimeout / 24

// begin notes a request of a client. Call done at its end.
func (v *visits) begin(id string) (done func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byID == nil {
		v.byID = map[string]*visit{}
	}
	own := v.byID[id]
	if own == nil {
		own = &visit{seen: time.Now()} // at its handshake
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

// beginCall notes a call of a client that has a request, for serveCall. Call end at its end. end is
// nil if the SDK should have the call: it must hear of a client now and then, and the id of a call
// under way is refused there.
func (v *visits) beginCall(ctx context.Context, client, id string) (_ context.Context, end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.byID[client]
	switch {
	case own == nil, own.calls[id] != nil:
		return ctx, nil
	case time.Since(own.seen) > seenEvery:
		own.seen = time.Now()
		return ctx, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if own.calls == nil {
		own.calls = map[string]context.CancelFunc{}
	}
	own.calls[id] = cancel
	return ctx, func() {
		cancel()
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(own.calls, id)
	}
}

// cancel cancels a call of a client, and reports whether beginCall knows it.
func (v *visits) cancel(client, id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.byID[client]
	if own == nil || own.calls[id] == nil {
		return false
	}
	own.calls[id]()
	return true
}

// idlest forgets those who are gone, and returns the client that has asked for nothing for the
// longest time, or nil if each has a request that runs.
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

// makeRoom reports whether the endpoint takes another client. If it has too many, it ends the
// connection of one that is idle, which may shake hands again.
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
		if client := e.client(id); client != nil {
			defer e.visits.begin(id)()
			if r.Method == http.MethodPost && e.serveCall(w, r, client) {
				return
			}
		}
		e.legacy.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost && !e.makeRoom() {
		writeError(w, http.StatusTooManyRequests, &protocol.Error{Code: protocol.CodeRateLimited,
			Message: fmt.Sprintf("%d MCP clients are connected to this session already",
				maxClients)})
		return
	}
	e.legacy.ServeHTTP(w, r)
	if id := w.Header().Get(sessionHeader); id != "" {
		e.visits.begin(id)() // it may not come again
	}
}

// client returns the connected client with an Mcp-Session-Id, or nil.
func (e *endpoint) client(id string) *mcp.ServerSession {
	for client := range e.server.Sessions() {
		if client.ID() == id {
			return client
		}
	}
	return nil
}
