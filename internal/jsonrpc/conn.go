// Package jsonrpc is JSON-RPC 2.0 as language servers speak it: Content-Length
// frames on two pipes, over sourcegraph/jsonrpc2.
//
// Notifications are handled in order on the reading goroutine, before any
// response that follows them; requests run on goroutines of their own. A call
// whose context ends is cancelled on the other side, too. When the connection
// ends, every call that waits and every later one gets the same error.
package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Codes of errors that this package answers with or looks at.
const (
	CodeInvalidRequest   = -32600
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternal         = -32603
	CodeBusy             = -32000 // more than Options.MaxRequests at a time
	CodeRequestCancelled = -32800
)

// Error is an error that one side answers a request with.
type Error struct {
	Code    int
	Message string
}

// Error returns the message alone: what it is about is the caller's to say.
func (e *Error) Error() string { return e.Message }

// ErrClosed is the end of a connection that this side closed.
var ErrClosed = errClosedByUs

// Options of a connection. The zero value refuses every request.
type Options struct {
	// OnNotify gets each notification, on the goroutine that reads: it must not
	// wait for anything, least of all for a call. It may send.
	OnNotify func(method string, params json.RawMessage)
	// OnRequest answers a request, on a goroutine of its own, with a value to
	// encode, an [*Error], or another error, which becomes one. It ends when ctx
	// does: the other side cancelled the request, or the connection ended. nil,
	// like an unknown method, is for it to answer with CodeMethodNotFound.
	OnRequest func(ctx context.Context, method string, params json.RawMessage) (any, error)
	// Cause words the end of the connection for those that wait for an answer:
	// err is what reading or writing ended with, or ErrClosed. It may wait to find
	// out.
	Cause func(err error) error

	MaxMessage  int // bytes, either way; 0: 64 MiB
	MaxRequests int // of the other side at a time; 0: 256
}

// cancelGrace is how long a cancelled call waits for its answer, unless it says.
const cancelGrace = time.Second

// Conn is one end of a connection.
type Conn struct {
	// Fixed at start.
	o      Options
	rpc    *jsonrpc2.Conn
	stream *stream
	ctx    context.Context // of requests
	cancel context.CancelFunc
	done   chan struct{}

	lastID  atomic.Uint64 // ours begin at 1: 0 is "not set" to jsonrpc2
	running sync.WaitGroup
	err     error // of the end; set before done is closed

	mu       sync.Mutex // guards the fields that follow
	closing  bool       // no request is begun any more
	requests map[jsonrpc2.ID]context.CancelFunc
}

