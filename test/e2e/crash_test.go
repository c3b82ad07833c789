//go:build e2e && linux

package e2e_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/scriptmodel"
)

func TestRuntimeKilledInMidTurn(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	first, second := h.copilot(m, "--label", "first"), h.copilot(m, "--label", "second")
	p := h.bindProvider(first, "waiter", "wait,greet")
	h.bindProvider(second, "greeter", "greet")
	turn := h.asking(first, "call:wait")
	p.expect("called wait")
	killed := h.runtime()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	p.expect("ended wait cancelled: ")
	if code := turn.wait(patience); code == 0 {
		t.Errorf("the turn that was cut off ended with code 0, want a failure:\n%s", turn.output())
	}
	h.waitIdle(first)
	for _, session := range []string{first, second} {
		if got := h.ask(session, `call:greet {"name":"Ada"}`); got != "Hello, Ada!" {
			t.Errorf("after the crash session %s answers %q, want %q", session, got, "Hello, Ada!")
		}
	}
	if now := h.runtime(); now == killed {
		t.Errorf("the runtime %d was not killed, want another one", now)
	}
	if p.find("unbound") != "" {
		t.Errorf("the provider's output, want no message that its session ended:\n%s", p.output())
	}
	select {
	case <-g.done:
		t.Errorf("the gateway ended: %v, want it to run", g.cmd.ProcessState)
	default:
	}
}

func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m)
	var all []*process
	for _, name := range []string{"one", "two", "three"} {
		p := h.provider(name, "greet_"+name)
		p.expect("bound " + session)
		all = append(all, p)
	}
	if got := h.ask(session, `call:greet_one {"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("the session answers %q, want %q", got, "Hello, Ada!")
	}
	h.runtime()
	staleProvider, staleAdmin := h.read(".provider-token"), h.read(".admin-token")

	g.kill()
	h.waitNoRuntime(patience)
	if h.read(".provider-token") != staleProvider {
		t.Error("the token file of a gateway that was killed has changed, want it as it was")
	}
	next := h.serve()
	session = h.local()
	for _, p := range all {
		p.expect("bound " + session)
	}
	for i, name := range []string{"one", "two", "three"} {
		if got := h.call(session, "greet_"+name, `{"name":"Bob"}`); got != "Hello, Bob!" {
			t.Errorf("provider %d says %q, want %q", i, got, "Hello, Bob!")
		}
	}

	if h.read(".provider-token") == staleProvider || h.read(".admin-token") == staleAdmin {
		t.Error("the next gateway has the tokens of the last one, want new ones")
	}
	c := next.connect()
	c.send(message{"type": "auth", "token": staleProvider})
	if e := c.next("error"); e["code"] != "AUTH_FAILED" {
		t.Errorf(`a stale provider token gets %v, want "AUTH_FAILED"`, e)
	}
	if code := next.get("/api/v1/status", "Authorization",
		"Bearer "+staleAdmin); code != http.StatusUnauthorized {
		t.Errorf("a stale admin token gets %d, want %v", code, http.StatusUnauthorized)
	}
	if code := next.get("/api/v1/status", "Authorization",
		"Bearer "+h.read(".admin-token")); code != http.StatusOK {
		t.Errorf("the admin token gets %d, want %v", code, http.StatusOK)
	}
}

// TestShutdown ends a gateway with a Copilot session, a provider and a call in
// flight as its user does.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m)
	p := h.bindProvider(session, "waiter", "wait")
	turn := h.asking(session, "call:wait")
	p.expect("called wait")
	g.stop()
	p.expect("session shutdown.pending")
	p.expect("ended wait cancelled: ")
	turn.wait(patience)
	h.waitNoRuntime(patience)
	for _, file := range []string{".provider-token", ".admin-token", "gateway.json"} {
		if _, err := os.Lstat(h.state(file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left over (%v), want no file", file, err)
		}
	}
	if r := h.run(tapctl, "status"); r.code != 3 || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("without a gateway tapctl ends with code %d and says %q, want code 3 and one line",
			r.code, r.stderr)
	}
}
