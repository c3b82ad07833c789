//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// TestTerminalSwitches follows a terminal with a link to its other sessions: /clear ends one and
// begins another.
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

// TestTerminalNewSession has a terminal that keeps its session while /new begins another one, and
// goes back to it. Both are the gateway's sessions, and the foreground session is the one in which
// the person has typed last.
func TestTerminalNewSession(t *testing.T) {
	t.Parallel()
	t.Run("hooks, MCP and extension", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		h.serve()
		h.install("--hooks", "--mcp", "--extension")
		h.terminals(model(t, greeter), 1).open("work", extensionsOn).keepsSessions()
	})
	t.Run("port", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		h.serve()
		x := h.terminals(model(t, greeter), 1).open("work", "--ui-server")
		x.attach()
		x.keepsSessions()
	})
}

// keepsSessions is [TestTerminalNewSession] in one terminal.
func (x *terminal) keepsSessions() {
	h, t := x.home, x.home.t
	x.say("Good morning", "You said: Good morning")
	first := x.joined()
	inForeground := func(is func(id string) bool) {
		t.Helper()
		x.wait(func() error {
			list := decode[[]adminapi.Session](t, h.tapctl("sessions", "--json"))
			i := slices.IndexFunc(list, func(s adminapi.Session) bool { return s.Foreground })
			if i < 0 || !is(list[i].ID) {
				return fmt.Errorf(
					"the sessions are %+v, another one should be the foreground session", list)
			}
			return nil
		})
	}
	x.enter("/new")
	x.waitScreen("Started a new session", ready)
	x.say("Good evening", "You said: Good evening")
	inForeground(func(id string) bool { return id != first })
	if n := len(decode[[]adminapi.Session](t, h.tapctl("sessions", "--json"))); n != 2 {
		t.Errorf("the gateway has %d sessions after /new, want both of the terminal's", n)
	}

	x.enter("/resume")
	x.waitScreen("[Sessions]", "❯ ● Good evening", "Good morning")
	x.press("Down")
	x.waitScreen("❯ ● Good morning")
	x.press("Enter")
	x.waitScreen("You said: Good morning", ready)
	x.say("Here again", "You said: Here again")
	inForeground(func(id string) bool { return id == first })
	x.kill()
	h.waitTerminals()
}

// TestTerminalOnDemand has no gateway until a terminal needs one. That gateway leaves some time
// after the last terminal, and the next terminal starts another.
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
