package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/proof"
)

const sdkToken = "ptk-bench"

// script is a gateway that only knows how to greet and call.
type script struct {
	b     *testing.B
	url   string
	conns chan *websocket.Conn
}

func newScript(b *testing.B) *script {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := &script{b: b, url: "ws://" + ln.Addr().String(), conns: make(chan *websocket.Conn, 1)}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, nonce, _ := proof.ParseQuestion(r.Header.Get(proof.AskHeader))
			if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
				w.Header().Set(proof.AnswerHeader, proof.Answer(proof.KeyOf(sdkToken), nonce,
					proof.Address(at)))
			}
			if c, err := websocket.Accept(w, r, nil); err == nil {
				c.SetReadLimit(-1)
				g.conns <- c
			}
		})}
	go func() { _ = srv.Serve(ln) }()
	b.Cleanup(func() { _ = srv.Close() })
	return g
}

// BenchmarkPython is a provider of the Python SDK beside a bare client of websockets that answers
// the same frames. The start is the processor time of import, connect and bind.
func BenchmarkPython(b *testing.B) {
	g := newScript(b)
	compare(b, func() metrics { return g.round("bench/sdk/bare.py") },
		func() metrics { return g.round("bench/sdk/provider.py") })
}

// round starts a provider in Python and calls it: one call at a time, then 64 at once.
func (g *script) round(file string) metrics {
	g.b.Helper()
	ctx, cancel := context.WithTimeout(g.b.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", file)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TAP_GATEWAY_URL="+g.url, "TAP_PROVIDER_TOKEN="+sdkToken)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		g.b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var c *websocket.Conn
	select {
	case c = <-g.conns:
	case <-ctx.Done():
		g.b.Fatalf("%s did not connect", file)
	}
	defer func() { _ = c.CloseNow() }()
	check := func(err error) {
		if err != nil {
			g.b.Fatalf("%s: %v", file, err)
		}
	}
	check(greet(ctx, c))
	start := cpuOf(g.b, cmd.Process.Pid)
	took := make([]time.Duration, 800)
	for i := range took {
		began := time.Now()
		check(ask(ctx, c, i))
		check(result(ctx, c))
		took[i] = time.Since(began)
	}
	p50, p99 := quantiles(took, us)
	before := cpuOf(g.b, cmd.Process.Pid)
	const calls = 3200
	for sent, ended := 0, 0; ended < calls; {
		if sent < calls && sent-ended < 64 {
			check(ask(ctx, c, sent))
			sent++
			continue
		}
		check(result(ctx, c))
		ended++
	}
	return metrics{"start-cpu-ms": ms(start), "p50-us": p50, "p99-us": p99,
		"calls/cpu-s": calls / (cpuOf(g.b, cmd.Process.Pid) - before).Seconds()}
}

// greet takes a provider to a session.
func greet(ctx context.Context, c *websocket.Conn) error {
	for _, answer := range []string{
		`{"type":"sessions","active":[{"id":"s1","label":"one","cwd":"/one"}]}`,
		`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1","reconnectToken":"rt-1"}`,
	} {
		if _, _, err := c.Read(ctx); err != nil {
			return err
		}
		if err := c.Write(ctx, websocket.MessageText, []byte(answer)); err != nil {
			return err
		}
	}
	return nil
}

func ask(ctx context.Context, c *websocket.Conn, id int) error {
	return c.Write(ctx, websocket.MessageText, fmt.Appendf(nil,
		`{"type":"tool.call","id":"0199f2a0-%012d","sessionId":"s1","tool":"echo","args":{"text":"%s"}}`,
		id, strings.Repeat("x", 100)))
}

// result reads the result of a call.
func result(ctx context.Context, c *websocket.Conn) error {
	_, data, err := c.Read(ctx)
	if err != nil {
		return err
	}
	var m resultFrame
	if err := json.Unmarshal(data, &m); err != nil || m.Type != "tool.result" ||
		len(m.Data) != 100 {
		return fmt.Errorf("got %.200s, want a result", data)
	}
	return nil
}
