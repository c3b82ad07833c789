// Package jsonrpc is JSON-RPC 2.0 as language servers speak it: Content-Length frames on two pipes,
// over sourcegraph/jsonrpc2.
//
// Notifications are handled in order on the reading goroutine, before any response that follows
// them; requests run on goroutines of their own. When a call's context ends, the other side is
// asked to cancel it. When the connection ends, all calls get the same error.
//
// The session hosts' JSON-RPC is another: one object in each text frame of a WebSocket. Its code is
// in internal/server (rpc.go), which explains why the two have no common code.
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

	"tapgw/internal/chans"
)

// Codes of errors in responses, as JSON-RPC 2.0 defines them; CodeBusy is this package's own.
// OnRequest may answer with any code in an [Error].
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeBusy           = -32000 // more than Options.MaxRequests at a time
)

// Error is the error of a response, from either side. Code is one of the codes above or the other
// side's own; Message is for people.
type Error struct {
	Code    int
	Message string
}

// Error implements error. It returns the message without the code.
func (e *Error) Error() string { return e.Message }

// ErrClosed is the reason for the end of a connection that this side closed with [Conn.Close].
// Options.Cause may replace it in the errors of calls.
var ErrClosed = errors.New("the connection was closed")

// Options configure a connection. The zero value drops notifications and refuses every request with
// CodeMethodNotFound. The functions must be ready before [New], which may call them before it
// returns.
type Options struct {
	// OnNotify gets each notification on the goroutine that reads. It must not block or wait for a
	// call; it may send.
	OnNotify func(method string, params json.RawMessage)
	// OnRequest answers a request on a goroutine of its own: with a value to encode, an [*Error],
	// or another error, which becomes one with CodeInternal. ctx ends when the other side cancels
	// the request or the connection ends. OnRequest answers unknown methods with
	// CodeMethodNotFound; nil does so for all.
	OnRequest func(ctx context.Context, method string, params json.RawMessage) (any, error)
	// Cause returns the error that calls get when the connection has ended. err is why reading or
	// writing ended, or [ErrClosed]. It may block to find the cause. nil: err itself.
	Cause func(err error) error

	MaxMessage  int // bytes of a message in either direction; 0: [MaxMessage]
	MaxRequests int // requests of the other side at a time; 0: 256
}

// cancelGrace is how long [Conn.Call] waits for the answer to a call that it cancelled.
const cancelGrace = time.Second

// Conn is one end of a connection. Its methods may be called from any goroutine, but OnNotify must
// not call Close, Call or Err, because it runs on the goroutine that reads.
type Conn struct {
	// Fixed at start.
	options Options
	rpc     *jsonrpc2.Conn
	stream  *stream
	ctx     context.Context // of the other side's requests
	cancel  context.CancelFunc
	done    chan struct{}

	// of this side's requests; they begin at 1, since jsonrpc2 takes 0 for unset
	lastID  atomic.Uint64
	running sync.WaitGroup
	err     error // why the connection ended; set before done is closed

	mu       sync.Mutex // guards the fields that follow
	closing  bool       // Close was called: requests are refused
	requests map[jsonrpc2.ID]context.CancelFunc
}

