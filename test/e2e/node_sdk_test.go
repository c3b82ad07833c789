//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// nodeProvider is a provider on the Node SDK. It prints what happens to it.
const nodeProvider = `import { createProvider, deny } from "./sdk/index.mjs";
const provider = createProvider("node", {
  onConnected: ({ sessionId, signal }) => {
    console.log("bound", sessionId);
    signal.addEventListener("abort", () => console.log("unbound", sessionId, signal.reason.reason));
  },
  onShutdown: ({ sessionId }) => console.log("ending", sessionId),
  onError: (code, message) => console.log("error", code, message),
  silent: true,
  tools: [
    { name: "greet", description: "Say hello", handler: ({ name }) => "Hello, " + name + "!" },
    { name: "wait", description: "Wait", handler: (_, { signal }) => new Promise((_done, failed) =>
      signal.addEventListener("abort", () => (console.log("cancelled", signal.reason.reason), failed(signal.reason)))) },
    { name: "state", description: "What is open", handler: () => process.getActiveResourcesInfo().length },
    { name: "say", description: "Push", handler: async ({ text }) => (await provider.surface(text)).fate },
  ],
});
provider.gate({ tool: "greet" }, ({ args }) => (args.name === "Eve" ? deny("Not her.") : { decision: "allow" }));
process.once("SIGTERM", () => provider.disconnect());
await provider.closed;
console.log("closed");
`

// nodeScript writes the provider on the Node SDK, and the SDK beside it.
func (h *home) nodeScript() (file string) {
	h.t.Helper()
	if err := os.CopyFS(h.path("work", "sdk"),
		os.DirFS(filepath.Join(repo, "providers", "node"))); err != nil {
		h.t.Fatal(err)
	}
	return h.script("js", nodeProvider)
}

// inFlight waits until the only provider has so many calls.
func (h *home) inFlight(want int) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		if n := h.only().InFlight; n != want {
			return fmt.Errorf("%d calls in flight, want %d", n, want)
		}
		return nil
	})
}

// TestNodeProvider kills, freezes and replaces the gateway of a provider on the Node SDK.
func TestNodeProvider(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := h.interpret(h.nodeScript()) // before there is a gateway
	g := h.serve()
	session := h.local()
	p.expect("bound " + session)
	h.waitTool(session, "greet")
	if got := h.call(session, "greet", `{"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("greet says %q, want %q", got, "Hello, Ada!")
	}
	if got := h.call(session, "say", `{"text":"built"}`); got != "surfaced" {
		t.Errorf("a push was %q, want %q", got, "surfaced")
	}
	h.waitTimeline(session, "built")
	if r := h.run(tapctl, "tools", "call", "--session", session, "greet", "--args",
		`{"name":"Eve"}`); r.code == 0 {
		t.Errorf("the gate let a call through: %s, want it denied", r.stdout)
	}
	open := h.call(session, "state", "{}")

	h.tapctl("sessions", "query", session, "call:wait {}", "--detach")
	h.inFlight(1)
	h.tapctl("sessions", "interrupt", session)
	p.expect("cancelled interrupted")
	h.inFlight(0)

	// One that stands still keeps its connection.
	before := h.only().ID
	g.freeze()
	g.signal(syscall.SIGCONT)
	if got := h.call(session, "greet", `{"name":"Bob"}`); got != "Hello, Bob!" ||
		h.only().ID != before {
		t.Errorf("after a pause of the gateway greet says %q as %v, want %q as %v", got,
			h.only().ID, "Hello, Bob!", before)
	}

	h.tapctl("sessions", "query", session, "call:wait {}", "--detach")
	h.inFlight(1)
	g.kill()
	p.expect("cancelled disconnected")
	g = h.serve() // another port and another token
	session = h.local()
	p.expect("bound " + session)
	h.waitTool(session, "state")
	if got := h.call(session, "state", "{}"); got != open {
		t.Errorf("after a lost gateway %s resources are open, want %s as before", got, open)
	}

	h.tapctl("sessions", "stop", session)
	g.waitSessionEnded(session, true)
	p.expect("ending " + session)
	p.expect("unbound " + session + " session ended")
	session = h.local()
	p.expect("bound " + session)
	p.signal(syscall.SIGTERM)
	if code := p.wait(patience); code != 0 {
		t.Errorf("it ended with code %d on SIGTERM, want 0", code)
	}
	p.expect("closed")
	eventually(t, patience, func() error { return connections(h, 0) })
}

// TestNodeProviderFile lets the gateway start a provider on the Node SDK, with a token for the
// session alone.
func TestNodeProviderFile(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.serveFiles()
	h.put("providers/node.toml", fmt.Sprintf("kind = \"command\"\ncommand = [\"node\", %q]\n",
		h.nodeScript()))
	session := h.local()
	h.waitTool(session, "greet")
	if got := h.call(session, "greet", `{"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("greet says %q, want %q", got, "Hello, Ada!")
	}
}
