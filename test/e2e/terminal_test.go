//go:build e2e && linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// sessionOf returns a session as the gateway lists it.
func (h *home) sessionOf(id string) (s adminapi.Session, ok bool) {
	h.t.Helper()
	list := decode[[]adminapi.Session](h.t, h.tapctl("sessions", "--json"))
	i := slices.IndexFunc(list, func(s adminapi.Session) bool { return s.ID == id })
	if i < 0 {
		return s, false
	}
	return list[i], true
}

// joined waits until the terminal's session is the gateway's, and returns its id.
func (x *terminal) joined() string {
	x.home.t.Helper()
	id := x.session()
	x.wait(func() error {
		s, ok := x.home.sessionOf(id)
		if !ok {
			return fmt.Errorf("the gateway has no session %s of terminal %s", id, x.name)
		}
		if s.CWD != x.dir || s.Host != "terminal" {
			return fmt.Errorf("the session of terminal %s is %+v, want the directory %s", x.name, s,
				x.dir)
		}
		return nil
	})
	return id
}

// isListed waits until the gateway lists the terminal's session with this label, and as the
// foreground session or not.
func (x *terminal) isListed(label string, inForeground bool) {
	x.home.t.Helper()
	id := x.session()
	x.wait(func() error {
		s, ok := x.home.sessionOf(id)
		if !ok || s.Label != label || s.Foreground != inForeground {
			return fmt.Errorf(
				"the session of terminal %s is %+v (%v), want the label %s and foreground %v",
				x.name, s, ok, label, inForeground)
		}
		return nil
	})
}

// extensionsOn switches extensions on in a CLI.
const extensionsOn = "COPILOT_CLI_ENABLED_FEATURE_FLAGS=EXTENSIONS"

// terminalWays are the ways that give a terminal tools: what is installed, and how the CLI calls a
// tool then.
var terminalWays = map[string]struct {
	flags []string // of tapgw install copilot
	env   string   // of the CLI
	tools string   // stands before the names of tools
	wakes bool     // an inject begins a turn
}{
	"hooks and MCP": {tools: "tapgw-"},
	"extension":     {flags: []string{"--extension"}, env: extensionsOn, wakes: true},
	"all": {flags: []string{"--hooks", "--mcp", "--extension"}, env: extensionsOn,
		wakes: true},
}

// TestTerminals has two terminals in two directories. Both are sessions of the gateway, one each by
// whichever ways they have joined. What a provider of one does reaches that one only.
func TestTerminals(t *testing.T) {
	t.Parallel()
	for name, way := range terminalWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.serve()
			h.install(way.flags...)
			m := model(t, greeter)
			s := h.terminals(m, 2)
			h.repository("left", "topic")
			left, right := s.launch("left", way.env), s.launch("right", way.env)
			left.waitReady()
			right.waitReady()
			h.waitTerminals(left, right)
			session := left.session()
			p := h.bindProvider(session, "toolbox", "greet_left,wait_left")
			left.greets(way.tools+"greet_left", "Ann")
			right.say("call:"+way.tools+`greet_left {"name": "Bob"}`, "No tool to greet Bob.")
			right.isListed("right", true)

			// The tools change while the terminal runs.
			p.writeLine("add greet_more")
			p.expect("added greet_more <nil>")
			left.greets(way.tools+"greet_more", "Eve")
			p.writeLine("remove greet_left")
			p.expect("removed greet_left <nil>")
			left.cannotGreet(way.tools+"greet_left", "Dan")
			left.isListed("left@topic", true)
			right.isListed("right", false)

			// Pushes reach the terminal of the provider.
			p.writeLine("push surface The build is red.")
			p.expect("pushed The build is red. <nil>")
			p.writeLine("push inject The tests failed.")
			p.expect("pushed The tests failed. <nil>")
			if way.wakes {
				left.waitScreen("The build is red.", "The tests failed.", ready)
				left.picture("terminal-extension")
			} else {
				left.say("What is new?", "You said: What is new?")
			}
			left.waitHeard("The tests failed.")
			if screen := right.screen(); strings.Contains(screen, "The tests failed.") ||
				strings.Contains(screen, "The build is red.") {
				t.Errorf("the other terminal shows a push, want none:\n%s", screen)
			}

			// What comes during a turn arrives at its end at the latest.
			left.enter("call:" + way.tools + "wait_left {}")
			p.expect("called wait_left")
			p.writeLine("push inject The disk is full.")
			p.expect("pushed The disk is full. <nil>")
			p.writeLine("finish")
			left.waitHeard("The disk is full.")

			// A terminal that dies takes its session with it, and only that.
			left.kill()
			h.waitTerminals(right)
		})
	}
}

