//go:build e2e && linux

package e2e_test

import (
	"testing"
	"time"
)

// TestTerminalSwitches follows a terminal with a link to its other sessions: /clear ends one and begins another.
func TestTerminalSwitches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word   string
		attach bool
	}{
		"extension": {word: extensionsOn},
		"port":      {word: "--ui-server", attach: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.serve()
			h.install("--extension")
			x := h.terminals(model(t, greeter), 1).open("work", c.word)
			if c.attach {
				x.attach()
			}
			h.waitTerminals(x)
			before := x.session()
			h.bindProvider(before, "toolbox", "greet_first")
			x.greets("greet_first", "Ann")
			x.enter("/clear")
			x.waitScreen("Started a fresh session", ready)
			after := x.session()
			if after == before {
				t.Errorf("after /clear the session is %s as before, want another", after)
			}
			h.waitTerminals(x)
			h.bindProvider(after, "cabinet", "greet_second")
			x.greets("greet_second", "Eve")
		})
	}
}

// TestTerminalOnDemand has no gateway until a terminal needs one. That gateway leaves some time after the last
// terminal, and the next terminal starts another.
func TestTerminalOnDemand(t *testing.T) {
	t.Parallel()
	const grace = (1 + 2*slowdown) * time.Second
	h := newHome(t)
	h.install("--hooks", "--mcp", "--extension")
	h.put("tapgw.toml", "listen = \"127.0.0.1:0\"")
	h.env = append(h.env, "TAPGW_CONFIG="+h.path("tapgw.toml"), "TAPGW_GRACE="+grace.String())
	t.Cleanup(h.killGateway)
	s := h.terminals(model(t, greeter), 2)
	x := s.open("one", extensionsOn)
	h.waitTerminals(x)
	first := h.gatewayInfo().PID
	stays(t, grace+time.Second, func() error { return h.runs(first) })
	x.kill()
	h.waitEnded(first)

	y := s.open("two", extensionsOn)
	h.waitTerminals(y)
	if second := h.gatewayInfo().PID; second == first {
		t.Errorf("the gateway is process %d as before, want another", second)
	}
}
