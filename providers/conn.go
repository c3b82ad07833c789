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

// conn is one connection to a gateway. Three goroutines serve it: the loop,
// which is Run's own and does all but read; the reader; the pinger. Calls and
// callbacks run on others.
type conn struct {
	// Fixed at creation.
	run    *runner
	to     endpoint
	log    *slog.Logger
	ws     *websocket.Conn
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	frames chan []byte   // closed by the reader
	writes chan struct{} // a lock that heeds contexts: whoever writes holds the one place

	// The loop's.
	state      state
	restoring  string    // the reconnect token that auth was sent with
	since      time.Time // when the gateway let us in
	active     []Session
	ended      map[string]bool // sessions that ended and are in the list still
	unfit      map[string]bool // sessions of the list that the gateway would not bind
	asked      string          // the session in the last hello
	providerID string
	persistDir string
	bindings   map[string]*binding // by session; with one of its own at most one
	joining    map[string]*joining // sessions that a provider of all is about to join
	telling    *telling
	updates    uint64
	confirms   bool          // this gateway answers updates
	paused     bool          // it was asked too much: retry says when to go on
	await      *time.Timer   // for an answer of the gateway
	silent     *time.Timer   // for one that may not come
	retry      *time.Timer   // for another hello, or update
	retryIn    time.Duration // what retry is set to next, for a hello
	waiting    bool          // it was logged that no session is there
	cleaned    chan *binding // a binding has ended and all its code returned
	prepared   chan *joining // PrepareSession has returned

	querying chan struct{} // a lock that heeds contexts

	// mu guards the fields that follow. It is held for no I/O.
	mu        sync.Mutex
	calls     map[string]*call
	sessions  map[string]bool // those that are bound
	requests  map[string]*request
	requested uint64
	acks      bool  // this gateway gives receipts
	broken    error // why the connection was cut
}

// serve makes a connection and keeps it until it ends or ctx does.
func (r *runner) serve(ctx context.Context, to endpoint, reconnectToken string) (lasted time.Duration, in bool,
	err error) {
	ws, err := dial(ctx, r.p.opts.HTTPClient, to)
	if err != nil {
		return 0, false, err
	}

	c := &conn{
		run: r, to: to, ws: ws,
		log:       r.p.log.With("gateway", to.url),
		frames:    make(chan []byte, 16),
		writes:    make(chan struct{}, 1),
		restoring: reconnectToken,
		ended:     map[string]bool{},
		unfit:     map[string]bool{},
		bindings:  map[string]*binding{},
		joining:   map[string]*joining{},
		await:     time.NewTimer(answerTimeout),
		silent:    time.NewTimer(time.Hour),
		retry:     time.NewTimer(time.Hour),
		retryIn:   firstRetry,
		cleaned:   make(chan *binding),
		prepared:  make(chan *joining),
		querying:  make(chan struct{}, 1),
		calls:     map[string]*call{},
		sessions:  map[string]bool{},
		requests:  map[string]*request{},
	}
	// The end of Run's context is a goodbye, not a cut.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.silent.Stop()
	c.retry.Stop()

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
	if c.since.IsZero() {
		return 0, false, err
	}
	return time.Since(c.since), true, err
}

// dial opens a WebSocket to a gateway. Where there is a token, the gateway proves
// with the answer to the upgrade that it knows it, before it is sent anything else.
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
	ws, resp, err := websocket.Dial(ctx, to.url, o) //nolint:bodyclose // Dial has read it
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to.url, plainDial(resp, err))
	}
	if to.token != "" {
		if err := to.proved(question, resp.Header.Get(proof.AnswerHeader), dialled); err != nil {
			_ = ws.CloseNow()
			return nil, fmt.Errorf("what answers at %s is not the gateway of the token: %w", to.url, err)
		}
	}
	ws.SetReadLimit(protocol.MaxFrame)
	return ws, nil
}

// proved judges a gateway's answer. A transport that tells no address of its
// connections is the program's own, and to be trusted with them.
func (e endpoint) proved(q proof.Question, answer string, dialled net.Addr) error {
	err := q.Check(answer, dialled)
	if relayed, ok := errors.AsType[*proof.RelayedError](err); ok {
		if e.named || relayed.Dialled == "" {
			return nil
		}
		return fmt.Errorf("%w; if that is a tunnel of yours, give both the URL and the token", err)
	}
	return err
}

// read hands every text frame to the loop.
func (c *conn) read() error {
	defer close(c.frames)
	for {
		typ, data, err := c.ws.Read(c.ctx)
		if err != nil {
			return c.why(plainRead(err))
		}
		if typ != websocket.MessageText {
			c.log.Warn("gateway sent a binary frame; ignored")
			continue
		}
		select {
		case c.frames <- data:
		case <-c.ctx.Done():
			return c.why(c.ctx.Err())
		}
	}
}

// why returns the reason for which the connection was cut, else err.
func (c *conn) why(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	return err
}

// ping notices a gateway that is dead though its connection is not.
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

// fail cuts the connection.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = err
	}
	c.mu.Unlock()
	c.cancel(&CancelError{ReasonDisconnected})
}

// write sends a message. Ctx only ends the wait for the connection's turn: a
// write that has begun runs under a deadline of its own, because one that is
// given up cuts the connection for everybody.
func (c *conn) write(ctx context.Context, m protocol.Message) error {
	data := protocol.Append(nil, m)
	limit := protocol.MaxMessage
	if _, ok := m.(*protocol.ToolResult); ok {
		limit = protocol.MaxResult
	}
	if len(data) > limit {
		return &Error{
			Code:    CodePayloadTooLarge,
			Message: fmt.Sprintf("this %s is %d bytes, over the limit of %d", m.MessageType(), len(data), limit),
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

// send is the loop's write.
func (c *conn) send(m protocol.Message) error { return c.write(c.ctx, m) }

// loop serves the connection until it is lost (nil), given up (an error) or
// ctx ends.
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
		case <-p.changed:
			err = c.offerChanged()
		case <-c.retry.C:
			c.paused = false
			err = c.offerChanged()
		case <-c.silent.C:
			if t := c.telling; t != nil {
				c.told(nil, t.change)
			}
			c.proceed()
		case j := <-c.prepared:
			err = c.ready(j)
		case b := <-c.cleaned:
			err = c.unbound(b)
		case <-c.await.C:
			return fmt.Errorf("no answer within %v", answerTimeout)
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end closes the connection and what belongs to it.
func (c *conn) end(ctx context.Context, err error) {
	c.await.Stop()
	c.silent.Stop()
	c.retry.Stop()
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

// plainDial says why a connection was refused, without the layers below.
func plainDial(resp *http.Response, err error) error {
	if resp != nil {
		var body struct {
			Error struct{ Code, Message string }
		}
		// Dial keeps the first kilobyte of a refusal.
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

// plainRead says why the other end closed a connection.
func plainRead(err error) error {
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		return fmt.Errorf("the gateway closed it: %s (%d)", ce.Reason, ce.Code)
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the gateway went away")
	}
	return err
}
