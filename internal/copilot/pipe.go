package copilot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/protocol"
)

const (
	// maxHello bounds the first message on a [dialablePipe], in bytes.
	maxHello = 64 << 10
	// maxFromTerminal bounds a message of a terminal, in bytes.
	maxFromTerminal = 64 << 20
)

// dialablePipe lets the SDK speak over a connection that is there already. The SDK can only start a program or dial an
// address, so the pipe gets a loopback address for one connection: the first that sends our token in its first message.
// The token keeps other users of the machine out. The runtime at the other end does not see it.
//
// What is on the way of a tool call does not go through the SDK, because that takes as long as the call itself: the
// events of sessions ([dialablePipe.follow]) and the requests of [askPipe].
type dialablePipe struct {
	pipe     io.ReadWriteCloser
	listener net.Listener
	token    string
	log      *slog.Logger
	running  sync.WaitGroup
	onEnd    func(error) // called once, when the pipe has ended
	idPrefix string      // of our own requests; no other gateway of the same terminal has it

	writing sync.Mutex // held while a message is written to the pipe

	mu        sync.Mutex // guards the fields that follow
	conn      net.Conn   // of the SDK
	ended     bool
	followers map[string]*follower          // by session
	requests  map[string]func(*pipeMessage) // our own that wait for an answer, by id
	lastID    int
}

// follower gets the events of a session. An error says why it can't read one.
type follower struct {
	handle func(event protocol.Raw) error
}

// pipeMessage is what we read of a message of the terminal; nil: it has none. All share the message's memory.
type pipeMessage struct{ id, method, params, result, err protocol.Raw }

// readPipeMessage reads the outside of a message. Each call of a tool passes here, so it does not take the time that
// the standard library takes.
func readPipeMessage(data []byte) (m pipeMessage, err error) {
	err = eachMember(data, func(name string, value protocol.Raw) {
		switch name {
		case "id":
			m.id = value
		case "method":
			m.method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
	})
	if m.err.Kind() == 'n' {
		m.err = nil
	}
	return m, err
}

// eachMember is [protocol.Object], and reads also what that refuses and the SDK takes, as the SDK does: of a name that
// occurs twice the last value counts, and bytes that are not UTF-8 are left to whoever reads the value. visit may get
// members again.
func eachMember(data []byte, visit func(name string, value protocol.Raw)) error {
	err := protocol.Object(data, func(name string, value protocol.Raw) error {
		visit(name, value)
		return nil
	})
	if err == nil {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return err
	}
	for name, value := range members {
		visit(name, protocol.Raw(value))
	}
	return nil
}

// openPipe gives a pipe an address. onEnd learns why the pipe ended.
func openPipe(pipe io.ReadWriteCloser, log *slog.Logger, onEnd func(error)) (*dialablePipe, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("giving the terminal's pipe an address: %w", err)
	}
	d := &dialablePipe{
		pipe: pipe, listener: listener, token: rand.Text(), log: log, onEnd: onEnd,
		idPrefix:  "tapgw-" + rand.Text() + "-",
		followers: map[string]*follower{}, requests: map[string]func(*pipeMessage){},
	}
	d.running.Go(d.accept)
	return d, nil
}

// client makes an SDK client that dials the pipe.
func (d *dialablePipe) client() *sdk.Client {
	return sdk.NewClient(&sdk.ClientOptions{
		Connection: sdk.URIConnection{URL: d.listener.Addr().String(), ConnectionToken: d.token},
	})
}

// accept admits connections until one has the token, which gets the pipe.
func (d *dialablePipe) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(pingTimeout))
			in := bufio.NewReader(conn)
			hello, err := d.checkHello(in)
			if err != nil || !d.claim(conn) {
				return
			}
			_ = conn.SetDeadline(time.Time{})
			d.relay(conn, in, hello)
		})
	}
}

