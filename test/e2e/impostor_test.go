//go:build e2e && linux

package e2e_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"tapgw/internal/cli"
)

// TestImpostorTakesThePort kills a gateway and lets another program take its port,
// which answers every request as if all were well. No command of ours sends it
// anything of worth, a provider neither, and the next gateway is found again.
func TestImpostorTakesThePort(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	secret := h.read(".admin-token")
	provider := h.read(".provider-token")
	p := h.provider("sample", "greet")
	session := h.local()
	p.expect("bound " + session)
	g.kill()

	l, err := net.Listen("tcp", strings.TrimPrefix(g.url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var heard strings.Builder
	impostor := &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			var body []byte
			upgrade := r.Header.Get("Upgrade") != ""
			if !upgrade {
				body, _ = io.ReadAll(r.Body)
			} else if ws, err := websocket.Accept(w, r, nil); err == nil {
				_, body, _ = ws.Read(r.Context())
			}
			mu.Lock()
			defer mu.Unlock()
			_ = r.Header.Write(&heard)
			_, _ = heard.Write(body)
			if !upgrade {
				_, _ = io.WriteString(w, "[]")
			}
		})}
	served := make(chan error, 1)
	go func() { served <- impostor.Serve(l) }()

	for says, args := range map[string][]string{
		"is of a gateway that has ended": {"sessions", "query", session,
			"the launch code"},
		"it could not prove that it knows the token (": {"--url", g.url, "push", "the launch code"},
		"could not prove that it knows the token (TAP_ADM": {"--url", g.url, "sessions", "start",
			"--provider-url",
			"http://127.0.0.1:1/v1"},
	} {
		var env []string
		if strings.Contains(says, "TAP_ADM") {
			env = []string{"TAP_ADMIN_TOKEN=" + secret, "TAP_MODEL_KEY=the launch code"}
		}
		run := start(t, "tapctl", h.command(env, tapctl, args...))
		if code := run.wait(patience); code != cli.ExitUnreachable {
			t.Errorf("tapctl %q ended with code %d, want %v", args, code, cli.ExitUnreachable)
		}
		run.expect(says)
	}
	p.expect("is not the gateway of the token")
	mu.Lock()
	for _, word := range []string{secret, provider, "the launch code"} {
		if strings.Contains(heard.String(), word) {
			t.Errorf("the impostor heard %q, want nothing of a token:\n%s", word, heard.String())
		}
	}
	mu.Unlock()
	_ = impostor.Close()
	<-served //nolint:errcheck // it was closed
	h.serve()
	p.expect("bound " + h.local())
}
