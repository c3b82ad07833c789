package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/sourcegraph/jsonrpc2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// How a session host keeps its line to the gateway (design: "Session hosts").
const (
	hostConnect    = 10 * time.Second // for a connection with its two first requests
	hostRetryFirst = 200 * time.Millisecond
	hostRetryLast  = 5 * time.Second
	// hostPatience is how long a call or a hook waits for a gateway that is
	// away: a restarted one is back in less.
	hostPatience = 5 * time.Second
	maxHostFrame = 32 << 20

	hostVersion   = 1
	codeNoSession = -32004
)

// ErrSessionEnded says that the gateway ended the session: it is not offered
// anew.
var ErrSessionEnded = errors.New("the gateway has ended this session")

// ErrLost says that the connection to the gateway was lost; it is made anew.
var ErrLost = errors.New("the connection to the gateway was lost")

// HostTool is a tool that the gateway's providers give to a session.
type HostTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// HostPrompt is a prompt that the gateway sends to a session.
type HostPrompt struct {
	Prompt string `json:"prompt"`
	Mode   string `json:"mode"` // [adminapi.ModeEnqueue] or [adminapi.ModeImmediate]
	Source string `json:"source"`
}

// HostOptions describe a session that this process runs, and take what the
// gateway asks of it. Each function is called from one goroutine at a time and
// must not wait for a call of the same [HostSession].
type HostOptions struct {
	Name, Version string              // of the program
	Aliases       map[string][]string // tool names of the session behind shell, edit and read
	ID            string              // kept over restarts of the gateway
	Label         string
	CWD           string // absolute
	Model         string

	Tools     func(tools []HostTool)          // the providers' tools have changed; the last list counts
	Send      func(p HostPrompt)              // a prompt to enqueue, or to take at once
	Log       func(level, message string)     // for the timeline of the person at the session
	Interrupt func(reason string)             // stop the turn
	State     func(connected bool, why error) // the line came up or went down
}

// HostSession is a session of this process that a gateway knows. It connects
// again by itself, under the same id, until Close.
type HostSession struct {
	find Options
	o    HostOptions
	end  context.CancelFunc
	gone chan struct{} // closed when run has returned

	mu   sync.Mutex
	conn *jsonrpc2.Conn // nil while the gateway is away
	back chan struct{}  // closed when conn is set, or the session is over
	over error
	busy bool

	tools    sync.Mutex // held while a list is passed on
	revision uint64
	set      bool // revision counts on this connection
}

// Host brings a session to the gateway that the options find. The first
// connection is made before it returns; its error is a [cli.Error].
func Host(ctx context.Context, find Options, o HostOptions) (*HostSession, error) {
	h := &HostSession{find: find, o: o, gone: make(chan struct{}), back: make(chan struct{})}
	conn, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(h.gone)
		h.run(ctx, conn)
	}()
	return h, nil
}

// run keeps the line up until ctx ends or the gateway ends the session.
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
			h.lost(conn)
			if h.o.State != nil {
				why := h.ended()
				if why == nil {
					why = ErrLost
				}
				h.o.State(false, why)
			}
		}
		if h.ended() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // jitter
		}
		wait = min(wait*2, hostRetryLast)
		conn, _ = h.connect(ctx)
	}
}

func (h *HostSession) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// lost notes that a connection is gone, whoever saw it first.
func (h *HostSession) lost(conn *jsonrpc2.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == conn {
		h.conn = nil
		h.back = make(chan struct{})
	}
}