// New starts a connection over transport, usually a pair of pipes, and reads from it at once. It
// closes transport when the connection ends. [Conn.Close] must be called in any case, also after
// the other side's end.
func New(transport io.ReadWriteCloser, o Options) *Conn {
	if o.MaxMessage == 0 {
		o.MaxMessage = MaxMessage
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 256
	}
	c := &Conn{
		options: o, stream: newStream(transport, o.MaxMessage),
		done: make(chan struct{}), requests: map[jsonrpc2.ID]context.CancelFunc{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	// The handler may run before NewConn returns: it waits for c.rpc.
	ready := make(chan struct{})
	c.rpc = jsonrpc2.NewConn(context.Background(), c.stream, handler(func(r *jsonrpc2.Request) {
		<-ready
		c.handle(r)
	}), jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	close(ready)
	go c.awaitEnd()
	return c
}

// awaitEnd waits until the connection ends, and makes [Conn.Err] and Done show it.
func (c *Conn) awaitEnd() {
	<-c.rpc.DisconnectNotify()
	c.cancel()
	c.err = c.stream.endReason()
	if c.options.Cause != nil {
		c.err = c.options.Cause(c.err)
	}
	close(c.done)
}

// Close ends the connection and waits until OnRequest has returned for all requests. Messages that
// wait to be written are lost. It must not be called from OnNotify or OnRequest.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.stream.fail(ErrClosed) // before the stream finds another reason
	_ = c.rpc.Close()
	<-c.done
	c.running.Wait()
}

// Done is closed when the connection has ended, by either side or by an error, and Options.Cause
// has returned.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err waits for the end of the connection and returns its reason, as Options.Cause words it. It is
// never nil unless Cause returns nil.
func (c *Conn) Err() error {
	<-c.done
	return c.err
}

// Notify sends a notification; nil params are sent as {}. It only queues: the error is for params
// that can't be encoded, and for a connection that has ended.
func (c *Conn) Notify(method string, params any) error {
	if err := c.rpc.Notify(context.Background(), method, orEmptyObject(params)); err != nil {
		return c.explain(method, err)
	}
	return nil
}

// Call sends a request and decodes its result; nil params are sent as {}. An error response is an
// [*Error].
//
// When ctx ends, Call asks the other side to cancel and waits one more second. A result that comes
// then is decoded without an error, and the caller looks at ctx; otherwise the error wraps the
// context's cause.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	return c.CallWithin(ctx, cancelGrace, func() {}, method, params, result)
}

// CallWithin is [Conn.Call] with grace in place of a second: the time to wait for the answer after
// the cancellation. It is for requests that the other side ends slowly. When ctx ends, it calls
// cancelled once: messages that are sent from then on reach the other side after the cancellation.
func (c *Conn) CallWithin(ctx context.Context, grace time.Duration, cancelled func(), method string,
	params, result any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
	id := jsonrpc2.ID{Num: c.lastID.Add(1)}
	w, err := c.rpc.DispatchCall(ctx, method, orEmptyObject(params), jsonrpc2.PickID(id))
	if err != nil {
		return c.explain(method, err)
	}
	if err = w.Wait(ctx, result); err == nil || !errors.Is(err, ctx.Err()) {
		return c.explain(method, err)
	}
	_ = c.rpc.Notify(context.Background(), "$/cancelRequest", map[string]any{"id": id.Num})
	cancelled()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err = c.explain(method, w.Wait(late, result))
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer within %v of its cancellation: %w", method, grace,
			context.Cause(ctx))
	}
	if _, refused := errors.AsType[*Error](err); refused {
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
	return err
}

func orEmptyObject(params any) any {
	if params == nil {
		return struct{}{}
	}
	return params
}

// explain turns an error of jsonrpc2 into one of this package, below method.
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
		if c.options.OnNotify != nil {
			c.options.OnNotify(method, params)
		}
	default:
		ctx, refused := c.beginRequest(r.ID)
		if refused != nil {
			c.reply(r.ID, nil, refused)
			return
		}
		go func() {
			defer c.endRequest(r.ID)
			result, err := c.answer(ctx, method, params)
			c.reply(r.ID, result, err)
		}()
	}
}

func (c *Conn) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if c.options.OnRequest == nil {
		return nil, &Error{CodeMethodNotFound, "no method " + method}
	}
	return c.options.OnRequest(ctx, method, params)
}

// reply answers a request. If the result can't be encoded, it answers with that error.
func (c *Conn) reply(id jsonrpc2.ID, result any, err error) {
	if err == nil {
		if err = c.rpc.Reply(context.Background(), id, result); err == nil || c.hasEnded() {
			return
		}
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{CodeInternal, err.Error()}
	}
	_ = c.rpc.ReplyWithError(context.Background(), id,
		&jsonrpc2.Error{Code: int64(e.Code), Message: e.Message})
}

func (c *Conn) hasEnded() bool { return chans.IsClosed(c.rpc.DisconnectNotify()) }

// beginRequest counts a request as running and returns its context. The error is the answer to one
// that can't run.
func (c *Conn) beginRequest(id jsonrpc2.ID) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return nil, ErrClosed
	case len(c.requests) >= c.options.MaxRequests:
		return nil, &Error{CodeBusy, fmt.Sprintf("%d requests are being answered: try again",
			c.options.MaxRequests)}
	case c.requests[id] != nil:
		return nil, &Error{CodeInvalidRequest, fmt.Sprintf("request %s is being answered already",
			id)}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.requests[id] = cancel
	c.running.Add(1)
	return ctx, nil
}

// endRequest undoes beginRequest once the answer is sent.
func (c *Conn) endRequest(id jsonrpc2.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[id]()
	delete(c.requests, id)
	c.running.Done()
}

// cancelRequest handles `$/cancelRequest`.
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
