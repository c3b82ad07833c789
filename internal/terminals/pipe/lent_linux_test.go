package pipe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/lentpipe"
)

// rig is a CLI with its pipe, the owner of that, and gateways that take it.
type rig struct {
	t       *testing.T
	cli     *end
	fromCLI *os.File
	done    chan error
	come    chan *taker
}

// taker is a gateway that has the pipe. What it reads and writes there passes no other goroutine.
type taker struct {
	*end     // of the pipe
	borrowed *lentpipe.Borrowed
	conn     net.Conn // to the owner
	answered chan struct{}
}

// offered is the owner's end of the connection to a gateway.
type offered struct {
	net.Conn
	taken io.ReadCloser
}

func (o offered) Taken() io.ReadCloser { return o.taken }

// Write makes an empty write one that the other end sees.
func (o offered) Write(b []byte) (int, error) {
	if len(b) == 0 {
		_, err := o.Conn.Write([]byte{0})
		return 0, err
	}
	return o.Conn.Write(b)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	in, fromCLI := osPipe(t)
	toCLI, out := osPipe(t)
	own, err := lentpipe.Own(in)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, done: make(chan error, 1), come: make(chan *taker)}
	r.fromCLI = fromCLI
	r.cli = &end{t, pipeConn{toCLI, fromCLI}, bufio.NewReader(toCLI)}
	p := Pipe{
		In: own, Out: out, Session: "s", Note: func(text string) { t.Log(text) },
		Dial: func(ctx context.Context, _ []string) (io.ReadWriteCloser, error) {
			ends, taken, fill, err := lentpipe.Offer(own, out)
			if err != nil {
				return nil, err
			}
			ours, theirs := net.Pipe()
			g := &taker{conn: theirs, answered: make(chan struct{}, 1)}
			if g.borrowed, err = lentpipe.Borrow(ends, g.hand); err != nil {
				return nil, err
			}
			g.end = &end{t, pipeConn{nil, nil}, bufio.NewReader(g.borrowed)}
			_ = fill.Close()
			select {
			case r.come <- g:
				return offered{ours, taken}, nil
			case <-ctx.Done():
				return nil, errors.New("none")
			}
		},
	}
	go func() { r.done <- p.Run(t.Context()) }()
	return r
}

func (g *taker) hand(message []byte) error {
	if _, err := g.conn.Write(message); err != nil {
		return err
	}
	<-g.answered
	return nil
}

func (g *taker) listen() {
	defer g.borrowed.Close()
	b := make([]byte, 1)
	for isFirst := true; ; isFirst = false {
		if _, err := g.conn.Read(b); err != nil {
			return
		}
		if isFirst {
			g.borrowed.Begin()
		} else {
			g.answered <- struct{}{}
		}
	}
}

func (g *taker) write(message string) {
	if _, err := g.borrowed.Write(jsonrpc.AppendFrame(nil, []byte(message))); err != nil {
		g.t.Fatalf("writing %s: %v", message, err)
	}
}

type pipeConn struct {
	io.Reader
	io.Writer
}

func (r *rig) gateway() *taker {
	g := <-r.come
	go g.listen()
	return g
}

func osPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// start waits until the next gateway has the pipe and has joined.
func (r *rig) start(tools string) *taker {
	r.t.Helper()
	g := r.gateway()
	g.write(`{"jsonrpc":"2.0","id":"c","method":"connect","params":{}}`)
	r.cli.want(`"c"`)
	r.cli.answer(`"c"`)
	g.want(`"c"`)
	g.write(`{"jsonrpc":"2.0","id":"t","method":"session.resume","params":{"tools":[` + tools + `]}}`)
	r.cli.want(`"t"`)
	r.cli.answer(`"t"`)
	g.want(`"t"`)
	return g
}

// lose ends a gateway as its death does: the kernel closes all that it has.
func (g *taker) lose() {
	_ = g.borrowed.Close()
	_ = g.conn.Close()
}

func event(kind, request string) string {
	return `{"jsonrpc":"2.0","method":"session.event","params":{"event":{"type":"external_tool.` + kind +
		`","data":{"requestId":"` + request + `","toolName":"greet"}}}}`
}

func TestPipeIsLent(t *testing.T) {
	r := newRig(t)
	r.cli.answer(r.cli.want(`"connect"`))
	r.cli.answer(r.cli.want(`"session.resume"`, `"tools":[]`))
	g := r.start(`{"name":"greet"}`)

	// Requests of the CLI, and large messages both ways.
	r.cli.send(`{"jsonrpc":"2.0","id":7,"method":"hooks.invoke","params":{}}`)
	g.want(`"id":7`)
	g.write(`{"jsonrpc":"2.0","id":7,"result":{}}`)
	r.cli.want(`"id":7`, `"result"`)
	large := strings.Repeat("x", 300_000)
	sent := make(chan error, 1)
	go func() {
		_, err := r.cli.conn.Write(jsonrpc.AppendFrame(nil,
			[]byte(`{"jsonrpc":"2.0","method":"session.event","params":{"text":"`+large+`"}}`)))
		sent <- err
	}()
	g.want(large)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		g.write(`{"jsonrpc":"2.0","id":"l","method":"session.send","params":{"text":"` + large + `"}}`)
		close(written)
	}()
	r.cli.want(large)
	<-written

	// It is lost with a call that is answered, one that is not, and a request; the CLI is in the middle of a message.
	for _, call := range []string{"r1", "r2"} {
		r.cli.send(event("requested", call))
		g.want(call)
	}
	g.write(`{"jsonrpc":"2.0","id":"h","method":"session.tools.handlePendingToolCall","params":{"requestId":"r1"}}`)
	r.cli.want(`"r1"`)
	r.cli.send(event("completed", "r1"))
	g.want("completed")
	r.cli.send(`{"jsonrpc":"2.0","id":8,"method":"hooks.invoke","params":{}}`)
	g.want(`"id":8`)
	frame := jsonrpc.AppendFrame(nil, []byte(event("requested", "r3")))
	if _, err := r.cli.conn.Write(frame[:50]); err != nil {
		t.Fatal(err)
	}
	g.lose()
	got := map[string]bool{}
	for range 2 {
		data, err := jsonrpc.ReadFrame(r.cli.in, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		got["8 is refused"] = got["8 is refused"] || strings.Contains(string(data), `"id":8,"error"`) ||
			strings.Contains(string(data), `"id":8,"jsonrpc"`)
		got["r2 fails"] = got["r2 fails"] || strings.Contains(string(data), `"requestId":"r2"`)
	}
	if !got["8 is refused"] || !got["r2 fails"] {
		t.Errorf("after the loss of the gateway: %v, want both", got)
	}
	if _, err := r.cli.conn.Write(frame[50:]); err != nil {
		t.Fatal(err)
	}
	r.cli.want("handlePendingToolCall", `"r3"`, NoGateway)

	// The next one gets the pipe, and freezes. The owner sees the end of the terminal without it.
	g = r.start(`{"name":"greet"}`)
	_ = r.fromCLI.Close()
	if err := <-r.done; err != nil {
		t.Errorf("Run: %v, want no error at the end of the terminal", err)
	}
	if _, err := g.in.ReadByte(); err == nil {
		t.Error("the gateway reads something after the terminal has closed the pipe")
	}
}
