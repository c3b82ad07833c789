package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/protocol"
)

// A session host is a program that runs an agent for a session of the gateway. See
// docs/protocol.md, "Session hosts".

// Limits of a session host's connection to the gateway.
const (
	hostConnect    = 10 * time.Second // for a connection and its first two requests
	hostRetryFirst = 200 * time.Millisecond
	hostRetryLast  = 5 * time.Second
	// hostPatience is how long a call or a hook waits while there is no connection. A gateway
	// restarts in less.
	hostPatience = 5 * time.Second
	maxHostFrame = 32 << 20
)

// ErrSessionEnded is the error of a [HostSession] whose session the gateway has ended, or does not
// know any more. The host does not connect again; [HostOptions].State gets this error too.
var ErrSessionEnded = errors.New("the gateway has ended this session")

// ErrLost is the error of a tool call that was running when the connection to the gateway was lost:
// whether the tool ran is unknown. [HostOptions].State gets it too. The host reconnects without a
// call.
var ErrLost = errors.New("the connection to the gateway was lost")

// HostOptions describe a session that this process runs. The functions serve the gateway's
// requests; a nil function means that the host does not announce that capability (docs/protocol.md,
// Session hosts). Each is called from one goroutine at a time and must not wait for a call of the
// same [HostSession].
type HostOptions struct {
	Name, Version string              // of the program
	Aliases       map[string][]string // tool names of the session behind shell, edit and read
	ID            string              // stays the same when the gateway restarts
	Label         string
	CWD           string // absolute
	Model         string

	// the providers' tools changed; the list replaces the last one
	Tools     func(tools []protocol.HostTool)
	Send      func(p protocol.HostPrompt)     // a prompt for the session
	Log       func(level, message string)     // for the timeline of the person at the session
	Interrupt func(reason string)             // stop the turn
	State     func(connected bool, why error) // the connection was made, or lost for a reason
}

// HostSession is a session of this process that is registered at a gateway (docs/protocol.md,
// Session hosts). After a lost connection it connects again with the same id, first after about 0.2
// s and later about every 5 s, until [HostSession.Close]. Its methods may be called from any
// goroutine.
type HostSession struct {
	find Options
	o    HostOptions
	end  context.CancelFunc
	done chan struct{} // closed when run has returned

	mu        sync.Mutex     // guards the fields below
	conn      *jsonrpc2.Conn // nil while there is no connection
	connected chan struct{}  // closed when conn is set
	ended     error          // why the session ended; nil while it goes on
	busy      bool

	tools       sync.Mutex // held while Tools is called
	revision    uint64     // of the last list
	hasRevision bool       // a list came on this connection
}

// Host registers a session at the gateway that find names. It makes the first connection before it
// returns, within 10 s; ctx bounds only that. The error is a [cli.Error], with [cli.ExitRefused] if
// the gateway refuses the token. Call [HostSession.Close] at the end of the session.
func Host(ctx context.Context, find Options, o HostOptions) (*HostSession, error) {
	h := &HostSession{find: find, o: o, done: make(chan struct{}), connected: make(chan struct{})}
	conn, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(h.done)
		h.run(ctx, conn)
	}()
	return h, nil
}

// run connects again whenever the connection is lost, until ctx ends or the gateway ends the
// session.
func (h *HostSession) run(ctx context.Context, conn *jsonrpc2.Conn) {
	wait := hostRetryFirst
	for {
		if conn != nil {
			wait = hostRetryFirst
			select {
			case <-ctx.Done():
				return
			case <-conn.DisconnectNotify():
			}
			h.forget(conn)
			if h.o.State != nil {
				h.o.State(false, cmp.Or(h.endError(), ErrLost))
			}
		}
		if h.endError() != nil {
			return
		}
		if chans.Sleep(ctx, wait/2+rand.N(wait)) != nil { //nolint:gosec // jitter
			return
		}
		wait = min(wait*2, hostRetryLast)
		conn, _ = h.connect(ctx)
	}
}

func (h *HostSession) endError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// forget drops a lost connection. The reader and the writers of the connection may both call it.
func (h *HostSession) forget(conn *jsonrpc2.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == conn {
		h.conn = nil
		h.connected = make(chan struct{})
	}
}

// connect finds the gateway, connects to it and registers the session.
func (h *HostSession) connect(ctx context.Context) (_ *jsonrpc2.Conn, err error) {
	gw, err := New(h.find)
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	limited, cancel := context.WithTimeout(ctx, hostConnect)
	defer cancel()
	ws, _, err := gw.Dial(limited, "/host", nil)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxHostFrame)
	h.tools.Lock()
	h.hasRevision = false
	h.tools.Unlock()
	// The connection outlives the request that made it.
	conn := jsonrpc2.NewConn(context.WithoutCancel(ctx), webSocketStream{ws}, h,
		jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := h.register(limited, gw, conn); err != nil {
		return nil, err
	}
	return conn, nil
}

