package pipe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tapgw/internal/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is one end of a connection that speaks JSON-RPC.
type end struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newEnd(t *testing.T, conn net.Conn) *end { return &end{t, conn, bufio.NewReader(conn)} }

func (e *end) send(message string) {
	e.t.Helper()
	if _, err := e.conn.Write(jsonrpc.AppendFrame(nil, []byte(message))); err != nil {
		e.t.Fatalf("sending %s: %v", message, err)
	}
}

// want reads a message, which must have these texts, and returns its id.
func (e *end) want(texts ...string) string {
	e.t.Helper()
	data, err := jsonrpc.ReadFrame(e.in, 1<<20)
	if err != nil {
		e.t.Fatalf("reading a message with %q: %v", texts, err)
	}
	for _, text := range texts {
		if !strings.Contains(string(data), text) {
			e.t.Fatalf("got %s, want a message with %q", data, texts)
		}
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		e.t.Fatal(err)
	}
	return string(m.ID)
}

func (e *end) answer(id string) { e.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`) }

func TestPipeOutlivesGateways(t *testing.T) {
	ours, theirs := net.Pipe()
	cli := newEnd(t, theirs)
	gateways, knows := make(chan net.Conn), make(chan string, 2)
	p := Pipe{
		In: ours, Out: ours, Session: "s", Note: func(string) {},
		Dial: func(ctx context.Context, had []string) (io.ReadWriteCloser, error) {
			select {
			case conn := <-gateways:
				knows <- strings.Join(had, " ")
				return conn, nil
			case <-ctx.Done():
				return nil, errors.New("none")
			}
		},
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	start := func() *end {
		a, b := net.Pipe()
		gateways <- a
		return newEnd(t, b)
	}

	// It joins without a gateway.
	cli.answer(cli.want(`"connect"`))
	cli.answer(cli.want(`"session.resume"`, `"sessionId":"s"`, `"tools":[]`))
	cli.send(`{"jsonrpc":"2.0","id":7,"method":"hooks.invoke","params":{}}`)
	cli.want(`"id":7`, "not running")

	// A gateway gives a tool; both sides' requests are answered by the other.
	g := start()
	g.send(
		`{"jsonrpc":"2.0","id":"a1","method":"session.resume","params":{"tools":[{"name":"greet"}]}}`)
	cli.want(`"a1"`, "greet")
	cli.answer(`"a1"`)
	g.want(`"a1"`)
	cli.send(`{"jsonrpc":"2.0","id":8,"method":"hooks.invoke","params":{}}`)
	g.want(`"id":8`)
	g.answer(`8`)
	cli.want(`"id":8`)
	call := func(tool, request string) string {
		return `{"jsonrpc":"2.0","method":"session.event","params":{"event":{"type":"external_tool.requested",` +
			`"data":{"requestId":"` + request + `","toolName":"` + tool + `"}}}}`
	}
	cli.send(call("greet", "r1"))
	g.want("r1")
	cli.send(call("of_another", "r2"))
	g.want("r2")

	// It goes with a request and a call open, and half a message under way.
	g.send(`{"jsonrpc":"2.0","id":"a2","method":"ping"}`)
	cli.want(`"a2"`)
	_, _ = g.conn.Write([]byte("Content-Length: 900\r\n\r\n{\"jsonrpc\":"))
	_ = g.conn.Close()
	cli.answer(cli.want("handlePendingToolCall", `"r1"`, `"failure"`, NoGateway))

	// The next gateway gets no answer that the one before has asked for; calls without a gateway
	// fail at once.
	cli.send(call("greet", "r3"))
	cli.answer(cli.want("handlePendingToolCall", `"r3"`, `"failure"`))
	cli.answer(`"a2"`)
	g = start()
	g.send(`{"jsonrpc":"2.0","id":"b1","method":"ping"}`)
	cli.want(`"b1"`)
	cli.answer(`"b1"`)
	g.want(`"b1"`)

	if first, second := <-knows, <-knows; first != "" || second != "greet" {
		t.Errorf("the gateways are told of the tools %q and %q, want none and greet", first, second)
	}

	// The terminal closes the pipe.
	_ = theirs.Close()
	if err := <-done; err != nil {
		t.Errorf("Run: %v, want no error at the end of the terminal", err)
	}
	if _, err := g.in.ReadByte(); err == nil {
		t.Error("the gateway is still connected after the terminal has closed the pipe")
	}
}