// TestTerminalExtensionRestart has a gateway that hangs while its terminal, which has an extension
// alone, goes on. Then it is killed during a call. The call ends, and the next gateway gets the
// terminal, its session and the session's provider.
func TestTerminalExtensionRestart(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	h.install("--extension")
	x := h.terminals(model(t, greeter), 1).open("work", extensionsOn)
	h.waitTerminals(x)
	session := x.session()
	p := h.bindProvider(session, "toolbox", "greet_all,wait_here")
	x.greets("greet_all", "Ann")
	g.freeze()
	x.say("Good evening", "You said: Good evening")
	g.signal(syscall.SIGCONT)
	x.greets("greet_all", "Bob")
	x.enter("call:wait_here {}")
	p.expect("called wait_here")
	g.kill()
	x.waitScreen("gateway is not running", ready)
	h.serve()
	began := time.Now()
	p.expectNth("bound "+session+" ", 2) // it says unbound, too
	h.waitTerminals(x)
	t.Logf("terminal and provider are back after %v", time.Since(began))
	x.greets("greet_all", "Zoe")
}

var listening = regexp.MustCompile(`Server listening on port (\d+)`)

// attach attaches the gateway to a terminal that was started with --ui-server.
func (x *terminal) attach() {
	x.home.t.Helper()
	x.waitScreen("Server listening on port")
	port := listening.FindStringSubmatch(x.screen())[1]
	for range 2 { // the second time nothing changes
		if got := x.home.tapctl("attach", port); strings.TrimSpace(got) != x.session() {
			x.home.t.Fatalf("tapctl attach printed %q, want the session %s", got, x.session())
		}
	}
}

// TestTerminalAttachRestart has a gateway that is killed during a call of an attached terminal, and
// one that is stopped. The next one gets the terminal, its session and the session's provider
// without another tapctl attach, and the call ends.
func TestTerminalAttachRestart(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	x := h.terminals(model(t, greeter), 1).open("work", "--ui-server")
	x.attach()
	h.waitTerminals(x)
	session := x.session()
	p := h.bindProvider(session, "toolbox", "greet_all,wait_here")
	x.enter("call:wait_here {}")
	p.expect("called wait_here")
	for i, end := range []func(){func() { g.kill() }, func() { g.shutDown() }} {
		end()
		g = h.serve()
		began := time.Now()
		p.expectNth("bound "+session+" ", 2+i)
		h.waitTerminals(x)
		t.Logf("terminal and provider are back after %v", time.Since(began))
		if i == 0 {
			x.waitScreen("the gateway was lost during the call", ready)
		}
		x.greets("greet_all", []string{"Eve", "Zoe"}[i])
	}

	// A session that a person stops is not attached again.
	h.tapctl("sessions", "stop", session)
	x.wait(func() error {
		if _, err := os.Stat(h.state("attached.json")); err == nil {
			return errors.New("the port of the stopped session is still remembered")
		}
		return nil
	})
}

// forbids is a rule for a gate about the CLI's own shell.
var forbids = rules(message{"match": message{"tool": "shell", "args": "touch forbidden"},
	"action": "gate", "gateId": "no-touch"})

// TestTerminalGates has a provider that denies a command of the CLI's own shell.
func TestTerminalGates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags  []string
		args   []string
		attach bool
	}{
		"hooks alone":  {flags: []string{"--hooks"}},
		"attach alone": {args: []string{"--ui-server"}, attach: true},
		"hooks and attach": {flags: []string{"--hooks"}, args: []string{"--ui-server"},
			attach: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			g := h.serve()
			if c.flags != nil {
				h.install(c.flags...)
			}
			x := h.terminals(model(t, scriptmodel.Calls), 1).open("work", c.args...)
			if c.attach {
				x.attach()
			}
			// Hooks alone tell of a session when there is a prompt.
			x.say("Good morning", "You said: Good morning")
			p := g.guard(x.joined(), forbids)

			x.enter(`call:bash {"command": "touch forbidden", "description": "touches"}`)
			p.deny("Nobody touches this on Fridays.")
			// Whoever sits there sees why, and who said so.
			x.waitScreen("Denied by", "guard", "Nobody touches this on Fridays.", ready)
			x.picture("terminal-gate")
			x.say(
				`call:bash {"command": "touch allowed && echo made $((6*7))", "description": "touches"}`, "made 42")
			x.made("forbidden", false)
			x.made("allowed", true)
			if n := p.count("gate.check"); n != 1 {
				t.Errorf("the gate was asked %d times, want once", n)
			}
		})
	}
}