// connect finds the gateway, authenticates and registers the session.
func (h *HostSession) connect(ctx context.Context) (_ *jsonrpc2.Conn, err error) {
	gw, err := New(h.find)
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	if gw.missing != nil {
		return nil, gw.missing
	}
	limited, cancel := context.WithTimeout(ctx, hostConnect)
	defer cancel()
	ws, answer, err := websocket.Dial(limited, gw.URL()+"/host", &websocket.DialOptions{HTTPClient: gw.http, CompressionMode: websocket.CompressionDisabled})
	if answer != nil && answer.StatusCode/100 > 3 {
		return nil, gw.refused(answer)
	}
	if err != nil {
		return nil, gw.broken(limited, "connecting", err)
	}
	ws.SetReadLimit(maxHostFrame)
	h.tools.Lock()
	h.set = false
	h.tools.Unlock()
	// The connection outlives the request that made it.
	conn := jsonrpc2.NewConn(context.WithoutCancel(ctx), webSocketStream{ws}, h,
		jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := conn.Call(limited, "initialize", map[string]any{
		"protocolVersion": hostVersion,
		"token":           gw.token,
		"host":            map[string]string{"name": h.o.Name, "version": h.o.Version},
		"capabilities":    map[string]bool{"send": h.o.Send != nil, "log": h.o.Log != nil, "hooks": true, "interrupt": h.o.Interrupt != nil, "liveTools": true, "injects": true},
		"aliases":         h.o.Aliases,
	}, nil); err != nil {
		return nil, gw.hostError(limited, "initialize", err)
	}
	var registered struct {
		ID       string     `json:"id"`
		Revision uint64     `json:"revision"`
		Tools    []HostTool `json:"tools"`
	}
	if err := conn.Call(limited, "session/register", map[string]any{
		"id": h.o.ID, "label": h.o.Label, "cwd": h.o.CWD, "model": h.o.Model,
	}, &registered); err != nil {
		return nil, gw.hostError(limited, "session/register", err)
	}
	h.mu.Lock()
	h.o.ID = registered.ID
	h.conn = conn
	busy := h.busy
	close(h.back)
	h.mu.Unlock()
	if busy {
		h.Busy()
	}
	h.setTools(registered.Revision, registered.Tools)
	if h.o.State != nil {
		h.o.State(true, nil)
	}
	return conn, nil
}

// hostError words a refusal of the gateway.
func (c *Client) hostError(ctx context.Context, method string, err error) error {
	e, ok := errors.AsType[*jsonrpc2.Error](err)
	if !ok {
		return c.broken(ctx, method, err)
	}
	exit := cli.ExitFailed
	if e.Code == -32001 {
		exit = cli.ExitRefused
	}
	return &cli.Error{Exit: exit, Code: cli.CodeFailed, Message: fmt.Sprintf("gateway at %s: %s", c.URL(), e.Message), Err: err}
}

// Handle implements [jsonrpc2.Handler]: what the gateway asks, in its order.
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
	var p struct {
		HostPrompt
		Revision uint64     `json:"revision"`
		Tools    []HostTool `json:"tools"`
		Level    string     `json:"level"`
		Message  string     `json:"message"`
		Reason   string     `json:"reason"`
	}
	if req.Params != nil {
		if err := json.Unmarshal(*req.Params, &p); err != nil {
			return &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: err.Error()}
		}
	}
	switch {
	case req.Method == "tools/set":
		h.setTools(p.Revision, p.Tools)
	case req.Method == "session/send" && h.o.Send != nil:
		h.o.Send(p.HostPrompt)
	case req.Method == "session/log" && h.o.Log != nil:
		h.o.Log(p.Level, p.Message)
	case req.Method == "session/interrupt" && h.o.Interrupt != nil:
		h.o.Interrupt(p.Reason)
	default:
		return &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: fmt.Sprintf("there is no method %q", req.Method)}
	}
	return nil
}

// setTools passes a list on unless a newer one of this connection was before it.
func (h *HostSession) setTools(revision uint64, tools []HostTool) {
	h.tools.Lock()
	defer h.tools.Unlock()
	if h.set && revision < h.revision {
		return
	}
	h.set, h.revision = true, revision
	if h.o.Tools != nil {
		h.o.Tools(tools)
	}
}

// ID is the session's id at the gateway.
func (h *HostSession) ID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.ID
}

