package copilot

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/jsonrpc"
)

const (
	// maxHello bounds the first message on a [dialablePipe], in bytes.
	maxHello = 64 << 10
	// maxFromTerminal bounds a message of a terminal, in bytes.
	maxFromTerminal = 64 << 20
)

// dialablePipe lets the SDK speak over a connection that is there already. The SDK can only start a
// program or dial an address, so the pipe gets a loopback address for one connection: the first
// that sends our token in its first message. The token keeps other users of the machine out. The
// runtime at the other end does not see it.
type dialablePipe struct {
	pipe     io.ReadWriteCloser
	listener net.Listener
	token    string
	running  sync.WaitGroup
	onEnd    func(error) // called once, when the pipe has ended

	mu    sync.Mutex // guards the fields that follow
	conn  net.Conn   // of the SDK
	ended bool
}

// openPipe gives a pipe an address. onEnd learns why the pipe ended.
func openPipe(pipe io.ReadWriteCloser, onEnd func(error)) (*dialablePipe, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("giving the terminal's pipe an address: %w", err)
	}
	d := &dialablePipe{pipe: pipe, listener: listener, token: rand.Text(), onEnd: onEnd}
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

// claim makes conn the one that gets the pipe. It returns false if another one has it, or the pipe
// has ended.
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
func (d *dialablePipe) relay(conn net.Conn, in io.Reader, hello []byte) {
	if _, err := d.pipe.Write(jsonrpc.AppendFrame(nil, hello)); err != nil {
		d.end(err)
		return
	}
	d.running.Go(func() {
		d.end(copyFrames(conn, d.pipe))
	})
	d.end(copyFrames(d.pipe, in))
}

// copyFrames copies messages until there is an error: one Write for each. The SDK would take as
// much memory as a message announces, and any program may be at the port of a terminal.
func copyFrames(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		data, err := jsonrpc.ReadFrame(in, maxFromTerminal)
		if err != nil {
			return err
		}
		if _, err := to.Write(jsonrpc.AppendFrame(nil, data)); err != nil {
			return err
		}
	}
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

// pipeProcess is the process of a runtime that a person started, at the other end of a pipe. It
// ends with the pipe, and is never started again.
func pipeProcess(ctx context.Context, pipe io.ReadWriteCloser, log *slog.Logger) (*process, error) {
	p := &process{log: log, ping: pingTimeout, gone: make(chan struct{}),
		handled: make(chan struct{})}
	close(p.handled) // nothing replaces it
	d, err := openPipe(pipe, func(why error) {
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

// leave ends our part in a runtime that a person started. It returns when nothing is left of the
// connection and of the SDK's goroutines for it.
func (p *process) leave() {
	p.pipe.end(errors.New("the gateway left")) // requests under way end with it
	p.stopping.Lock()
	p.isStopped = true
	p.stopping.Unlock()
	p.client.ForceStop()
	p.dropSessions()
	p.pipe.close()
}
