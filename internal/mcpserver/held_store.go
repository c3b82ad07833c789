package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxHeldCalls bounds the held calls of an endpoint. The questions of a call beyond them wait
	// elsewhere.
	maxHeldCalls = 100
	// maxHeldBytes bounds the results that wait for the clients of an endpoint: there is room for
	// the largest file.
	maxHeldBytes = 128 << 20
)

// caller tells clients apart by their tokens. It is no secret.
type caller [sha256.Size]byte

type callerKey struct{}

// withCaller notes in a request's context who makes it.
func withCaller(r *http.Request) *http.Request {
	c := caller(sha256.Sum256([]byte(r.Header.Get("Authorization"))))
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// heldCalls are the calls of an endpoint that are held for their clients. Its lock is a leaf.
type heldCalls struct {
	mu    sync.Mutex // guards the fields below
	byID  map[string]*heldCall
	sizes map[*heldCall]int // of the results that are kept
}

// add adds a call. It reports false if there are too many, or the endpoint has ended.
func (l *heldCalls) add(c *heldCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byID) >= maxHeldCalls || c.e.ctx.Err() != nil {
		return false
	}
	if l.byID == nil {
		l.byID, l.sizes = map[string]*heldCall{}, map[*heldCall]int{}
	}
	l.byID[c.id] = c
	return true
}

// find returns a call that a caller began, or nil.
func (l *heldCalls) find(of caller, id string) *heldCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byID[id]; c != nil && c.caller == of {
		return c
	}
	return nil
}

// keep reports whether there is room for the result of a call, and counts it until the call is
// removed.
func (l *heldCalls) keep(c *heldCall, result *mcp.CallToolResult) bool {
	data, err := json.Marshal(result)
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(data)
	for _, n := range l.sizes {
		size += n
	}
	if err != nil || size > maxHeldBytes || l.byID[c.id] != c {
		return false
	}
	l.sizes[c] = len(data)
	return true
}

// remove removes a call, if it is there.
func (l *heldCalls) remove(c *heldCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, c.id)
	delete(l.sizes, c)
}

// all returns the calls.
func (l *heldCalls) all() []*heldCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byID))
}