// line returns the connection, and waits a little for one that is away.
func (h *HostSession) line(ctx context.Context) (*jsonrpc2.Conn, error) {
	h.mu.Lock()
	conn, back, over := h.conn, h.back, h.over
	h.mu.Unlock()
	if over != nil {
		return nil, over
	}
	if conn != nil {
		select {
		case <-conn.DisconnectNotify():
			h.lost(conn)
			return h.line(ctx)
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
		return nil, errors.New("the gateway of this session is away; start it again with: tapgw ensure")
	case <-h.gone:
		return nil, h.ended()
	case <-back:
		return h.line(ctx)
	}
}

// call makes a request. A session that the gateway no longer knows is over.
func (h *HostSession) call(ctx context.Context, method string, params, result any) error {
	conn, err := h.line(ctx)
	if err != nil {
		return err
	}
	err = conn.Call(ctx, method, params, result)
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok && e.Code == codeNoSession {
		h.mu.Lock()
		h.over = ErrSessionEnded
		h.mu.Unlock()
		_ = conn.Close()
		return ErrSessionEnded
	}
	return err
}

// ask is call for what does no harm when asked twice: a gateway that restarted
// in between is asked again.
func (h *HostSession) ask(ctx context.Context, method string, params, result any) error {
	err := h.call(ctx, method, params, result)
	if errors.Is(err, jsonrpc2.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = h.call(ctx, method, params, result)
	}
	return err
}

// CallTool calls a provider's tool. A call that failed is a result too, with an
// ErrorCode; the error is for a gateway that can't be asked. When ctx ends the
// call is cancelled at the provider and CallTool returns at once.
func (h *HostSession) CallTool(ctx context.Context, callID, name string, args json.RawMessage) (adminapi.CallResult, error) {
	var r adminapi.CallResult
	err := h.call(ctx, "tool/call", map[string]any{"sessionId": h.ID(), "callId": callID, "name": name, "args": args}, &r)
	if ctx.Err() != nil {
		h.mu.Lock()
		conn := h.conn
		h.mu.Unlock()
		if conn != nil {
			_ = conn.Notify(context.WithoutCancel(ctx), "tool/cancel", map[string]any{"callId": callID, "reason": "interrupted"})
		}
	}
	if errors.Is(err, jsonrpc2.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrLost
	}
	return r, err
}

// HookDecision is what the providers' rules and gates say of a tool call.
type HookDecision struct {
	Decision string `json:"decision"` // allow or deny
	Reason   string `json:"reason"`
	Context  string `json:"context"`
}

// PreToolUse asks the gates about a call that the session is about to make. An
// error means that they could not be asked: the call must not run.
func (h *HostSession) PreToolUse(ctx context.Context, tool string, args json.RawMessage) (HookDecision, error) {
	var d HookDecision
	err := h.ask(ctx, "hook/preToolUse", map[string]any{"sessionId": h.ID(), "tool": tool, "args": args}, &d)
	if err == nil && d.Decision != "allow" && d.Decision != "deny" {
		err = fmt.Errorf("the gateway's decision is %q, want allow or deny", d.Decision)
	}
	return d, err
}

// UserPrompt tells of a prompt before its turn and returns what the providers
// add to it. The source is that of the [HostPrompt], "" for the user's own.
func (h *HostSession) UserPrompt(ctx context.Context, prompt, source string) (addition string, err error) {
	var r struct {
		Context string `json:"context"`
	}
	params := map[string]any{"sessionId": h.ID(), "prompt": prompt}
	if source != "" {
		params["source"] = source
	}
	err = h.ask(ctx, "hook/userPrompt", params, &r)
	return r.Context, err
}

// Event tells of what the session did, one of the four events of v2. It is
// dropped while the gateway is away.
func (h *HostSession) Event(event string, data any) {
	h.notify("session/event", map[string]any{"sessionId": h.ID(), "event": event, "data": data})
}

// Busy says that a turn runs.
func (h *HostSession) Busy() {
	h.setBusy(true)
	h.notify("session/update", map[string]any{"id": h.ID(), "state": "busy"})
}

// Idle says that no turn runs. It returns how many prompts the gateway held back
// for that and sends now; none where the gateway is away.
func (h *HostSession) Idle(ctx context.Context) (injects int) {
	h.setBusy(false)
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	var r struct {
		Injects int `json:"injects"`
	}
	if conn != nil {
		_ = conn.Call(ctx, "session/update", map[string]any{"id": h.ID(), "state": "idle"}, &r)
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

// Close ends the session at the gateway and the line to it. It waits for the
// gateway to let the providers finish, until ctx ends.
func (h *HostSession) Close(ctx context.Context, reason string) {
	h.mu.Lock()
	conn, over := h.conn, h.over
	if over == nil {
		h.over = errors.New("the session is closed")
	}
	h.mu.Unlock()
	if conn != nil {
		if over == nil {
			_ = conn.Call(ctx, "session/end", map[string]any{"id": h.ID(), "reason": reason}, nil)
		}
		_ = conn.Close()
	}
	h.end()
	<-h.gone
}

// webSocketStream carries one JSON-RPC object a text frame.
type webSocketStream struct{ ws *websocket.Conn }

// ReadObject implements [jsonrpc2.ObjectStream].
func (s webSocketStream) ReadObject(v any) error {
	_, data, err := s.ws.Read(context.Background())
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// WriteObject implements [jsonrpc2.ObjectStream].
func (s webSocketStream) WriteObject(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostConnect)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, data)
}

// Close implements [jsonrpc2.ObjectStream].
func (s webSocketStream) Close() error { return s.ws.CloseNow() }
