package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/link"
	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second // for sessions and hello.ack
	writeTimeout  = 10 * time.Second
	pingEvery     = 15 * time.Second
	pongTimeout   = 10 * time.Second
	closeTimeout  = time.Second
)

// conn is one connection to a gateway. Three goroutines serve it: the loop, which runs on the
// goroutine of [Provider.Run] and does everything but read; the reader; the pinger. Calls and
// callbacks run on goroutines of their own.
type conn struct {
	// Fixed at creation.
	run    *runner
	to     endpoint
	log    *slog.Logger
	ws     socket
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	frames chan []byte   // from the reader, which closes it
	writes chan struct{} // a lock with one place; waiting for it can be cancelled

	// Only the loop uses the fields that follow.
	state           state
	restoring       string    // the reconnect token in auth, or ""
	authenticatedAt time.Time // zero until the gateway has accepted auth
	active          []Session
	ended           map[string]bool // sessions that have ended and are still in the list
	unbindable      map[string]bool // sessions of the list that the gateway refused to bind
	helloSession    string          // the session in the last hello
	providerID      string
	persistDir      string
	// by session; at most one unless the provider is for all sessions
	bindings        map[string]*binding
	joining         map[string]*joining // sessions that a provider of all sessions is about to join
	sent            *sentChange         // nil while the gateway has no change to answer
	updateCount     uint64
	confirmsUpdates bool          // the gateway answers updates
	paused          bool          // a change was RATE_LIMITED; retryTimer ends the pause
	answerTimer     *time.Timer   // for an answer that must come
	silenceTimer    *time.Timer   // for an answer that may not come
	retryTimer      *time.Timer   // for another hello or update
	retryIn         time.Duration // the next wait of retryTimer before a hello
	saidWaiting     bool          // the log says that there is no session
	cleaned         chan *binding // bindings that have ended, when all user code has returned
	prepared        chan *joining // sessions for which PrepareSession has returned

	querying chan struct{} // a lock with one place; waiting for it can be cancelled

	// mu guards the fields that follow. It is never held during I/O.
	mu            sync.Mutex
	calls         map[string]*call
	sessions      map[string]bool // the bound ones
	requests      map[string]*request
	requestCount  uint64
	givesReceipts bool          // the gateway answers pushes
	receiptWait   time.Duration // of a push, while that is not known
	broken        error         // why the connection was cut
}

// serve opens a connection and keeps it until it is lost or ctx ends. It returns how long the
// gateway served the provider, and whether the gateway accepted auth at all.
func (r *runner) serve(ctx context.Context, to endpoint, reconnectToken string) (
	lasted time.Duration, accepted bool, err error) {
	ws, err := connectTo(ctx, r.p.opts.HTTPClient, to)
	if err != nil {
		return 0, false, err
	}

	c := &conn{
		run: r, to: to, ws: ws,
		log:          r.p.log.With("gateway", to.url),
		frames:       make(chan []byte, 16),
		writes:       make(chan struct{}, 1),
		restoring:    reconnectToken,
		ended:        map[string]bool{},
		unbindable:   map[string]bool{},
		bindings:     map[string]*binding{},
		joining:      map[string]*joining{},
		answerTimer:  time.NewTimer(answerTimeout),
		silenceTimer: time.NewTimer(time.Hour),
		retryTimer:   time.NewTimer(time.Hour),
		retryIn:      firstRetry,
		cleaned:      make(chan *binding),
		prepared:     make(chan *joining),
		querying:     make(chan struct{}, 1),
		calls:        map[string]*call{},
		sessions:     map[string]bool{},
		requests:     map[string]*request{},
	}
	// When ctx ends, the provider says goodbye first, so the connection has a context of its own.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.silenceTimer.Stop()
	c.retryTimer.Stop()

	var wg sync.WaitGroup
	var readErr error
	wg.Go(func() { readErr = c.read() })
	wg.Go(c.ping)
	err = c.loop(ctx)
	c.end(ctx, err)
	wg.Wait()

	switch {
	case ctx.Err() != nil:
		err = nil
	case err == nil:
		err = fmt.Errorf("connection to %s lost: %w", to.url, readErr)
	default:
		err = fmt.Errorf("%s: %w", to.url, err)
	}
	if c.authenticatedAt.IsZero() {
		return 0, false, err
	}
	return time.Since(c.authenticatedAt), true, err
}