// checkHello reads the first message, which must have the token, and returns it without the token.
func (d *dialablePipe) checkHello(in *bufio.Reader) ([]byte, error) {
	data, err := jsonrpc.ReadFrame(in, maxHello)
	if err != nil {
		return nil, err
	}
	var hello struct {
		Version string                     `json:"jsonrpc"`
		ID      json.RawMessage            `json:"id"`
		Method  string                     `json:"method"`
		Params  map[string]json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(data, &hello); err != nil {
		return nil, err
	}
	var token string
	_ = json.Unmarshal(hello.Params["token"], &token)
	if subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) != 1 {
		return nil, errors.New("the connection has another token")
	}
	delete(hello.Params, "token") // a runtime without tokens refuses any
	return json.Marshal(hello)
}

// claim makes conn the one that gets the pipe. It returns false if another one has it, or the pipe has ended.
func (d *dialablePipe) claim(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil || d.ended {
		return false
	}
	d.conn = conn
	_ = d.listener.Close()
	return true
}

// relay copies both ways until either side ends.
func (d *dialablePipe) relay(conn net.Conn, in *bufio.Reader, hello []byte) {
	if err := d.write(hello); err != nil {
		d.end(err)
		return
	}
	d.running.Go(func() {
		d.end(eachFrame(bufio.NewReader(d.pipe), func(data []byte) error {
			if d.takes(data) {
				return nil
			}
			_, err := conn.Write(jsonrpc.AppendFrame(nil, data))
			return err
		}))
	})
	d.end(eachFrame(in, d.write))
}

// eachFrame calls do for each message until there is an error. The SDK would take as much memory as a message
// announces, and any program may be at the port of a terminal.
func eachFrame(in *bufio.Reader, do func(data []byte) error) error {
	for {
		data, err := jsonrpc.ReadFrame(in, maxFromTerminal)
		if err != nil {
			return err
		}
		if err := do(data); err != nil {
			return err
		}
	}
}

// write gives the terminal a message, with one Write.
func (d *dialablePipe) write(data []byte) error {
	frame := jsonrpc.AppendFrame(nil, data)
	d.writing.Lock()
	defer d.writing.Unlock()
	_, err := d.pipe.Write(frame)
	return err
}

// takes handles a message of the terminal that is not for the SDK. It returns false for any other one.
func (d *dialablePipe) takes(data []byte) bool {
	if !bytes.Contains(data, []byte(`"session.event"`)) && !bytes.Contains(data, []byte(d.idPrefix)) {
		return false // most are read only once, by the SDK
	}
	m, err := readPipeMessage(data)
	switch {
	case err != nil:
		return false
	case m.method == nil:
		id, _ := protocol.Text(m.id)
		d.mu.Lock()
		answered := d.requests[id]
		delete(d.requests, id)
		d.mu.Unlock()
		if answered != nil {
			answered(&m)
		}
		return strings.HasPrefix(id, d.idPrefix)
	case m.id == nil && string(m.method) == `"session.event"`:
		return d.takesEvent(m.params)
	}
	return false
}

// takesEvent gives an event to the follower of its session. It returns false if there is none.
func (d *dialablePipe) takesEvent(params protocol.Raw) bool {
	var session string
	var event protocol.Raw
	err := eachMember(params, func(name string, value protocol.Raw) {
		switch name {
		case "sessionId":
			session, _ = protocol.Text(value)
		case "event":
			event = value
		}
	})
	if err != nil {
		return false
	}
	d.mu.Lock()
	f := d.followers[session]
	d.mu.Unlock()
	if f == nil {
		return false
	}
	if err := f.handle(event); err != nil {
		d.log.Debug("an event of a terminal can't be read", "error", err)
	}
	return true
}

// follow has a session's events handled in their order, and keeps them from the SDK. It lasts until unfollow or the end
// of the pipe. handle must not block.
func (d *dialablePipe) follow(session string, handle func(event protocol.Raw) error) (unfollow func()) {
	f := &follower{handle}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followers[session] = f
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.followers[session] == f {
			delete(d.followers, session)
		}
	}
}