// TestTerminalToolGates has a gate about calls of a provider's tool. It is asked once about each
// call, by whichever ways the terminal has joined, and a call that it denies does not reach the
// tool's provider.
func TestTerminalToolGates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags []string
		word  string // environment or flag of the CLI
	}{
		"extension alone":     {flags: []string{"--extension"}, word: extensionsOn},
		"extension and hooks": {flags: []string{"--extension", "--hooks"}, word: extensionsOn},
		"attach alone":        {word: "--ui-server"},
		"attach and hooks":    {flags: []string{"--hooks"}, word: "--ui-server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			g := h.serve()
			if c.flags != nil {
				h.install(c.flags...)
			}
			x := h.terminals(model(t, greeter), 1).open("work", c.word)
			if c.word != extensionsOn {
				x.attach()
			}
			h.waitTerminals(x)
			session := x.session()
			toolbox := h.bindProvider(session, "toolbox", "greet_all,steps_all")
			x.greets("greet_all", "Ann") // it has come
			p := g.guard(session,
				rules(message{"match": message{"tool": "steps_all"}, "action": "gate",
					"gateId": "no-steps"}))

			x.enter(`call:steps_all {"far": 1.0}`)
			p.deny("Nobody walks on Fridays.")
			x.waitScreen("Nobody walks on Fridays.", ready)
			x.enter(`call:steps_all {"far": 2.0}`)
			p.send(message{"type": "gate.result", "callId": p.next("gate.check")["callId"],
				"decision": "allow"})
			x.waitScreen("walked", ready)
			toolbox.expect("called steps_all")
			if calls, _ := toolbox.matches("called steps_all"); len(calls) != 1 {
				t.Errorf("the provider got %d calls, want the one that was allowed", len(calls))
			}
			if n := p.count("gate.check"); n != 2 {
				t.Errorf("the gate was asked %d times about two calls", n)
			}
		})
	}
}

// made checks whether the terminal's folder has a file.
func (x *terminal) made(name string, want bool) {
	x.home.t.Helper()
	_, err := os.Stat(filepath.Join(x.dir, name))
	if got := err == nil; got != want {
		x.home.t.Errorf("%s was made: %v, want %v (%v)", name, got, want, err)
	}
}

// TestTerminalGatewayFails has a gateway that hangs, dies and comes back, while a terminal with
// hooks alone goes on.
func TestTerminalGatewayFails(t *testing.T) {
	t.Parallel()
	for without, runs := range map[string]bool{"allow": true, "deny": false} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			if err := os.MkdirAll(h.path(".config", "tapgw"), 0o700); err != nil {
				t.Fatal(err)
			}
			h.put(".config/tapgw/tapgw.toml", fmt.Sprintf("[terminals]\nwithout_gateway = %q\n",
				without))
			g := h.serve()
			h.install("--hooks")
			x := h.terminals(model(t, scriptmodel.Calls), 1).open("work")
			x.say("Good morning", "You said: Good morning")
			session := x.joined()
			touch := func(file string) string {
				return fmt.Sprintf(
					`call:bash {"command": "touch %s && echo made $((6*7)) in %[1]s", "description": "touches"}`, file)
			}

			g.freeze()
			x.say(touch("frozen"), "Denied by")
			x.made("frozen", false)
			g.signal(syscall.SIGCONT)
			x.say(touch("thawed"), "made 42 in thawed")

			g.kill()
			x.say(touch("alone"), map[bool]string{true: "made 42 in alone",
				false: "without_gateway"}[runs])
			x.made("alone", runs)

			// It is the same session for the next gateway, and its gates are asked again.
			g = h.serve()
			x.say("Good evening", "You said: Good evening")
			if again := x.joined(); again != session {
				t.Errorf("the session is %s after a restart, want %s", again, session)
			}
			p := g.guard(session, forbids)
			x.enter(`call:bash {"command": "touch forbidden", "description": "touches"}`)
			p.deny("Nobody touches this.")
			x.waitScreen("Nobody touches this.", ready)
			x.made("forbidden", false)
		})
	}
}

// TestTerminalProgramGone has hooks of a tapgw that is deleted while a terminal runs. The CLI's own
// calls go on.
func TestTerminalProgramGone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	data, err := os.ReadFile(tapgw)
	if err != nil {
		t.Fatal(err)
	}
	program := h.path("tapgw")
	if err := os.WriteFile(program, data, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if out, err := h.command(nil, program, "install", "copilot",
		"--hooks").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g := h.serve()
	x := h.terminals(model(t, scriptmodel.Calls), 1).open("work")
	x.say("Good morning", "You said: Good morning")
	p := g.guard(x.joined(), forbids)
	x.enter(`call:bash {"command": "touch forbidden", "description": "touches"}`)
	p.deny("Nobody touches this.")
	x.waitScreen("Nobody touches this.", ready)

	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	x.say(`call:bash {"command": "touch alone && echo made $((6*7))", "description": "touches"}`,
		"made 42")
	x.made("alone", true)
	x.made("forbidden", false)
}

// guard binds a provider in this process that has these rules.
func (g *gateway) guard(session string, rules message) *peer {
	g.t.Helper()
	p := g.connect()
	p.send(message{"type": "auth", "token": g.home.read(".provider-token")})
	p.next("sessions")
	p.send(with(message{"type": "hello", "name": "guard", "protocolVersion": 2, "session": session},
		rules))
	p.next("hello.ack")
	return p
}

// deny denies the call that a gate is asked about next.
func (c *peer) deny(reason string) {
	c.t.Helper()
	c.send(message{"type": "gate.result", "callId": c.next("gate.check")["callId"],
		"decision": "deny", "reason": reason})
}
