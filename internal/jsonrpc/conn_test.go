package jsonrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// patience bounds waits that must not take long; nothing is measured by it.
const patience = 20 * time.Second

// pair connects two ends.
func pair(t *testing.T, a, b Options) (*Conn, *Conn) {
	t.Helper()
	x, y := net.Pipe()
	left, right := New(x, a), New(y, b)
	t.Cleanup(left.Close)
	t.Cleanup(right.Close)
	return left, right
}

// raw is a peer that the test plays itself.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newRaw(t *testing.T, o Options) (*Conn, *raw) {
	t.Helper()
	x, y := net.Pipe()
	c := New(x, o)
	t.Cleanup(c.Close)
	t.Cleanup(func() { _ = y.Close() })
	return c, &raw{t, y, bufio.NewReader(y)}
}

func (r *raw) send(messages ...string) {
	r.t.Helper()
	var out []byte
	for _, m := range messages {
		out = AppendFrame(out, []byte(m))
	}
	if _, err := r.conn.Write(out); err != nil {
		r.t.Error(err)
	}
}

// next reads a message and compares it, key order aside.
func (r *raw) next(want string) {
	r.t.Helper()
	body, err := ReadFrame(r.in, 1<<20)
	if err != nil {
		r.t.Fatalf("reading %s: %v", want, err)
	}
	if canonical(r.t, string(body)) != canonical(r.t, want) {
		r.t.Errorf("got %s, want %s", body, want)
	}
}

func canonical(t *testing.T, s string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Notifications come in order, and all that were sent before an answer come
// before it.
func TestOrder(t *testing.T) {
	var seen []string // the reading goroutine's, and the test's after an answer
	var server *Conn
	ready := make(chan struct{})
	client, server := pair(t, Options{
		OnNotify: func(_ string, params json.RawMessage) { seen = append(seen, string(params)) },
	}, Options{
		OnRequest: func(_ context.Context, _ string, params json.RawMessage) (any, error) {
			<-ready
			for i := range 100 {
				if err := server.Notify("progress", []any{params, i}); err != nil {
					return nil, err
				}
			}
			return params, nil
		},
	})
	close(ready)
	for call := range 20 {
		seen = nil
		var got int
		if err := client.Call(background(t), "turn", call, &got); err != nil || got != call {
			t.Fatalf("%d %v, want no error and %d", got, err, call)
		}
		if len(seen) != 100 {
			t.Fatalf("answered after %d of 100 notifications, want 100", len(seen))
		}
		for i, s := range seen {
			if want := fmt.Sprintf("[%d,%d]", call, i); s != want {
				t.Fatalf("notification %d is %s, want %s", i, s, want)
			}
		}
	}
}

// A request's handler may call back and wait.
func TestHandlersCallBack(t *testing.T) {
	var client, server *Conn
	ready := make(chan struct{})
	down := func(conn **Conn) Options {
		return Options{OnRequest: func(ctx context.Context, method string, params json.RawMessage) (
			any, error) {
			<-ready
			var n int
			if err := json.Unmarshal(params, &n); err != nil || n == 0 {
				return "bottom", err
			}
			var s string
			err := (*conn).Call(ctx, method, n-1, &s)
			return s, err
		}}
	}
	client, server = pair(t, down(&client), down(&server))
	close(ready)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			var s string
			if err := client.Call(background(t), "down", 7, &s); err != nil || s != "bottom" {
				t.Errorf(`%q %v, want no error and "bottom"`, s, err)
			}
		})
	}
	all.Wait()
}

