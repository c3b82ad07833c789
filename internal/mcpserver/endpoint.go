package mcpserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

const (
	// firstModern is the first revision without a handshake.
	firstModern = "2026-07-28"
	// clientTimeout ends the connection of a client of a handshake revision that asked for nothing
	// so long. It is long because some clients don't come back.
	clientTimeout = 24 * time.Hour
	// maxClients bounds the clients of handshake revisions at one endpoint. Another one takes the
	// place of the one that was idle for the longest time.
	maxClients = 256
	// syncPause is the least time between two looks at changed tools, and so between two messages
	// to a client that they have changed.
	syncPause = 50 * time.Millisecond
	// MaxBody bounds a request's body, and a message of tapgw mcp: a call with the longest
	// arguments.
	MaxBody = protocol.MaxMessage + 64<<10
)

const instructions = "These are the tools of a tapgw session, from the processes that are " +
	"connected to it. The list " +
	"changes while you work: list the tools again when you are told so. wait_for_event " +
	"waits for what a " +
	"stream gets, query reads what it got. Without a session there are no tools; start " +
	"one with tapctl " +
	"sessions start."

// endpoint is the MCP server of one session, or of the foreground session of each moment.
type endpoint struct {
	h *Handler
	target
	fixed  *gateway.Session    // nil for the foreground one
	info   *mcp.Implementation // of the server
	server *mcp.Server
	modern http.Handler // revisions without a handshake
	legacy http.Handler // handshake revisions
	ctx    context.Context
	cancel context.CancelFunc
	wires  sync.Map // *mcp.ServerSession: the context.Context of its WebSocket
	visits visits
	held   heldCalls
	news   news

	// Guarded by Handler.mu.
	users int         // requests that run
	idle  *time.Timer // nil before the first release

	mu        sync.Mutex // guards the fields below; held while the server's lists change
	seen      uint64     // ToolChanges at the last sync
	threshold int64      // at the last sync
	current   *gateway.Session
	endStream context.CancelFunc // of the watcher of current's streams, or nil
	offered   map[string]offer   // tools, by name
	streams   map[string]bool    // URIs of resources
	renamed   []string           // own tools that don't have their own name
	isSynced  bool
	isUntold  bool // the tools have changed, and clients don't know it
}

// offer is a tool as it is in the server's list.
type offer struct {
	key      string // equal for equal definitions
	results  *resultSchema
	isDirect bool // serveCall may answer its calls
	add      func()
}

func newEndpoint(h *Handler, of target, session *gateway.Session) *endpoint {
	e := &endpoint{h: h, target: of, fixed: session, offered: map[string]offer{},
		streams: map[string]bool{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.info = &mcp.Implementation{Name: "tapgw", Title: "tapgw session", Version: h.version}
	e.server = mcp.NewServer(e.info,
		&mcp.ServerOptions{
			Instructions: instructions,
			Capabilities: &mcp.ServerCapabilities{
				Tools: &mcp.ToolCapabilities{ListChanged: true},
				// the SDK answers prompts/list with an empty list
				Prompts:   &mcp.PromptCapabilities{},
				Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
			},
			InitializedHandler: e.countVisit,
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
			CompletionHandler:  e.complete,
			// Lists are of one session, and change at any time.
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
				c.TTLMs, c.CacheScope = 0, "private"
			},
		})
	e.server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "stream", URITemplate: streamTemplate, MIMEType: "application/json",
		Description: "The newest events of a stream of the session: STREAM or STREAM@PROVIDER.",
	}, e.readStream)
	e.server.AddReceivingMiddleware(e.traced, e.endWithWire, e.news.receiving)
	e.server.AddSendingMiddleware(e.news.sending)
	get := func(*http.Request) *mcp.Server { return e.server }
	// Host and Origin are checked by the server in front.
	e.modern = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true,
		PropagateRequestCancellation: true, DisableLocalhostProtection: true,
		MaxRequestBodyBytes: MaxBody})
	e.legacy = mcp.NewStreamableHTTPHandler(get,
		&mcp.StreamableHTTPOptions{SessionTimeout: clientTimeout,
			DisableLocalhostProtection: true, MaxRequestBodyBytes: MaxBody})
	h.running.Go(e.watchTools)
	return e
}

// session is the present session of the endpoint; nil if there is no such session.
func (e *endpoint) session() *gateway.Session {
	if e.fixed != nil {
		return e.fixed
	}
	s, _ := e.h.gateway.Foreground()
	return s
}

// serve answers one request.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case isWebSocket(r):
		e.serveWebSocket(w, r)
	case r.Method == http.MethodPost && r.Header.Get("MCP-Protocol-Version") >= firstModern:
		if !e.serveCall(w, r, nil) {
			e.modern.ServeHTTP(w, r)
		}
	default:
		e.serveHandshake(w, r)
	}
}

