//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// install runs tapgw install copilot.
func (h *home) install(flags ...string) {
	h.t.Helper()
	if r := h.run(tapgw, append([]string{"install", "copilot", "--yes"},
		flags...)...); r.code != 0 {
		h.t.Fatalf("tapgw install copilot %q: code %d, want 0: %s", flags, r.code, r.stderr)
	}
}

// waitTerminals waits until the gateway's sessions are those of terminals, each with its folder.
func (h *home) waitTerminals(terminals ...*terminal) {
	h.t.Helper()
	want := map[string]string{}
	for _, x := range terminals {
		want[x.session()] = x.dir
	}
	eventually(h.t, patience, func() error {
		r := h.run(tapctl, "sessions", "--json")
		if r.code != 0 {
			return fmt.Errorf("tapctl sessions: code %d: %s", r.code, r.stdout)
		}
		list := decode[[]adminapi.Session](h.t, r.stdout)
		same := len(list) == len(want)
		for _, s := range list {
			same = same && s.Host == "terminal" && s.CWD == want[s.ID]
		}
		if !same {
			return fmt.Errorf("the sessions are %+v, want those of terminals: %v", list, want)
		}
		return nil
	})
}

// TestTerminalMCP installs the MCP entry alone. Two terminals are sessions as soon as they run,
// each sees the tools of its own session, and they come back after a restart of the gateway.
func TestTerminalMCP(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.install("--mcp")
	h.put("tapgw.toml", "listen = \"127.0.0.1:0\"")
	h.env = append(h.env, "TAPGW_CONFIG="+h.path("tapgw.toml"))
	t.Cleanup(h.killGateway)
	screens := h.terminals(model(t, greeter), 2)
	one, two := screens.open("one"), screens.open("two") // the first one starts the gateway
	h.waitTerminals(one, two)

	p := h.bindProvider(one.session(), "toolbox", "greet_all")
	one.greets("tapgw-greet_all", "Ann")
	two.say(`call:tapgw-greet_all {"name": "Bob"}`, "No tool to greet Bob.")
	p.writeLine("add greet_late")
	p.expect("added greet_late <nil>")
	one.greets("tapgw-greet_late", "Eve")

	// /clear is another session of the same terminal.
	before := two.session()
	two.enter("/clear")
	two.waitScreen("Started a fresh session", ready)
	if after := two.session(); after == before {
		t.Errorf("after /clear the session is %s as before, want another", after)
	}
	h.waitTerminals(one, two)

	// A gateway that was killed is started again by the terminals.
	killed := h.gatewayInfo().PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		info, err := os.ReadFile(h.state("gateway.json"))
		if err != nil || decode[gatewayInfo](t, string(info)).PID == killed {
			return fmt.Errorf("no gateway was started again: gateway.json has %q", info)
		}
		return nil
	})
	h.waitTerminals(one, two)
	one.greets("tapgw-greet_late", "Zoe")

	two.kill()
	h.waitTerminals(one)
	one.enter("/exit")
	one.waitEnd()
	h.waitTerminals()

	if r := h.run(tapgw, "uninstall", "copilot", "--yes"); r.code != 0 {
		t.Errorf("tapgw uninstall copilot: code %d, want 0: %s", r.code, r.stderr)
	}
	if _, err := os.Stat(h.path("copilot", "mcp-config.json")); !os.IsNotExist(err) {
		t.Errorf("after uninstall there is still a file with MCP servers (%v)", err)
	}
}

// missingTool matches the name in a prompt for [terminal.greets].
var missingTool = regexp.MustCompile(`"name": "(\w+)"`)

// greeter is [scriptmodel.Calls], but says whom it could not greet for want of the tool.
func greeter(r *scriptmodel.Request) scriptmodel.Reply {
	reply := scriptmodel.Calls(r)
	if strings.HasPrefix(reply.Text, "There is no tool") {
		found := missingTool.FindStringSubmatch(r.Messages[len(r.Messages)-1].Text)
		reply.Text = fmt.Sprintf("No tool to greet %s.", found[1])
	}
	return reply
}

// greets makes the model call a tool that greets. A tool that has just come may be offered to the
// model a moment later.
func (x *terminal) greets(tool, name string) {
	x.home.t.Helper()
	for n := 1; !x.greeted(tool, fmt.Sprint(name, n)); n++ {
		if n == maxGreetings {
			x.home.t.Fatalf("terminal %s has greeted nobody with %s in %d turns", x.name, tool, n)
		}
	}
}

// cannotGreet makes the model look for a tool that is gone. One that has just gone may be offered a
// moment longer.
func (x *terminal) cannotGreet(tool, name string) {
	x.home.t.Helper()
	for n := 1; x.greeted(tool, fmt.Sprint(name, n)); n++ {
		if n == maxGreetings {
			x.home.t.Fatalf("terminal %s still has %s after %d turns", x.name, tool, n)
		}
	}
}

// maxGreetings is how many turns a change of tools may take.
const maxGreetings = 20

// greeted has a turn in which the model greets somebody, and reports whether it had the tool for
// that.
func (x *terminal) greeted(tool, who string) (has bool) {
	x.home.t.Helper()
	x.enter(fmt.Sprintf(`call:%s {"name": %q}`, tool, who))
	x.wait(func() error {
		screen := x.screen()
		has = strings.Contains(screen, "Hello, "+who+"!")
		if has || strings.Contains(screen, "No tool to greet "+who+".") {
			return nil
		}
		return fmt.Errorf("terminal %s has not greeted %s:\n%s", x.name, who, screen)
	})
	x.waitScreen(ready)
	return has
}