func TestWhatIsSent(t *testing.T) {
	c, peer := newRaw(
		t,
		Options{OnRequest: func(_ context.Context, method string, params json.RawMessage) (any,
			error) {
			switch method {
			case "echo":
				return params, nil
			case "nothing":
				return nil, nil
			case "unencodable":
				return func() {}, nil
			case "plain":
				return nil, errors.New("broken")
			}
			return nil, &Error{CodeMethodNotFound, "no method " + method}
		}},
	)
	for _, tt := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":0,"method":"echo","params":{"z":1,"a":[12345678901234567890, 1.50]}}`,
			`{"jsonrpc":"2.0","id":0,"result":{"z":1,"a":[12345678901234567890, 1.50]}}`},
		{`{"jsonrpc":"2.0","id":"x","method":"echo","params":["<&>"]}`,
			`{"jsonrpc":"2.0","id":"x","result":["<&>"]}`},
		{`{"jsonrpc":"2.0","id":"","method":"echo","params":"\ud800"}`,
			`{"jsonrpc":"2.0","id":"","result":"\ud800"}`},
		{`{"id":7,"method":"nothing"}`, `{"jsonrpc":"2.0","id":7,"result":null}`},
		{`{"id":8,"method":"plain"}`,
			`{"jsonrpc":"2.0","id":8,"error":{"code":-32603,"message":"broken"}}`},
		{`{"id":9,"method":"what","params":{}}`,
			`{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"no method what"}}`},
		{`{"id":10,"method":"unencodable"}`,
			`{"jsonrpc":"2.0","id":10,"error":{"code":-32603,"message":"json: unsupported type: func()"}}`},
	} {
		peer.send(tt.in)
		peer.next(tt.want)
	}
	// Ours have ids from 1, and params even when there is nothing to say.
	answered := make(chan error, 1)
	for i, params := range []string{`{}`, `null`, `{"x":1}`} {
		go func() {
			var p any
			if i > 0 {
				p = json.RawMessage(params)
			}
			answered <- c.Call(background(t), "m", p, nil)
		}()
		peer.next(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":%s}`, i+1, params))
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":null}`, i+1))
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if err := c.Notify("n", nil); err != nil {
		t.Error(err)
	}
	peer.next(`{"jsonrpc":"2.0","method":"n","params":{}}`)
}

// What a request carries reaches its handler as the bytes that came.
func TestParamsAreUntouched(t *testing.T) {
	const params = `{"b":1,  "a":1e2,"c":"<\u003c>","n":12345678901234567890}`
	got := make(chan string, 2)
	_, peer := newRaw(t, Options{
		OnNotify: func(_ string, p json.RawMessage) { got <- string(p) },
		OnRequest: func(_ context.Context, _ string, p json.RawMessage) (any, error) {
			got <- string(p)
			return nil, nil
		},
	})
	peer.send(`{"jsonrpc":"2.0","method":"n","params":` + params + `}`)
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"n","params":` + params + `}`)
	for range 2 {
		if s := <-got; s != params {
			t.Errorf("got %s, want %s", s, params)
		}
	}
	peer.next(`{"jsonrpc":"2.0","id":1,"result":null}`)
}

func TestRefusal(t *testing.T) {
	client, _ := pair(t, Options{},
		Options{OnRequest: func(context.Context, string, json.RawMessage) (any, error) {
			return nil, &Error{1000, "not signed in"}
		}})
	err := client.Call(background(t), "turn", nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != 1000 ||
		err.Error() != "turn: not signed in" {
		t.Errorf(`%v, want code 1000 "turn: not signed in"`, err)
	}
	// The other way round nobody serves.
	client, server := pair(t, Options{}, Options{})
	_ = client
	if e, ok := errors.AsType[*Error](server.Call(background(t), "any", nil, nil)); !ok ||
		e.Code != CodeMethodNotFound {
		t.Errorf("%v, want code %d", e, CodeMethodNotFound)
	}
}

// A call whose context ends is cancelled on the other side, and its answer is
// waited for.
func TestCancel(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		err    string
	}{
		"normal answer": {`"result":"cancelled"`, ""},
		"refusal": {`"error":{"code":-32800,"message":"cancelled"}`,
			"turn: context canceled"},
		"another answer": {`"error":{"code":-32603,"message":"oops"}`, "turn: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := newRaw(t, Options{})
			ctx, cancel := context.WithCancel(background(t))
			var result string
			done := make(chan error, 1)
			cancelled := func() { _ = c.Notify("after", nil) }
			go func() { done <- c.CallWithin(ctx, patience, cancelled, "turn", nil, &result) }()
			peer.next(`{"jsonrpc":"2.0","id":1,"method":"turn","params":{}}`)
			cancel()
			peer.next(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
			peer.next(`{"jsonrpc":"2.0","method":"after","params":{}}`)
			select {
			case err := <-done:
				t.Fatalf("returned before the answer: %v, want it to wait", err)
			default:
			}
			peer.send(`{"jsonrpc":"2.0","id":1,` + tt.answer + `}`)
			err := <-done
			if tt.err == "" && (err != nil || result != "cancelled") {
				t.Errorf(`%q %v, want "cancelled" and no error`, result, err)
			}
			if tt.err != "" &&
				(err == nil || err.Error() != tt.err || !errors.Is(err, context.Canceled)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestCancelWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		c := New(x, Options{})
		go func() { _, _ = io.Copy(io.Discard, y) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := c.CallWithin(ctx, 3*time.Second, func() {}, "turn", nil, nil)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "turn: no answer within 3s") {
			t.Errorf(`%v, want %v and "turn: no answer within 3s" in it`, err,
				context.DeadlineExceeded)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("gave up after %v, want %v", took, 4*time.Second)
		}
		c.Close()
		_ = y.Close()
	})
}

// The other side's cancellation reaches the handler, by an id of 0 and by a string.
func TestCancelledByPeer(t *testing.T) {
	_, peer := newRaw(t,
		Options{OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			return "stopped", nil
		}})
	for _, id := range []string{`0`, `"0"`} {
		peer.send(`{"jsonrpc":"2.0","id":`+id+`,"method":"m","params":{}}`,
			`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":5}}`,
			`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[]}`,
			`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":`+id+`}}`)
		peer.next(`{"jsonrpc":"2.0","id":` + id + `,"result":"stopped"}`)
	}
}