// clients counts the connected clients, of all revisions.
func (e *endpoint) clients() (n int) {
	for range e.server.Sessions() {
		n++
	}
	return n
}

// closeClients ends the connections of all clients, after their calls were answered.
func (e *endpoint) closeClients() {
	var wg sync.WaitGroup
	for client := range e.server.Sessions() {
		wg.Go(func() { _ = client.Close() })
	}
	wg.Wait()
}

// watchTools keeps the server's lists like the session's until the endpoint or its session ends.
// Requests sync too, so that they never see an old list; this is for clients that wait for a
// notification.
func (e *endpoint) watchTools() {
	for {
		n := e.h.gateway.ToolChanges()
		e.sync()
		e.tellChange()
		if e.isOver() {
			e.h.mu.Lock()
			e.h.remove(e)
			e.h.mu.Unlock()
			return
		}
		if chans.Sleep(e.ctx, syncPause) != nil || e.h.gateway.WaitToolChange(e.ctx, n) != nil {
			return
		}
	}
}

// isOver reports whether the endpoint's session is gone. The end of a session is a change of the
// tools.
func (e *endpoint) isOver() bool {
	if e.fixed == nil {
		return false
	}
	s, _ := e.h.gateway.Session(e.target.session)
	return s != e.fixed
}

// sync makes the server's tools and resources those of the session, if anything changed since the
// last time. watchTools tells clients of the tools, the SDK of the resources.
func (e *endpoint) sync() {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, threshold := e.h.gateway.ToolChanges(), e.h.threshold.Load() // before the tools are read
	if e.isSynced && n == e.seen && threshold == e.threshold {
		return
	}
	e.isSynced, e.seen, e.threshold = true, n, threshold
	s := e.session()
	if s != e.current {
		e.follow(s)
	}
	wanted, renamed := e.tools(s)
	e.reportRenamed(s, renamed)
	var gone []string
	isChanged := false
	for name := range e.offered {
		if _, ok := wanted[name]; !ok {
			gone = append(gone, name)
			delete(e.offered, name)
		}
	}
	if len(gone) > 0 {
		e.server.RemoveTools(gone...)
	}
	for name, o := range wanted {
		if e.offered[name].key != o.key {
			o.isDirect = e.add(name, o) && o.isDirect
			e.offered[name] = o
			isChanged = true
		}
	}
	if (isChanged || len(gone) > 0) && e.clients() > 0 {
		e.isUntold = true
	}
}

// add adds a tool to the server, and reports whether it did. The SDK panics at a schema that MCP
// does not allow, such as a bad x-mcp-header; a provider's tool must not end the gateway.
func (e *endpoint) add(name string, o offer) (isAdded bool) {
	defer func() {
		if fault := recover(); fault != nil {
			e.h.log.Warn("a tool is not offered to MCP clients", "tool", name, "fault",
				fmt.Sprint(fault))
		}
	}()
	o.add()
	return true
}

// reportRenamed notes own tools that don't have their name, when that changes. Call with mu held.
func (e *endpoint) reportRenamed(s *gateway.Session, renamed []string) {
	if slices.Equal(renamed, e.renamed) {
		return
	}
	e.renamed = renamed
	for _, text := range renamed {
		e.h.log.Warn("a provider has a tool of a name that MCP clients know", "session", s.ID(),
			"fault", text)
	}
	e.h.gateway.Touch() // the status shows them
}

// conflicts says which own tools don't have their name.
func (e *endpoint) conflicts() (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.renamed {
		list = append(list,
			"session "+e.current.ID()+" at /mcp: "+text+
				"; a prefix in the provider's file avoids that")
	}
	return list
}

// addOwnTools adds the endpoint's own tools to those of providers. A provider's tool keeps its
// name, because gates and prompts know it; the own tool is then offered with a prefix, or not at
// all.
func (e *endpoint) addOwnTools(
	tools map[string]offer, threshold int64, providers int,
) (renamed []string) {
	for _, t := range e.ownTools(int64(providers) > threshold) {
		name := t.name
		if _, taken := tools[name]; taken {
			name = "tapgw_" + t.name
			if _, taken := tools[name]; taken {
				renamed = append(
					renamed,
					fmt.Sprintf("providers have tools %q and %q, so the gateway's own is left out",
						t.name, name),
				)
				continue
			}
			renamed = append(renamed,
				fmt.Sprintf("a provider has a tool %q, so the gateway's own is %q", t.name, name))
		}
		tools[name] = offer{key: "own", add: func() { t.add(name) }}
	}
	slices.SortFunc(renamed, strings.Compare)
	return renamed
}