// register introduces the host on a new connection and registers its session.
func (h *HostSession) register(ctx context.Context, gw *Client, conn *jsonrpc2.Conn) error {
	hello := protocol.HostInitialize{
		ProtocolVersion: new(protocol.HostVersion), Token: gw.token, Aliases: h.o.Aliases,
		Capabilities: protocol.HostCapabilities{
			Send: h.o.Send != nil, Log: h.o.Log != nil, Hooks: true,
			Interrupt: h.o.Interrupt != nil, LiveTools: true, Injects: true,
		},
	}
	hello.Host.Name, hello.Host.Version = h.o.Name, h.o.Version
	if err := conn.Call(ctx, protocol.MethodInitialize, hello, nil); err != nil {
		return gw.hostError(ctx, protocol.MethodInitialize, err)
	}
	var registered protocol.HostRegistered
	if err := conn.Call(ctx, protocol.MethodRegister, protocol.HostRegister{
		ID: h.o.ID, Label: &h.o.Label, CWD: h.o.CWD, Model: h.o.Model,
	}, &registered); err != nil {
		return gw.hostError(ctx, protocol.MethodRegister, err)
	}
	h.mu.Lock()
	h.o.ID = registered.ID
	h.conn = conn
	busy := h.busy
	close(h.connected)
	h.mu.Unlock()
	if busy {
		h.Busy()
	}
	h.setTools(registered.Revision, registered.Tools)
	if h.o.State != nil {
		h.o.State(true, nil)
	}
	return nil
}

// hostError makes a [cli.Error] of a refusal of the gateway.
func (c *Client) hostError(ctx context.Context, method string, err error) error {
	e, ok := errors.AsType[*jsonrpc2.Error](err)
	if !ok {
		return c.broken(ctx, method, err)
	}
	exit := cli.ExitFailed
	if e.Code == protocol.HostCodeNotAuthenticated {
		exit = cli.ExitRefused
	}
	return &cli.Error{Exit: exit, Code: cli.CodeFailed, Err: err,
		Message: fmt.Sprintf("gateway at %s: %s", c.URL(), e.Message)}
}

// Handle implements [jsonrpc2.Handler]. It serves the gateway's requests in their order: tools/set,
// session/send, session/log and session/interrupt. A method without a function in [HostOptions]
// gets error -32601, and wrong params get -32602. Only the connection calls it.
func (h *HostSession) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	err := h.handle(req)
	if req.Notif {
		return
	}
	if err != nil {
		_ = conn.ReplyWithError(ctx, req.ID, err)
		return
	}
	_ = conn.Reply(ctx, req.ID, struct{}{})
}

func (h *HostSession) handle(req *jsonrpc2.Request) *jsonrpc2.Error {
	switch {
	case req.Method == protocol.MethodSetTools:
		return withParams(req, func(p protocol.HostTools) { h.setTools(p.Revision, p.Tools) })
	case req.Method == protocol.MethodSend && h.o.Send != nil:
		return withParams(req, h.o.Send)
	case req.Method == protocol.MethodLog && h.o.Log != nil:
		return withParams(req, func(p protocol.HostLog) { h.o.Log(p.Level, p.Message) })
	case req.Method == protocol.MethodInterrupt && h.o.Interrupt != nil:
		return withParams(req, func(p protocol.HostInterrupt) { h.o.Interrupt(p.Reason) })
	}
	return &jsonrpc2.Error{
		Code: jsonrpc2.CodeMethodNotFound, Message: fmt.Sprintf("there is no method %q",
			req.Method),
	}
}

// withParams calls handle with the params of a request; no params are {}.
func withParams[Params any](req *jsonrpc2.Request, handle func(Params)) *jsonrpc2.Error {
	var p Params
	if req.Params != nil {
		if err := json.Unmarshal(*req.Params, &p); err != nil {
			return &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: err.Error()}
		}
	}
	handle(p)
	return nil
}

// setTools calls Tools, unless a newer list came before on this connection.
func (h *HostSession) setTools(revision uint64, tools []protocol.HostTool) {
	h.tools.Lock()
	defer h.tools.Unlock()
	if h.hasRevision && revision < h.revision {
		return
	}
	h.hasRevision, h.revision = true, revision
	if h.o.Tools != nil {
		h.o.Tools(tools)
	}
}

// ID returns the session's id at the gateway: the one of [HostOptions], or the one that the gateway
// has chosen. It stays the same after a new connection.
func (h *HostSession) ID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.ID
}

// waitConnected returns the connection. Without a connection, it waits for one for hostPatience at
// most.
func (h *HostSession) waitConnected(ctx context.Context) (*jsonrpc2.Conn, error) {
	h.mu.Lock()
	conn, connected, ended := h.conn, h.connected, h.ended
	h.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	if conn != nil {
		select {
		case <-conn.DisconnectNotify():
			h.forget(conn)
			return h.waitConnected(ctx)
		default:
			return conn, nil
		}
	}
	patience := time.NewTimer(hostPatience)
	defer patience.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-patience.C:
		return nil,
			errors.New(
				"no connection to the gateway of this session; start it again with: tapgw ensure")
	case <-h.done:
		return nil, h.endError()
	case <-connected:
		return h.waitConnected(ctx)
	}
}

