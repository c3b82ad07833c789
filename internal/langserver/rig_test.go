//go:build runtime

package langserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/scriptmodel"
	"tapgw/internal/taptest/cloud"
)

// patience bounds every wait on the real server.
const patience = 90 * time.Second

// serverPath finds the language server of the tests.
func serverPath(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(EnvServer); path != "" {
		return path
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := finder{system: runtime.GOOS, arch: runtime.GOARCH}.installed(root)
	if path == "" {
		t.Fatalf(
			"found no Copilot language server, want one for the tests: run `make runtime`, or set %s", EnvServer)
	}
	return path
}

// rig is a real language server on a stand-in for GitHub, in a home of its own.
type rig struct {
	*Client
	cloud     *cloud.Cloud
	workspace string
	log       *logBuffer

	mu      sync.Mutex // guards the fields that follow
	gate    func(context.Context, Invocation) (string, string)
	confirm func(context.Context, Confirmation) error
}

func startRig(t testing.TB, dir string, change ...func(*Options, *cloud.Cloud)) (*rig, func()) {
	t.Helper()
	c, err := cloud.Start(cloud.Calls)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{cloud: c, workspace: filepath.Join(dir, "work space"), log: &logBuffer{}}
	if err := os.MkdirAll(r.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	env := c.Env()
	env["HOME"], env["XDG_CONFIG_HOME"] = dir, filepath.Join(dir, ".config")
	o := Options{
		Command: serverPath(t), Workspace: r.workspace, Env: env, Version: "0.1",
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Gate:    r.askGate,
		Confirm: r.askConfirm,
	}
	for _, f := range change {
		f(&o, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Client, err = Start(ctx, o)
	if err != nil {
		c.Close()
		t.Fatalf("starting: %v", err)
	}
	return r, func() {
		r.Close()
		c.Close()
	}
}

// newRig is a server for one test alone.
func newRig(t testing.TB, change ...func(*Options, *cloud.Cloud)) *rig {
	t.Helper()
	r, stop := startRig(t, t.TempDir(), change...)
	t.Cleanup(stop)
	t.Cleanup(func() { r.dump(t) })
	return r
}

var common struct {
	sync.Mutex
	*rig
}

// shared is the server that tests share: it takes a second to start. Tools,
// script and policies are the test's own.
func shared(t testing.TB) *rig {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if common.rig == nil {
		dir, err := os.MkdirTemp("", "langserver")
		if err != nil {
			t.Fatal(err)
		}
		r, stop := startRig(t, dir)
		common.rig = r
		atExit = append(atExit, func() {
			stop()
			_ = os.RemoveAll(dir)
		})
	}
	r := common.rig
	r.cloud.SetReply(cloud.Calls)
	r.log.reset()
	r.set(func() { r.gate, r.confirm = nil, nil })
	t.Cleanup(func() {
		if faults, err := r.SetTools(context.Background(), nil); err != nil || len(faults) > 0 {
			t.Errorf("taking the tools away: %v %v, want no error and none", faults, err)
		}
		r.dump(t)
	})
	return r
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *rig) askGate(ctx context.Context, call Invocation) (string, string) {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate == nil {
		return "", ""
	}
	return gate(ctx, call)
}

func (r *rig) askConfirm(ctx context.Context, q Confirmation) error {
	r.mu.Lock()
	confirm := r.confirm
	r.mu.Unlock()
	if confirm == nil {
		return fmt.Errorf("the test allows nothing")
	}
	return confirm(ctx, q)
}

// dump shows the server's log when a test failed.
func (r *rig) dump(t testing.TB) {
	if t.Failed() {
		t.Logf("the server's log:\n%s", r.log.tail(8<<10))
	}
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) tail(n int) string {
	s := b.String()
	return s[max(0, len(s)-n):]
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// offer makes these the server's tools.
func (r *rig) offer(t testing.TB, list ...Tool) {
	t.Helper()
	if faults, err := r.SetTools(within(t), list); err != nil || len(faults) > 0 {
		t.Fatalf("setting the tools: %v %v, want no error and none", faults, err)
	}
}

// tool is a tool of the tests with one argument.
func tool(name string, call func(ctx context.Context, call Invocation) Outcome) Tool {
	return Tool{
		Name: name, Description: "A tool of the tests.",
		Parameters: []byte(
			`{"type":"object","properties":{"text":{"type":"string","description":"a text"}},"required":[]}`,
		),
		Call: call,
	}
}

// answeringTool is a tool that answers with a text.
func answeringTool(name, text string) Tool {
	return tool(name, func(context.Context, Invocation) Outcome { return Succeeded(text) })
}

// turn runs a turn in a new conversation and records its events.
func (r *rig) turn(t testing.TB, prompt string) (Turn, *events, error) {
	t.Helper()
	v := r.NewConversation(ConversationOptions{})
	e := &events{}
	result, err := v.Turn(within(t), prompt, e.add)
	if err := v.Close(within(t)); err != nil {
		t.Errorf("closing the conversation: got %v, want no error", err)
	}
	return result, e, err
}

// mustTurn is a turn that must succeed.
func (r *rig) mustTurn(t testing.TB, prompt string) (Turn, *events) {
	t.Helper()
	result, e, err := r.turn(t, prompt)
	if err != nil {
		t.Fatalf("turn %q: got the error %v, want none; its events:\n%v", prompt, err, e)
	}
	return result, e
}

type events struct{ list []Event }

func (e *events) add(event Event) { e.list = append(e.list, event) }

// calls returns the states of tool calls, in order: "name running".
func (e *events) calls() (states []string) {
	for _, event := range e.list {
		if c, ok := event.(ToolCall); ok {
			states = append(states, c.Name+" "+string(c.State))
		}
	}
	return states
}

// call returns the last event of a tool's call.
func (e *events) call(t testing.TB, name string) ToolCall {
	t.Helper()
	for _, event := range slices.Backward(e.list) {
		if c, ok := event.(ToolCall); ok && c.Name == name {
			return c
		}
	}
	t.Fatalf("no call of %s in %v, want one", name, e)
	return ToolCall{}
}

func (e *events) String() string {
	var b strings.Builder
	for _, event := range e.list {
		fmt.Fprintf(&b, "\n  %T %+v", event, event)
	}
	return b.String()
}

// requestsAfter returns the model's requestsAfter since n of them had come.
func (r *rig) requestsAfter(n int) []*scriptmodel.Request { return r.cloud.Requests()[n:] }

func (r *rig) requestCount() int { return len(r.cloud.Requests()) }