// socket is the part of a [websocket.Conn], or of a [link.Conn], that a connection needs.
type socket interface {
	Read(ctx context.Context) (websocket.MessageType, []byte, error)
	Write(ctx context.Context, typ websocket.MessageType, data []byte) error
	Ping(ctx context.Context) error
	Close(code websocket.StatusCode, reason string) error
	CloseNow() error
}

// connectTo makes a connection to a gateway: within this process if ctx says so, else a WebSocket.
func connectTo(ctx context.Context, client *http.Client, to endpoint) (socket, error) {
	dialLink := link.DialOf(ctx)
	if dialLink == nil {
		return dial(ctx, client, to)
	}
	c, err := dialLink()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to.url, err)
	}
	return c, nil
}

// dial opens a WebSocket to a gateway. If there is a token, the gateway first proves in its answer
// to the upgrade that it knows the token (docs/protocol.md, "Is it your gateway?").
func dial(ctx context.Context, client *http.Client, to endpoint) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialled net.Addr
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { dialled = i.Conn.RemoteAddr() },
	})
	o := &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{}}
	question := proof.NewQuestion(to.token)
	if to.token != "" {
		o.HTTPHeader.Set(proof.AskHeader, question.Header())
	}
	ws, resp, err := websocket.Dial(ctx, to.url, o) //nolint:bodyclose // Dial has read the body
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to.url, plainDial(resp, err))
	}
	if to.token != "" {
		if err := to.checkProof(question, resp.Header.Get(proof.AnswerHeader),
			dialled); err != nil {
			_ = ws.CloseNow()
			return nil, fmt.Errorf("the server at %s is not the gateway of the token: %w", to.url,
				err)
		}
	}
	ws.SetReadLimit(protocol.MaxFrame)
	return ws, nil
}

// checkProof checks a gateway's proof. dialled is nil for a transport of the program's own that
// does not report addresses; the program then vouches for them.
func (e endpoint) checkProof(q proof.Question, answer string, dialled net.Addr) error {
	err := q.Check(answer, dialled)
	if relayed, ok := errors.AsType[*proof.RelayedError](err); ok {
		if e.fromUser || relayed.Dialled == "" {
			return nil
		}
		return fmt.Errorf("%w; if that is a tunnel of yours, give both the URL and the token", err)
	}
	return err
}

// read passes text frames to the loop until the connection ends, and returns why it ended.
func (c *conn) read() error {
	defer close(c.frames)
	for {
		typ, data, err := c.ws.Read(c.ctx)
		if err != nil {
			return c.cause(plainRead(err))
		}
		if typ != websocket.MessageText {
			c.log.Warn("gateway sent a binary frame; ignored")
			continue
		}
		select {
		case c.frames <- data:
		case <-c.ctx.Done():
			return c.cause(c.ctx.Err())
		}
	}
}

// cause returns why this side cut the connection, or err if it did not.
func (c *conn) cause(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	return err
}

// ping cuts the connection when the gateway stops answering.
func (c *conn) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ctx, cancel := context.WithTimeout(c.ctx, pongTimeout)
			err := c.ws.Ping(ctx)
			cancel()
			if err != nil {
				c.fail(errors.New("the gateway does not answer pings"))
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// errTakenOver means that another connection used this one's reconnect token.
var errTakenOver = errors.New("a newer connection took over with this provider's reconnect token")

// fail cuts the connection because of err.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = err
	}
	c.mu.Unlock()
	c.cancel(&CancelError{ReasonDisconnected})
}

