//go:build e2e && linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// systemPython is Debian's own interpreter, which has its python3-websockets;
// another python3 may come first on PATH.
const systemPython = "/usr/bin/python3"

// example is a provider that a document shows.
type example struct {
	doc, name  string // the provider's own name, which no other of that document has
	language   string // of its code block
	tool       string
	args, want string
	// What it does, as it is written: whether it looks for a session again,
	// and whether it answers the end of one.
	waits, polite bool
	// afterwards is what becomes of it when its session has ended.
	afterwards func(*testing.T, *home, *gateway, *process)
	// With spoilt in place of right it breaks the rule of the kit; "" where no test needs that.
	right, spoilt, rule string
}

const (
	coreProfile = "provider-interface-core-profile.md"
	v2          = "provider-interface-v2.md"
)

var examples = []example{
	{doc: coreProfile, language: "js", name: "example-provider", tool: "greet",
		args: `{"name":"Ada"}`, want: "Hello, Ada!",
		polite: true, afterwards: comesBack},
	{doc: coreProfile, language: "python", name: "example-provider", tool: "greet",
		args: `{"name":"Ada"}`, want: "Hello, Ada!",
		polite: true, afterwards: endsAndOutlivesACrash,
		right: `"protocolVersion": 2`, spoilt: `"protocolVersion": 1`, rule: "hello.version"},
	{doc: v2, language: "js", name: "my-provider", tool: "greet", args: `{"name":"Ada"}`,
		want: "Hello, Ada!", waits: true, afterwards: endsWithTheGateway,
		right: `"tool.call"`, spoilt: `"tool.called"`, rule: "call.answered"},
	{doc: v2, language: "js", name: "hello-provider", tool: "say_hello", args: `{"name":"Ada"}`,
		want: "Hello, Ada!", waits: true, afterwards: endsWithTheGateway},
	{doc: v2, language: "python", name: "python-provider", tool: "compute",
		args: `{"expr":"6 * 7"}`, want: "42", waits: true, afterwards: endsWithTheGateway},
}

// TestDocumentExamples runs the providers that the two documents show, as they
// stand there, against a gateway at the default port.
func TestDocumentExamples(t *testing.T) {
	eachExample(t, func(t *testing.T, e example, h *home, file string) {
		h.isolate()
		e.run(t, h, file)
	})
}

// TestDocumentExamplesConform lets the kit judge the examples: what they leave out is advice, and
// what the documents demand is found where they do not do it.
func TestDocumentExamplesConform(t *testing.T) {
	eachExample(t, func(t *testing.T, e example, h *home, file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		interpreter, url := "node", "process.env.TAP_GATEWAY_URL"
		if e.language == "python" {
			interpreter, url = systemPython, `os.environ["TAP_GATEWAY_URL"]`
		}
		code := strings.Replace(string(text), `"ws://localhost:`+defaultPort+`"`, url, 1)
		judge := func(code string) result {
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			return h.run(tapctl, "conformance", "--tool", e.tool, "--args", e.args, "--",
				interpreter, file)
		}
		if r := judge(code); r.code != 0 || !strings.Contains(r.stdout, " 0 broken, ") {
			t.Errorf("the kit ends with code %d, want 0 and nothing broken:\n%s%s", r.code,
				r.stdout, r.stderr)
		}
		if e.rule == "" {
			return
		}
		r := judge(strings.Replace(code, e.right, e.spoilt, 1))
		if r.code != 1 || !strings.Contains(r.stdout, "\nbroken   "+e.rule+" ") {
			t.Errorf("with %s the kit ends with code %d, want 1 and %s broken:\n%s%s", e.spoilt,
				r.code, e.rule, r.stdout, r.stderr)
		}
	})
}

// eachExample tests each example with a home and a file of its own.
func eachExample(t *testing.T, test func(*testing.T, example, *home, string)) {
	t.Parallel()
	specs := filepath.Join(filepath.Dir(repo), "shared", "spec")
	if _, err := os.Stat(specs); errors.Is(err, os.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Logf("no documents in %s: only our own examples are tested", specs)
		return
	}
	for _, e := range examples {
		t.Run(strings.TrimSuffix(e.doc, ".md")+"/"+e.language+"/"+e.name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			test(t, e, h, e.extract(h, specs))
		})
	}
}

// extract writes the example's code block to a file.
func (e example) extract(h *home, specs string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(specs, e.doc))
	if err != nil {
		h.t.Fatal(err)
	}
	var found []string
	for _, block := range strings.Split(string(text), "\n```"+e.language+"\n")[1:] {
		code, _, whole := strings.Cut(block, "\n```")
		if whole && strings.Contains(code, `"`+e.name+`"`) {
			found = append(found, code+"\n")
		}
	}
	if len(found) != 1 {
		h.t.Fatalf("%s has %d blocks of %s with the provider %q, want 1", e.doc, len(found),
			e.language, e.name)
	}
	return h.script(e.language, found[0])
}

// script writes a program to where it finds what it imports.
func (h *home) script(language, code string) string {
	h.t.Helper()
	file := h.path("work", "example.py")
	if language == "js" {
		file = h.path("work", "example.mjs")
		h.nodeModules()
	}
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return file
}

// nodeModules lets programs in work/ import what `make runtime` installed.
func (h *home) nodeModules() {
	h.t.Helper()
	modules := filepath.Join(repo, ".runtime", "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "ws")); err != nil {
		h.t.Fatalf("no npm package ws (%v): run make runtime", err)
	}
	if err := os.Symlink(modules, h.path("work", "node_modules")); err != nil {
		h.t.Fatal(err)
	}
}

