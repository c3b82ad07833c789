//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/daemon"
	"tapgw/internal/taptest"
)

// modelKey is the key that sessions show to the scripted model. The runtime
// blots it out of what tools return, so it must be no text of a test.
const modelKey = "key-of-the-scripted-model"

// home is a user's home directory with the programs of that user.
type home struct {
	t   testing.TB
	dir string
	env []string
	in  []string // what runs a command elsewhere, in a network namespace
}

func newHome(t testing.TB) *home {
	t.Helper()
	h := &home{t: t, dir: t.TempDir()}
	for _, dir := range []string{"copilot", "tmp", "work"} {
		if err := os.Mkdir(h.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "NO_COLOR=1",
		"HOME=" + h.dir, "COPILOT_HOME=" + h.path("copilot"), "TMPDIR=" + h.path("tmp"),
		"TAP_MODEL_KEY=" + modelKey,
		"GORACE=atexit_sleep_ms=0", // with the race detector each program ends a second late
	}
	return h
}

func (h *home) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// state is the path of one of the files that a running gateway keeps.
func (h *home) state(file string) string { return h.path("copilot", "extensions", "tap", file) }

// read returns what is in a state file.
func (h *home) read(file string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.state(file))
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// command makes a command of this user's, with more variables after the name.
func (h *home) command(env []string, name string, args ...string) *exec.Cmd {
	words := append(append(append([]string{}, h.in...), name), args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = h.path("work")
	cmd.Env = append(append([]string{}, h.env...), env...)
	return cmd
}

// start runs a program beside the test.
func (h *home) start(name string, args ...string) *process {
	h.t.Helper()
	return start(h.t, filepath.Base(name)+" "+strings.Join(args, " "),
		h.command(nil, name, args...))
}

// result is what a command came to.
type result struct {
	stdout, stderr string
	code           int
}

// run runs a command to its end.
func (h *home) run(name string, args ...string) result {
	h.t.Helper()
	var out, complaints bytes.Buffer
	cmd := h.command(nil, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		h.t.Fatalf("starting %s: %v", name, err)
	}
	limit := time.AfterFunc(2*slowdown*time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	limit.Stop()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		h.t.Fatalf("running %s: %v", name, err)
	}
	r := result{strings.TrimSuffix(out.String(), "\n"), complaints.String(),
		cmd.ProcessState.ExitCode()}
	if strings.Contains(r.stderr, "DATA RACE") {
		h.t.Errorf("%s %q has a data race, want none:\n%s", name, args, r.stderr)
	}
	return r
}

// tapctl runs tapctl, which must succeed, and returns what it printed.
func (h *home) tapctl(args ...string) string {
	h.t.Helper()
	r := h.run(tapctl, args...)
	if r.code != 0 {
		h.t.Fatalf("tapctl %q: exit code %d, want 0\n%s%s", args, r.code, r.stderr, r.stdout)
	}
	return r.stdout
}

// call calls a tool, which must succeed, and returns what it printed.
func (h *home) call(session, tool, args string) string {
	h.t.Helper()
	return h.tapctl("tools", "call", "--session", session, tool, "--args", args)
}

// decode reads a JSON document that a command printed.
func decode[T any](t testing.TB, out string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return v
}

// decodeLines reads the JSON lines that a command printed.
func decodeLines[T any](t testing.TB, out string) []T {
	t.Helper()
	var all []T
	for text := range strings.Lines(out) {
		all = append(all, decode[T](t, text))
	}
	return all
}

// gateway is a `tapgw serve` of a home.
type gateway struct {
	*process
	home *home
	url  string
	page string // the page's origin, once a test asks for it
}

// serve starts a gateway on a free port.
func (h *home) serve(args ...string) *gateway {
	h.t.Helper()
	return h.serveAt("127.0.0.1:0", args...)
}

func (h *home) serveAt(addr string, args ...string) *gateway {
	h.t.Helper()
	err := taptest.LeaveOutTap(h.path("work"), args, h.path(".config", "tapgw", "tapgw.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	g := &gateway{process: h.start(tapgw, append([]string{"serve", "--listen", addr}, args...)...),
		home: h}
	h.t.Cleanup(g.shutDown)
	g.url = g.result()
	return g
}

// restart starts the gateway again at its address, which is kept meanwhile as tapgw restart does
// it. between is called while no gateway runs.
func (g *gateway) restart(between func(), args ...string) (next *gateway) {
	g.t.Helper()
	notify := func(line string) { g.t.Errorf("the restart says %q, want it to say nothing", line) }
	err := daemon.Dir(g.home.state("")).KeepSockets(g.t.Context(), notify, func() error {
		g.stop()
		between()
		next = g.home.serveAt(strings.TrimPrefix(g.url, "ws://"), args...)
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return next
}

// shutDown ends the gateway as its user would, unless the test did.
func (g *gateway) shutDown() {
	select {
	case <-g.done:
		return
	default:
	}
	g.stop()
}

// stop ends the gateway, which must take no longer than it promises.
func (g *gateway) stop() {
	g.t.Helper()
	g.signal(syscall.SIGTERM)
	if code := g.wait(patience); code != 0 {
		g.t.Errorf("tapgw ended with code %d on SIGTERM, want 0", code)
	}
}

// api returns a client of the gateway's admin API, to look at its state.
func (g *gateway) api() *client.Client {
	g.t.Helper()
	c, err := client.New(client.Options{URL: g.url, Token: g.home.read(".admin-token")})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(c.Close)
	return c
}

// local starts a session without a model and returns its id.
func (h *home) local(args ...string) string {
	h.t.Helper()
	return h.tapctl(append([]string{"sessions", "start", "--host", "local"}, args...)...)
}

// waitTool waits until a session has a tool.
func (h *home) waitTool(session, tool string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		var names []string
		for _, t := range decode[[]adminapi.Tool](h.t,
			h.tapctl("tools", "--session", session, "--json")) {
			names = append(names, t.Name)
		}
		if !slices.Contains(names, tool) {
			return fmt.Errorf("no tool %s in session %s, only %q", tool, session, names)
		}
		return nil
	})
}

// providers lists the connected providers.
func (h *home) providers() []adminapi.Provider {
	h.t.Helper()
	return decode[[]adminapi.Provider](h.t, h.tapctl("providers", "--json"))
}

// only returns the one provider that is connected.
func (h *home) only() adminapi.Provider {
	h.t.Helper()
	list := h.providers()
	if len(list) != 1 {
		h.t.Fatalf("%d providers are connected: %+v, want 1", len(list), list)
	}
	return list[0]
}

// metric returns a figure of the gateway's /metrics. It is asked by another
// process, for the gateway may be in a network of its own.
func (h *home) metric(name string) int {
	h.t.Helper()
	cmd := h.program("metrics")
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("reading the metrics: %v", err)
	}
	for text := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(text, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				h.t.Fatalf("metric %s: %v", name, err)
			}
			return int(n)
		}
	}
	h.t.Fatalf("want metric %s, there is none in:\n%s", name, out)
	return 0
}
