package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/jsonrpc"
	"tapgw/internal/lentpipe"
)

// echoTerminals answers each message of a terminal with one that the gateway may write by itself, and one that it may
// not.
type echoTerminals struct{ openAPITerminals }

func (echoTerminals) Serve(_ context.Context, _ TerminalHello, pipe io.ReadWriteCloser) error {
	in := bufio.NewReader(pipe)
	for {
		if _, err := jsonrpc.ReadFrame(in, 1<<20); err != nil {
			return nil //nolint:nilerr // the terminal has gone
		}
		for _, answer := range []string{`{"method":"session.log"}`, `{"method":"session.tools.set"}`} {
			if _, err := pipe.Write(jsonrpc.AppendFrame(nil, []byte(answer))); err != nil {
				return nil //nolint:nilerr // the terminal has gone
			}
		}
	}
}

// TestTerminalOffersItsPipe has owners of pipes that offer them rightly, wrongly, and then break the rules.
func TestTerminalOffersItsPipe(t *testing.T) {
	f := &restFixture{t: t, dir: t.TempDir(), copilot: &restCopilot{}, client: &http.Client{}}
	f.gateway = gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	f.server = New(Options{Gateway: f.gateway, Terminals: echoTerminals{}})
	if err := f.server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.url = "http" + strings.TrimPrefix(f.server.URL(), "ws")
	f.serve()

	file := func(r, w *os.File, err error) (*os.File, *os.File) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		return r, w
	}
	in, cli := file(os.Pipe())
	toCLI, out := file(os.Pipe())
	own, err := lentpipe.Own(in)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	dial := func(offer, token string) (*websocket.Conn, *http.Response, error) {
		query := url.Values{"session": {"s"}, lentpipe.Param: {offer}}
		return websocket.Dial(t.Context(), f.url+"/terminal?"+query.Encode(),
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	}
	admin := f.gateway.AdminToken()
	frame := jsonrpc.AppendFrame(nil, []byte(`{}`))
	offer := func() (lentpipe.Ends, *os.File, *os.File) {
		t.Helper()
		e, taken, fill, err := lentpipe.Offer(own, out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = taken.Close(), fill.Close() })
		return e, taken, fill
	}

	e, _, _ := offer()
	if _, answer, err := dial(e.String(), "guess"); err == nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a pipe with a foreign token: %v, want 401", err)
	}
	e.In.Inode++
	for _, wrong := range []string{"no JSON", `{}`, e.String()} {
		ws, answer, err := dial(wrong, admin)
		if err != nil {
			t.Fatalf("%q: %v, want a connection for what passes", wrong, err)
		}
		if got := answer.Header.Get(lentpipe.Header); got != "" {
			t.Errorf("%q is %s, want it not", wrong, got)
		}
		if err := ws.Write(t.Context(), websocket.MessageBinary, frame); err != nil {
			t.Fatal(err)
		}
		if _, data, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(data), "session.log") {
			t.Errorf("%q: %q, %v, want what passes through the connection", wrong, data, err)
		}
		_ = ws.CloseNow()
	}

	e, taken, fill := offer()
	ws, answer, err := dial(e.String(), admin)
	if err != nil || answer.Header.Get(lentpipe.Header) != lentpipe.Taken {
		t.Fatalf("the right pipe: %v, %v, want it taken", answer, err)
	}
	_ = fill.Close()
	if _, err := cli.Write(frame); err != nil {
		t.Fatal(err)
	}
	tell := func(message string) {
		t.Helper()
		if err := ws.Write(t.Context(), websocket.MessageBinary, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	tell("") // it may begin
	if data, err := jsonrpc.ReadFrame(bufio.NewReader(toCLI), 1<<20); err != nil ||
		!strings.Contains(string(data), "session.log") {
		t.Errorf("the CLI reads %q, %v, want the message that the gateway may write by itself", data, err)
	}
	if _, data, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(data), "tools.set") {
		t.Errorf("the owner reads %q, %v, want the other message", data, err)
	}
	tell("") // it is written
	tell("") // nothing was asked
	tell("")
	was, err := io.ReadAll(taken) // the gateway has left
	_ = cli.Close()
	rest, failed := io.ReadAll(own)
	if got := string(was) + string(rest); err != nil || failed != nil || got != string(frame) {
		t.Errorf("the owner reads %q of the CLI (%v, %v), want %q", got, err, failed, frame)
	}
	_ = ws.CloseNow()
}

// TestTerminalOwnerIsStuck has an owner that never says that a message is written, for its CLI is frozen. The gateway
// can leave it.
func TestTerminalOwnerIsStuck(t *testing.T) {
	in, cli, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toCLI, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	own, err := lentpipe.Own(in)
	if err != nil {
		t.Fatal(err)
	}
	e, taken, fill, err := lentpipe.Offer(own, out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		own.Release()
		for _, f := range []*os.File{in, cli, toCLI, out, taken, fill} {
			_ = f.Close()
		}
	}()
	p, err := borrow(e.String())
	if err != nil {
		t.Fatal(err)
	}
	p.Begin()
	handed := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		p.ctx, p.ws = r.Context(), ws
		_, err = p.Write(jsonrpc.AppendFrame(nil, []byte(`{"method":"session.tools.set"}`)))
		handed <- err
	}))
	defer server.Close()
	ws, _, err := websocket.Dial(t.Context(), server.URL, nil) //nolint:bodyclose // the WebSocket closes it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if _, _, err := ws.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	select {
	case err := <-handed:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("the message ended with %v, want %v", err, os.ErrClosed)
		}
	case <-time.After(10 * time.Second):
		t.Error("the message still waits for its owner")
	}
}