// New starts a connection on rwc, which it closes at its end.
func New(rwc io.ReadWriteCloser, o Options) *Conn {
	if o.MaxMessage == 0 {
		o.MaxMessage = 64 << 20
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 256
	}
	c := &Conn{o: o, stream: newStream(rwc, o.MaxMessage), done: make(chan struct{}), requests: map[jsonrpc2.ID]context.CancelFunc{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	// The handler may run before NewConn returns: it waits for c.rpc.
	ready := make(chan struct{})
	c.rpc = jsonrpc2.NewConn(context.Background(), c.stream, handler(func(r *jsonrpc2.Request) {
		<-ready
		c.handle(r)
	}), jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	close(ready)
	go c.watch()
	return c
}

// watch sees to the end of the connection.
func (c *Conn) watch() {
	<-c.rpc.DisconnectNotify()
	c.cancel()
	c.err = c.stream.why()
	if c.o.Cause != nil {
		c.err = c.o.Cause(c.err)
	}
	close(c.done)
}

// Close ends the connection and waits for the requests that it was answering.
// It must not be called from OnNotify or OnRequest.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.stream.fail(ErrClosed) // first, so that it is the reason
	_ = c.rpc.Close()
	<-c.done
	c.running.Wait()
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended. It waits for the end.
func (c *Conn) Err() error {
	<-c.done
	return c.err
}

// Notify sends a notification. Without params it sends {}.
func (c *Conn) Notify(method string, params any) error {
	if err := c.rpc.Notify(context.Background(), method, orObject(params)); err != nil {
		return c.explain(method, err)
	}
	return nil
}

// Call sends a request and decodes its result; without params it sends {}. The
// other side's refusal is an [*Error].
//
// When ctx ends, the other side is asked to cancel, and its answer is waited for
// a second: a result is still decoded and no error, for the caller has ctx to
// look at; without one the error is the context's.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	return c.CallWithin(ctx, cancelGrace, method, params, result)
}

// CallWithin is [Conn.Call] with another time to wait for the answer to a call
// that was cancelled.
func (c *Conn) CallWithin(ctx context.Context, grace time.Duration, method string, params, result any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
	id := jsonrpc2.ID{Num: c.lastID.Add(1)}
	w, err := c.rpc.DispatchCall(ctx, method, orObject(params), jsonrpc2.PickID(id))
	if err != nil {
		return c.explain(method, err)
	}
	if err = w.Wait(ctx, result); err == nil || !errors.Is(err, ctx.Err()) {
		return c.explain(method, err)
	}
	_ = c.rpc.Notify(context.Background(), "$/cancelRequest", map[string]any{"id": id.Num})
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err = c.explain(method, w.Wait(late, result))
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer within %v of its cancellation: %w", method, grace, context.Cause(ctx))
	}
	if _, refused := errors.AsType[*Error](err); refused {
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
	return err
}

func orObject(params any) any {
	if params == nil {
		return struct{}{}
	}
	return params
}

// explain turns jsonrpc2's errors into this package's.
func (c *Conn) explain(method string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jsonrpc2.ErrClosed) {
		<-c.done
		err = c.err
	} else if e, ok := errors.AsType[*jsonrpc2.Error](err); ok {
		err = &Error{Code: int(e.Code), Message: e.Message}
	}
	return fmt.Errorf("%s: %w", method, err)
}

type handler func(*jsonrpc2.Request)

// Handle implements jsonrpc2.Handler. It runs on the goroutine that reads.
func (h handler) Handle(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) { h(r) }

func (c *Conn) handle(r *jsonrpc2.Request) {
	method, params := r.Method, json.RawMessage(c.stream.params)
	switch {
	case r.Notif && method == "$/cancelRequest":
		c.cancelRequest(params)
	case r.Notif:
		if c.o.OnNotify != nil {
			c.o.OnNotify(method, params)
		}
	default:
		ctx, refused := c.enter(r.ID)
		if refused != nil {
			c.reply(r.ID, nil, refused)
			return
		}
		go func() {
			defer c.leave(r.ID)
			result, err := c.answer(ctx, method, params)
			c.reply(r.ID, result, err)
		}()
	}
}

func (c *Conn) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if c.o.OnRequest == nil {
		return nil, &Error{CodeMethodNotFound, "no method " + method}
	}
	return c.o.OnRequest(ctx, method, params)
}

// reply answers a request. A result that can't be encoded becomes an error.
func (c *Conn) reply(id jsonrpc2.ID, result any, err error) {
	if err == nil {
		if err = c.rpc.Reply(context.Background(), id, result); err == nil || c.ended() {
			return
		}
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{CodeInternal, err.Error()}
	}
	_ = c.rpc.ReplyWithError(context.Background(), id, &jsonrpc2.Error{Code: int64(e.Code), Message: e.Message})
}

func (c *Conn) ended() bool {
	select {
	case <-c.rpc.DisconnectNotify():
		return true
	default:
		return false
	}
}

// enter counts a request in and returns its context.
func (c *Conn) enter(id jsonrpc2.ID) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return nil, ErrClosed
	case len(c.requests) >= c.o.MaxRequests:
		return nil, &Error{CodeBusy, fmt.Sprintf("%d requests are being answered: try again", c.o.MaxRequests)}
	case c.requests[id] != nil:
		return nil, &Error{CodeInvalidRequest, fmt.Sprintf("request %s is being answered already", id)}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.requests[id] = cancel
	c.running.Add(1)
	return ctx, nil
}

func (c *Conn) leave(id jsonrpc2.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[id]()
	delete(c.requests, id)
	c.running.Done()
}

func (c *Conn) cancelRequest(params json.RawMessage) {
	var p struct {
		ID jsonrpc2.ID `json:"id"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.requests[p.ID]; cancel != nil {
		cancel()
	}
}
