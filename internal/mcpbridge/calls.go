package mcpbridge

import (
	"context"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"tapgw/internal/visible"
	"tapgw/providers"
)

// progressRate is how many lines a second a call shows of its server's progress messages.
const progressRate = 5

// call is a call that the server runs.
type call struct {
	token   string
	ctx     context.Context
	session string
	id      string        // of the gateway's call
	limit   *rate.Limiter // of progress
}

// calls are the calls that a server runs, by progress token.
type calls struct {
	mu    sync.Mutex // guards the fields that follow
	count uint64
	byKey map[string]*call
}

// begin adds a call. Call done when it has ended.
func (c *calls) begin(ctx context.Context) (started *call, done func()) {
	info, _ := providers.CallFrom(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	started = &call{
		token: fmt.Sprintf("t%d", c.count), ctx: ctx, session: info.Session, id: info.ID,
		limit: rate.NewLimiter(progressRate, progressRate),
	}
	if c.byKey == nil {
		c.byKey = map[string]*call{}
	}
	c.byKey[started.token] = started
	return started, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.byKey, started.token)
	}
}

// isRunning reports whether the server runs a call.
func (c *calls) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey) > 0
}

// find returns the call with a progress token, or nil.
func (c *calls) find(token any) *call {
	text, _ := token.(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[text]
}

// only returns a call of the only session that has some, the latest, or nil; alone says that no
// other call runs.
func (c *calls) only() (found *call, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.byKey {
		if found != nil && found.session != call.session {
			return nil, false
		}
		if found == nil || len(call.token) > len(found.token) ||
			len(call.token) == len(found.token) && call.token > found.token {
			found = call
		}
	}
	return found, len(c.byKey) == 1
}

// progress shows a server's progress message about a call in the call's session.
func (u *upstream) progress(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	p := req.Params
	call := u.calls.find(p.ProgressToken)
	if call == nil || !call.limit.Allow() {
		return
	}
	message := visible.Line(shorten(p.Message, maxReason))
	switch {
	case p.Total > 0:
		message = fmt.Sprintf("%g of %g %s", p.Progress, p.Total, message)
	case message == "":
		message = fmt.Sprintf("%g", p.Progress)
	}
	providers.Progress(call.ctx, message)
}
