//go:build e2e && linux

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPythonSDK runs the first provider of docs/providers-python.md while gateways stand still, die
// and come back.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	doc, err := os.ReadFile(filepath.Join(repo, "docs", "providers-python.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(doc), "```python\n")
	code, _, _ = strings.Cut(code, "```")
	p := h.interpret(h.script("python", code), "PYTHONPATH="+filepath.Join(repo, "providers",
		"python"))
	var g *gateway
	check := func(session string) {
		t.Helper()
		h.waitTool(session, "greet")
		if got := h.call(session, "greet", `{"name":"Ada"}`); got != "Hello, Ada!" {
			t.Errorf("greet says %q, want %q", got, "Hello, Ada!")
		}
	}
	for range 3 {
		g = h.serve() // each has another port and another token
		session := h.local()
		check(session)
		before := h.only()
		g.freeze()
		g.signal(syscall.SIGCONT)
		check(session)
		if after := h.only(); after.ID != before.ID {
			t.Errorf("after a short freeze the provider is %q, want %q", after.ID, before.ID)
		}
		h.tapctl("sessions", "stop", session)
		g.waitSessionEnded(session, true)
		check(h.local())
		g.kill()
	}
	h.serve()
	check(h.local())
	p.signal(syscall.SIGTERM)
	if code := p.wait(patience); code != 0 {
		t.Errorf("it ended with code %d on SIGTERM, want 0", code)
	}
	eventually(t, patience, func() error { return connections(h, 0) })
}