// interpret starts a script.
func (h *home) interpret(file string, env ...string) *process {
	h.t.Helper()
	interpreter := "node"
	if filepath.Ext(file) == ".py" {
		interpreter = systemPython
		if r := h.run(interpreter, "-c", "import websockets"); r.code != 0 {
			h.t.Fatalf("%s has no websockets: apt-get install python3-websockets\n%s", interpreter,
				r.stderr)
		}
	}
	return start(h.t, filepath.Base(file), h.command(append(env, "PYTHONUNBUFFERED=1"), interpreter,
		file))
}

func (e example) run(t *testing.T, h *home, file string) {
	g := h.serveAt("127.0.0.1:" + defaultPort)
	begin := func() *process {
		return h.interpret(file, "TAP_PROVIDER_TOKEN="+h.read(".provider-token"))
	}
	var p *process
	var session string
	if e.waits {
		p = begin()
		eventually(t, patience, func() error { return connections(h, 1) })
		session = h.local()
	} else {
		session = h.local()
		p = begin()
	}
	h.waitTool(session, e.tool)
	// One that waits asks for all sessions while there is none: the first one
	// may come just before that, and its question is refused.
	complaints := p.complaints()
	before := h.only()
	if before.Name != e.name || before.State != "bound" || before.Session != session {
		t.Errorf("the provider is %+v, want %q, bound to session %v", before, e.name, session)
	}
	if got := h.call(session, e.tool, e.args); got != e.want {
		t.Errorf("%s says %q, want %q", e.tool, got, e.want)
	}
	e.cancel(t, h, p, session)
	if after := h.only(); after.ID != before.ID || after.InFlight != 0 {
		t.Errorf("after a cancelled call the provider is %+v, want %v with no call in flight",
			after, before.ID)
	}
	p.checkComplaints(complaints)

	h.tapctl("sessions", "stop", session)
	g.waitSessionEnded(session, e.polite)
	e.afterwards(t, h, g, p)
}

// waitSessionEnded waits until the gateway says that a session has ended, and checks whether
// all its providers had answered.
func (g *gateway) waitSessionEnded(session string, answered bool) {
	g.t.Helper()
	g.expect(`"msg":"session ended","session":"` + session)
	if late := g.find("did not answer the end of the session"); (late == "") != answered {
		g.t.Errorf("all providers answered the end of the session: %v, want %v", late == "",
			answered)
	}
}

// complaints counts the errors of the gateway's that an example has printed.
func (p *process) complaints() int {
	words, _ := p.matches("rror [")
	others, _ := p.matches("rror:")
	return len(words) + len(others)
}

// checkComplaints checks that the gateway has complained no more.
func (p *process) checkComplaints(complaints int) {
	p.t.Helper()
	if n := p.complaints(); n != complaints {
		p.t.Errorf("the gateway complained %d times, want %d:\n%s", n, complaints, p.output())
	}
}

// cancel gives up on a call that the provider does not see until later: it then
// answers what nobody waits for, and the cancellation too.
func (e example) cancel(t *testing.T, h *home, p *process, session string) {
	t.Helper()
	p.freeze()
	r := h.run(tapctl, "tools", "call", "--session", session, e.tool, "--args", e.args, "--timeout",
		"300ms")
	if r.code != 124 {
		t.Errorf("a call of a provider that stands still ended with exit code %d: %s, want 124",
			r.code, r.stderr)
	}
	eventually(t, patience, func() error {
		if n := h.only().InFlight; n != 0 {
			return fmt.Errorf("%d calls in flight after they were given up", n)
		}
		return nil
	})
	p.signal(syscall.SIGCONT)
	if got := h.call(session, e.tool, e.args); got != e.want {
		t.Errorf("after a cancelled call %s says %q, want %q", e.tool, got, e.want)
	}
}

// connections checks how many providers are connected, said hello or not.
func connections(h *home, want int) error {
	if n := h.metric("tapgw_connections"); n != want {
		return fmt.Errorf("%d providers are connected, want %d", n, want)
	}
	return nil
}

// comesBack is the core profile's Node example: it tries again every 5 s, with
// the token that its environment has.
func comesBack(t *testing.T, h *home, g *gateway, p *process) {
	session := h.local()
	h.waitTool(session, "greet")
	g.kill()
	h.serveAt("127.0.0.1:" + defaultPort)
	p.expect("Error [AUTH_FAILED]")
	select {
	case <-p.done:
		t.Errorf("the example ended: %v, want it to run", p.cmd.ProcessState)
	default:
	}
}

// endsAndOutlivesACrash is the core profile's Python example: it ends with its
// session, and when a gateway refuses it; a connection that breaks it makes anew.
func endsAndOutlivesACrash(t *testing.T, h *home, g *gateway, p *process) {
	if code := p.wait(patience); code != 0 {
		t.Errorf("the example ended with code %d, want 0", code)
	}
	session := h.local()
	p = h.interpret(h.path("work", "example.py"), "TAP_PROVIDER_TOKEN="+h.read(".provider-token"))
	h.waitTool(session, "greet")
	g.kill()
	p.expect("Disconnected. Reconnecting in 5s...")
	h.serveAt("127.0.0.1:" + defaultPort)
	p.expect("Error [AUTH_FAILED]")
	if code := p.wait(patience); code != 0 {
		t.Errorf("the example ended with code %d, want 0", code)
	}
}

// endsWithTheGateway is the other document's examples: the end of the session is
// nothing to them, they stay connected and take the next message that they know.
func endsWithTheGateway(t *testing.T, h *home, g *gateway, p *process) {
	if state := h.only().State; state != "unbound" {
		t.Errorf("without its session the provider is %s, want %q", state, "unbound")
	}
	g.stop()
	if code := p.wait(patience); code != 0 {
		t.Errorf("the example ended with code %d, want 0", code)
	}
}