// call makes a request. If the gateway does not know the session any more, the session is over.
func (h *HostSession) call(ctx context.Context, method string, params, result any) error {
	conn, err := h.waitConnected(ctx)
	if err != nil {
		return err
	}
	err = conn.Call(ctx, method, params, result)
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok && e.Code == protocol.HostCodeNoSession {
		h.mu.Lock()
		h.ended = ErrSessionEnded
		h.mu.Unlock()
		_ = conn.Close()
		return ErrSessionEnded
	}
	return err
}

// ask makes a call that may be made twice: after a lost connection it asks again.
func (h *HostSession) ask(ctx context.Context, method string, params, result any) error {
	err := h.call(ctx, method, params, result)
	if errors.Is(err, jsonrpc2.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = h.call(ctx, method, params, result)
	}
	return err
}

// CallTool calls a provider's tool. A call that failed is no error: the result has an ErrorCode.
// The error says that the gateway could not be asked: [ErrLost], [ErrSessionEnded], or no
// connection within 5 s. When ctx ends, CallTool returns at once and the gateway cancels the call
// (docs/protocol.md, Session hosts: tool/call).
func (h *HostSession) CallTool(
	ctx context.Context, callID, name string, args json.RawMessage,
) (adminapi.CallResult, error) {
	var r adminapi.CallResult
	params := protocol.HostToolCall{SessionID: h.ID(), CallID: callID, Name: name,
		Args: protocol.Raw(args)}
	err := h.call(ctx, protocol.MethodToolCall, params, &r)
	if ctx.Err() != nil {
		h.notify(protocol.MethodToolCancel,
			protocol.HostToolCancel{CallID: callID, Reason: protocol.ReasonInterrupted})
	}
	if errors.Is(err, jsonrpc2.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrLost
	}
	return r, err
}

// PreToolUse asks the providers' rules and gates about a call that the session is about to make.
// After an error the call must not run, since there is no decision about it. It waits up to 5 s for
// a lost connection, and asks again if the connection is lost meanwhile (docs/protocol.md, Session
// hosts: hook/preToolUse).
func (h *HostSession) PreToolUse(
	ctx context.Context, tool string, args json.RawMessage,
) (d protocol.HostDecision, err error) {
	params := protocol.HostPreToolUse{SessionID: h.ID(), Tool: tool, Args: protocol.Raw(args)}
	err = h.ask(ctx, protocol.MethodPreToolUse, params, &d)
	if err == nil && d.Decision != protocol.DecisionAllow && d.Decision != protocol.DecisionDeny {
		err = fmt.Errorf("the gateway's decision is %q, want allow or deny", d.Decision)
	}
	return d, err
}

// UserPrompt reports a prompt before its turn and returns the text that the providers add to it,
// which may be "". source is the source of the [protocol.HostPrompt], "" for a prompt of the user
// (docs/protocol.md, Session hosts: hook/userPrompt).
func (h *HostSession) UserPrompt(
	ctx context.Context, prompt, source string,
) (addition string, err error) {
	var r protocol.HostPromptContext
	params := protocol.HostUserPrompt{SessionID: h.ID(), Prompt: &prompt, Source: source}
	err = h.ask(ctx, protocol.MethodUserPrompt, params, &r)
	return r.Context, err
}

// Event reports one of the four session events to the providers that subscribe to it. Without a
// connection the event is dropped (docs/protocol.md, Subscriptions).
func (h *HostSession) Event(event string, data any) {
	h.notify(protocol.MethodEvent, protocol.HostEvent[any]{SessionID: h.ID(), Event: event,
		Data: data})
}

// Busy reports that a turn runs, so that the gateway queues prompts of providers until
// [HostSession.Idle]. After a reconnect the host repeats the report by itself.
func (h *HostSession) Busy() {
	h.setBusy(true)
	h.notify(protocol.MethodUpdate, protocol.HostUpdate{ID: h.ID(), State: protocol.HostBusy})
}

// Idle reports that no turn runs. It waits for the gateway's answer and returns how many queued
// prompts the gateway sends now; 0 also without a connection or after an error.
func (h *HostSession) Idle(ctx context.Context) (injects int) {
	h.setBusy(false)
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	var r protocol.HostUpdated
	if conn != nil {
		_ = conn.Call(ctx, protocol.MethodUpdate,
			protocol.HostUpdate{ID: h.ID(), State: protocol.HostIdle}, &r)
	}
	return r.Injects
}

func (h *HostSession) setBusy(busy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = busy
}

func (h *HostSession) notify(method string, params any) {
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Notify(context.Background(), method, params)
	}
}

// Close ends the session at the gateway and then the connection. It waits until the providers
// have finished, or ctx ends.
func (h *HostSession) Close(ctx context.Context, reason string) {
	h.mu.Lock()
	conn, ended := h.conn, h.ended
	if ended == nil {
		h.ended = errors.New("the session is closed")
	}
	h.mu.Unlock()
	if conn != nil {
		if ended == nil {
			_ = conn.Call(ctx, protocol.MethodEnd, protocol.HostEnd{ID: h.ID(), Reason: reason},
				nil)
		}
		_ = conn.Close()
	}
	h.end()
	<-h.done
}