// write sends a message. ctx only ends the wait for other writers: a write that has begun has a
// deadline of its own, because giving it up would cut the connection. The error is an [*Error] for
// a message that is too large, ErrNotConnected, or that of ctx.
func (c *conn) write(ctx context.Context, m protocol.Message) error {
	data := protocol.Append(nil, m)
	limit := protocol.MaxMessage
	if _, ok := m.(*protocol.ToolResult); ok {
		limit = protocol.MaxResult
	}
	if len(data) > limit {
		return &Error{
			Code: CodePayloadTooLarge,
			Message: fmt.Sprintf("this %s is %d bytes, over the limit of %d", m.MessageType(),
				len(data), limit),
		}
	}
	select {
	case c.writes <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrNotConnected
	}
	defer func() { <-c.writes }()
	wctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), writeTimeout)
	defer cancel()
	if err := c.ws.Write(wctx, websocket.MessageText, data); err != nil {
		c.fail(fmt.Errorf("writing: %w", err))
		return ErrNotConnected
	}
	return nil
}

// send is write for the loop.
func (c *conn) send(m protocol.Message) error { return c.write(c.ctx, m) }

// loop serves the connection until it is lost or ctx ends (nil), or until the provider gives it up
// (an error).
func (c *conn) loop(ctx context.Context) error {
	p := c.run.p
	auth := &protocol.Auth{Token: c.to.token}
	if c.restoring != "" {
		auth = &protocol.Auth{ReconnectToken: c.restoring, Name: p.name, Instance: p.opts.Instance}
	}
	if err := c.send(auth); err != nil {
		return nil
	}
	for {
		var err error
		select {
		case data, ok := <-c.frames:
			if !ok {
				return nil
			}
			err = c.receive(data)
		case <-p.wakeups:
			err = c.offerChanged()
		case <-c.retryTimer.C:
			c.paused = false
			err = c.offerChanged()
		case <-c.silenceTimer.C:
			if t := c.sent; t != nil {
				c.finishChange(nil, t.change)
			}
			c.sendChanges()
		case j := <-c.prepared:
			err = c.handlePrepared(j)
		case b := <-c.cleaned:
			err = c.finishEnding(b)
		case <-c.answerTimer.C:
			return fmt.Errorf("no answer within %v", answerTimeout)
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end closes the connection, with a goodbye if the provider stops, and releases its calls and
// bindings.
func (c *conn) end(ctx context.Context, err error) {
	c.answerTimer.Stop()
	c.silenceTimer.Stop()
	c.retryTimer.Stop()
	c.run.p.setBound(nil)
	c.unlink()
	if t := &c.run.reconnect; t.token != "" && t.until.IsZero() {
		t.until = time.Now().Add(protocol.ReconnectWindow)
	}
	reason := ReasonDisconnected
	_, fatal := errors.AsType[fatalError](err)
	if fatal || ctx.Err() != nil {
		reason = ReasonStopped
		if c.ctx.Err() == nil {
			_ = c.send(&protocol.Goodbye{Reason: "shutting down"})
			timer := time.AfterFunc(closeTimeout, func() { c.cancel(&CancelError{reason}) })
			defer timer.Stop()
			_ = c.ws.Close(websocket.StatusNormalClosure, "")
		}
	}
	c.cancel(&CancelError{reason})
	_ = c.ws.CloseNow()
}

// plainDial returns why the gateway refused a connection, without the layers below.
func plainDial(resp *http.Response, err error) error {
	if resp != nil {
		var body struct {
			Error struct{ Code, Message string }
		}
		// Dial keeps the first kilobyte of the body.
		text, _ := io.ReadAll(resp.Body)
		if json.Unmarshal(text, &body) == nil && body.Error.Message != "" {
			if body.Error.Code == string(protocol.CodeAuthFailed) {
				return fmt.Errorf("%w: %s", errRefused, body.Error.Message)
			}
			return errors.New(body.Error.Message)
		}
		return fmt.Errorf("it answered %s; is it a gateway?", resp.Status)
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// plainRead returns why the gateway closed a connection. The error is fatal if a newer connection
// of this provider took over: coming back would take the place from that one again.
func plainRead(err error) error {
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		if ce.Code == websocket.StatusCode(protocol.CloseTakenOver) {
			return fatalError{errTakenOver}
		}
		return fmt.Errorf("the gateway closed it: %s (%d)", ce.Reason, ce.Code)
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the gateway went away")
	}
	return err
}