// The end of the connection is one clear error for all who wait and who come later.
func TestEnd(t *testing.T) {
	handler := make(chan error, 1)
	begun := make(chan struct{})
	c, peer := newRaw(t, Options{
		OnRequest: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
			close(begun)
			<-ctx.Done()
			handler <- ctx.Err()
			return nil, ctx.Err()
		},
		Cause: func(err error) error { return fmt.Errorf("the server ended: %w", err) },
	})
	peer.send(`{"jsonrpc":"2.0","id":0,"method":"m","params":{}}`)
	<-begun
	const calls = 5
	errs := make(chan error, calls)
	for range calls {
		go func() { errs <- c.Call(background(t), "turn", nil, nil) }()
	}
	for range calls {
		if _, err := ReadFrame(peer.in, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	_ = peer.conn.Close()
	const want = "turn: the server ended: EOF"
	for range calls {
		if err := <-errs; err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := <-handler; !errors.Is(err, context.Canceled) {
		t.Errorf("handler's context: %v, want %v", err, context.Canceled)
	}
	if err := c.Call(background(t), "turn", nil, nil); err == nil || err.Error() != want {
		t.Errorf("a later call: %v, want an error and %v", err, want)
	}
	if err := c.Notify("n", nil); err == nil || err.Error() != "n: the server ended: EOF" {
		t.Errorf(`a later notification: %v, want an error and "n: the server ended: EOF"`, err)
	}
	if !errors.Is(c.Err(), io.EOF) {
		t.Errorf("Err: %v, want %v", c.Err(), io.EOF)
	}
}

func TestClose(t *testing.T) {
	words := errors.New("put away")
	c, peer := newRaw(t, Options{Cause: func(err error) error {
		return fmt.Errorf("%w: %w", words, err)
	}})
	done := make(chan error, 1)
	go func() { done <- c.Call(background(t), "turn", nil, nil) }()
	peer.next(`{"jsonrpc":"2.0","id":1,"method":"turn","params":{}}`)
	c.Close()
	c.Close()
	if err := <-done; !errors.Is(err, ErrClosed) || !errors.Is(err, words) {
		t.Errorf("waiting call: %v, want %v and %v", err, ErrClosed, words)
	}
	if err := c.Call(background(t), "turn", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("later call: %v, want %v", err, ErrClosed)
	}
}

func TestMalformedMessagesEndTheConnection(t *testing.T) {
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0"`:                            "reading a message",
		`[{"jsonrpc":"2.0","method":"m"}]`:            "reading a message",
		`null`:                                        "reading a message",
		`{"jsonrpc":"2.0"}`:                           "unable to determine message type",
		`{"jsonrpc":"2.0","method":5}`:                "reading a message",
		`{"jsonrpc":"2.0","method":"m","id":{"a":1}}`: "unexpected ID type",
		`{"jsonrpc":"2.0","id":1,"result":1} x`:       "reading a message",
	} {
		c, peer := newRaw(t, Options{})
		peer.send(body)
		if err := c.Err(); !strings.Contains(err.Error(), want) {
			t.Errorf("after %s: %v, want %q", body, err, want)
		}
	}
}

// Answers to nobody are dropped, those with an id of null among them.
func TestAnswersToNobody(t *testing.T) {
	c, peer := newRaw(t, Options{})
	done := make(chan error, 1)
	go func() { done <- c.Call(background(t), "turn", nil, nil) }()
	peer.next(`{"jsonrpc":"2.0","id":1,"method":"turn","params":{}}`)
	peer.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
		`{"jsonrpc":"2.0","id":99,"result":1}`, `{"jsonrpc":"2.0","id":"1","result":1}`,
		`{"jsonrpc":"2.0","id":1,"result":1}`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTooManyRequests(t *testing.T) {
	release := make(chan struct{})
	_, peer := newRaw(
		t,
		Options{MaxRequests: 2, OnRequest: func(context.Context, string, json.RawMessage) (any,
			error) {
			<-release
			return nil, nil
		}},
	)
	peer.send(`{"id":0,"method":"m"}`, `{"id":0,"method":"m"}`, `{"id":1,"method":"m"}`,
		`{"id":2,"method":"m"}`)
	peer.next(
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"request 0 is being answered already"}}`)
	peer.next(
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"2 requests are being answered: try again"}}`)
	close(release)
	for range 2 {
		if _, err := ReadFrame(peer.in, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// A peer that has stopped reading blocks nobody: what waits for it is bounded.
func TestPeerDoesNotRead(t *testing.T) {
	c, _ := newRaw(t, Options{MaxMessage: 1 << 20})
	big := strings.Repeat("x", 300<<10)
	var err error
	for range 10 {
		if err = c.Notify("n", big); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "n: the other side does not read") {
		t.Errorf(`%v, want an error and "n: the other side does not read" in it`, err)
	}
	ctx, cancel := context.WithCancel(background(t))
	cancel()
	if err := c.Call(ctx, "turn", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("call with a context that ended: %v, want %v", err, context.Canceled)
	}
	c.Close() // ends the write that hangs
}

// One message may be larger than what may wait.
func TestLargeMessage(t *testing.T) {
	client, _ := pair(
		t,
		Options{},
		Options{OnRequest: func(_ context.Context, _ string, p json.RawMessage) (any, error) {
			return len(p), nil
		}},
	)
	var n int
	if err := client.Call(background(t), "m", strings.Repeat("x", 2<<20), &n); err != nil ||
		n != 2<<20+2 {
		t.Errorf("%d %v, want no error and %d", n, err, 2<<20+2)
	}
	client, _ = pair(t, Options{}, Options{MaxMessage: 1 << 20})
	if err := client.Call(background(t), "m", strings.Repeat("x", 3<<20), nil); err == nil {
		t.Error("a message over the other side's limit: no error, want one")
	}
}
