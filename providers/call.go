package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/protocol"
)

// This file runs tool calls, so that each is answered exactly once.

// cancelGrace is how long the handler of a cancelled call may run on before the call is answered
// without it. The gateway frees the call's slot after 5 s.
const cancelGrace = 2 * time.Second

// Call describes the call that a tool's function answers. [CallFrom] returns it.
type Call struct {
	ID          string
	Session     string // the id of the calling session
	Tool        string
	Traceparent string // W3C trace context of the caller, or ""
	PersistDir  string // see [Binding.PersistDir]
}

type callKey struct{}

// CallFrom returns the call of a handler's context, and false for any other context.
func CallFrom(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return Call{}, false
	}
	return c.info, true
}

// Progress shows a line in the session's timeline while a call runs. ctx is the handler's context,
// or one made from it. Progress does not extend the call's timeout. It does nothing for an empty
// message, for other contexts, and after the call has ended.
func Progress(ctx context.Context, message string) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || message == "" || ctx.Err() != nil {
		return
	}
	select {
	case <-c.answered:
	default:
		if err := c.conn.write(ctx,
			&protocol.ToolProgress{ID: c.info.ID, Message: message}); err != nil {
			c.conn.log.Debug("progress not sent", "tool", c.info.Tool, "error", err)
		}
	}
}

// call is one tool.call, from its arrival to its result.
type call struct {
	conn   *conn
	info   Call
	args   json.RawMessage
	tool   Tool // as it was when the call arrived
	ctx    context.Context
	cancel context.CancelCauseFunc

	begun    atomic.Bool // the handler runs, or has run
	once     sync.Once
	answered chan struct{} // closed after the only answer
}

// run runs the handler and answers the call, also if the handler panics or ends its goroutine.
func (c *call) run() {
	result := failure(errors.New("the tool's function ended its goroutine"))
	defer func() { c.answer(result) }()
	c.begun.Store(true)
	if c.ctx.Err() != nil {
		return // the call was cancelled before it began
	}
	panicked := guard(c.conn.log.With("tool", c.info.Tool), "tool", func() {
		out, err := c.tool.Handler(c.ctx, c.args)
		var r *protocol.ToolResult
		if err == nil {
			r, err = success(out) // writing the result runs the user's code too
		}
		if err != nil {
			r = failure(err)
		}
		result = r
	})
	if panicked != nil {
		result = failure(fmt.Errorf("the tool %w", panicked))
	}
}

// abort cancels the call. If the handler does not return within cancelGrace, the call is answered
// without it.
func (c *call) abort(reason string) {
	c.cancel(&CancelError{reason})
	grace := cancelGrace
	if !c.begun.Load() {
		grace = 0
	}
	c.conn.run.wg.Go(func() {
		select {
		case <-c.answered:
		case <-c.conn.ctx.Done():
		case <-time.After(grace):
			c.answer(nil)
		}
	})
}

// answer sends the result of the call. Later answers are ignored, and a cancelled call is always
// answered as CANCELLED.
func (c *call) answer(r *protocol.ToolResult) {
	c.once.Do(func() {
		defer close(c.answered)
		if r == nil || c.ctx.Err() != nil {
			r = &protocol.ToolResult{Error: "Cancelled", ErrorCode: protocol.CodeCancelled}
		}
		c.cancel(nil)
		c.conn.removeCall(c)
		r.ID = c.info.ID
		err := c.conn.write(c.conn.ctx, r)
		if tooLarge, ok := errors.AsType[*Error](err); ok {
			err = c.conn.write(c.conn.ctx, &protocol.ToolResult{
				ID: r.ID, ErrorCode: protocol.CodeInternal,
				Error: tooLarge.Message + "; return a providers.File, or less",
			})
		}
		if err != nil {
			c.conn.log.Debug("result not sent", "tool", c.info.Tool, "call", r.ID, "error", err)
		}
	})
}

// handleCall starts a call.
func (c *conn) handleCall(m *protocol.ToolCall) {
	if m.ID == "" || m.Tool == "" {
		c.log.Warn("ignoring a call of the gateway without an id or a tool")
		return
	}
	call := &call{
		conn: c, args: []byte(m.Args),
		info: Call{ID: m.ID, Session: m.SessionID, Tool: m.Tool, Traceparent: m.Traceparent,
			PersistDir: c.persistDir},
		answered: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	call.ctx, call.cancel = context.WithValue(ctx, callKey{}, call), cancel
	var ok bool
	if call.tool, ok = c.run.p.tool(m.SessionID, m.Tool); !ok {
		call.tool.Handler = func(context.Context, json.RawMessage) (any, error) {
			return nil, NotFound("this provider has no tool %q", m.Tool)
		}
	}
	c.mu.Lock()
	_, twice := c.calls[m.ID]
	if !twice {
		c.calls[m.ID] = call
	}
	c.mu.Unlock()
	if twice {
		cancel(nil)
		c.log.Warn("ignoring a call that the gateway sent twice", "call", m.ID)
		return
	}
	c.run.calls.add("", call.run)
}

// removeCall removes a call that was answered.
func (c *conn) removeCall(done *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, done.info.ID)
}

// cancelCalls cancels the calls of a session and returns them.
func (c *conn) cancelCalls(session, reason string) []*call {
	c.mu.Lock()
	var calls []*call
	for _, call := range c.calls {
		if call.info.Session == session {
			calls = append(calls, call)
		}
	}
	c.mu.Unlock()
	for _, call := range calls {
		call.abort(reason)
	}
	return calls
}