// askPipe makes a request of a terminal, as [execute] does, but not through the SDK and on this goroutine: a write that
// blocks ends with the pipe. then gets the result before any event that comes after it is handled; nil: it is of no
// use.
func askPipe(
	ctx context.Context, p *process, timeout time.Duration, method string, params any, then func(protocol.Raw),
) error {
	if p.hasEnded() {
		return p.cause
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errUnanswered)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errUnanswered) {
			p.checkAlive()
		}
	})()
	done := make(chan error, 1)
	id, err := p.pipe.request(method, params, func(m *pipeMessage) {
		if m.err != nil {
			done <- rpcError(m.err)
			return
		}
		if then != nil {
			then(m.result)
		}
		done <- nil
	})
	if err == nil {
		defer p.pipe.forget(id)
		select {
		case err = <-done:
		case <-p.gone:
			err = p.cause
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if p.hasEnded() {
		return p.cause
	}
	return err
}

// rpcError is an answer that is an error, in the words of the SDK.
func rpcError(data protocol.Raw) error {
	var e struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil {
		return fmt.Errorf("JSON-RPC Error %.200s", data)
	}
	return fmt.Errorf("JSON-RPC Error %d: %s", e.Code, e.Message)
}

// request sends a request of our own. answered gets the answer, unless forget or the end of the pipe comes first.
func (d *dialablePipe) request(method string, params any, answered func(*pipeMessage)) (id string, err error) {
	d.mu.Lock()
	d.lastID++
	id = d.idPrefix + strconv.Itoa(d.lastID)
	d.requests[id] = answered
	d.mu.Unlock()
	data, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      string `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, params})
	if err == nil {
		if err = d.write(data); err != nil {
			d.end(err)
		}
	}
	if err != nil {
		d.forget(id)
	}
	return id, err
}

// forget drops the answer to a request if it still comes.
func (d *dialablePipe) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.requests, id)
}

// end closes the pipe and the SDK's connection. The first call decides why.
func (d *dialablePipe) end(why error) {
	d.mu.Lock()
	first, conn := !d.ended, d.conn
	d.ended = true
	d.mu.Unlock()
	if !first {
		return
	}
	if why == nil {
		why = io.EOF
	}
	_ = d.listener.Close()
	_ = d.pipe.Close()
	if conn != nil {
		_ = conn.Close()
	}
	d.onEnd(why)
}

// close ends the pipe and waits for its goroutines. The SDK's client must have stopped.
func (d *dialablePipe) close() {
	d.end(errors.New("the gateway left"))
	d.running.Wait()
}

// pipeProcess is the process of a runtime that a person started, at the other end of a pipe. It ends with the pipe, and
// is never started again.
func pipeProcess(ctx context.Context, pipe io.ReadWriteCloser, log *slog.Logger) (*process, error) {
	p := &process{log: log, ping: pingTimeout, gone: make(chan struct{}), handled: make(chan struct{})}
	close(p.handled) // nothing replaces it
	d, err := openPipe(pipe, log, func(why error) {
		p.once.Do(func() {
			log.Debug("the connection to a terminal ended", "why", why)
			p.cause = errors.New("the connection to the terminal ended")
			close(p.gone)
		})
	})
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	p.pipe, p.client = d, d.client()
	err = execute(ctx, p, askTimeout, p.client.Start)
	if err != nil {
		p.leave()
		return nil, fmt.Errorf("speaking with the terminal: %w", err)
	}
	return p, nil
}

// leave ends our part in a runtime that a person started. It returns when nothing is left of the connection and of the
// SDK's goroutines for it.
func (p *process) leave() {
	p.pipe.end(errors.New("the gateway left")) // requests under way end with it
	p.stopping.Lock()
	p.isStopped = true
	p.stopping.Unlock()
	p.client.ForceStop()
	p.mu.Lock()
	sessions := p.sessions
	p.sessions = nil
	p.mu.Unlock()
	for _, s := range sessions {
		_ = s.Disconnect() // fails at once, but ends a goroutine of the SDK
	}
	p.asking.Wait()
	p.pipe.close()
}
