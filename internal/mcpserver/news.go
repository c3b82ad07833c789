package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const methodToolsChanged = "notifications/tools/list_changed"

// tellTime bounds how long a client may take to read that the tools have changed.
const tellTime = 10 * time.Second

// news tells clients that an endpoint's tools have changed. The SDK would wait another 10 ms, and
// longer while they change more often than that; syncPause bounds their number already.
type news struct {
	send      mcp.MethodHandler // the SDK's
	listeners sync.Map          // *mcp.ServerSession that listens: the id of its request
}

// sending is the SDK's middleware for what it sends. It drops what the SDK tells of tools.
func (n *news) sending(next mcp.MethodHandler) mcp.MethodHandler {
	n.send = next
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch p := r.GetParams().(type) {
		case *mcp.ToolListChangedParams:
			return nil, nil
		case *mcp.SubscriptionsAcknowledgedParams:
			if p.Notifications.ToolsListChanged {
				n.listeners.Store(r.GetSession(), p.Meta[mcp.MetaKeySubscriptionID])
			}
		}
		return next(ctx, method, r)
	}
}

// receiving is the SDK's middleware for requests. It forgets a client at the end of its listening.
func (n *news) receiving(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method == methodListen {
			defer n.listeners.Delete(r.GetSession())
		}
		return next(ctx, method, r)
	}
}

// tellChange tells the clients that the tools have changed, if they have since the last time.
// Clients of revisions without a handshake are told only if they listen.
func (e *endpoint) tellChange() {
	e.mu.Lock()
	isUntold := e.isUntold
	e.isUntold = false
	e.mu.Unlock()
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	if !isUntold || e.h.isClosed {
		return
	}
	e.h.running.Go(func() {
		ctx, cancel := context.WithTimeout(e.ctx, tellTime)
		defer cancel()
		for client := range e.server.Sessions() {
			p := &mcp.ToolListChangedParams{}
			if id, ok := e.news.listeners.Load(client); ok {
				p.Meta = mcp.Meta{mcp.MetaKeySubscriptionID: id}
			} else if isModern(client) {
				continue
			}
			_, _ = e.news.send(ctx, methodToolsChanged,
				&mcp.ServerRequest[*mcp.ToolListChangedParams]{Session: client, Params: p})
		}
	})
}

// isModern reports whether a client is of a revision without a handshake, or has not shaken hands
// yet.
func isModern(client *mcp.ServerSession) bool {
	p := client.InitializeParams()
	return p == nil || p.ProtocolVersion >= firstModern
}
