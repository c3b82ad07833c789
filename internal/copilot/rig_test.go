//go:build runtime

package copilot

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// patience bounds every wait on the real runtime.
const patience = 90 * time.Second

// testRuntime finds the runtime of the tests.
func testRuntime(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("COPILOT_CLI_PATH"); path != "" {
		return path
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := Installed(root)
	if path == "" {
		t.Fatal("no Copilot runtime for the tests: run `make runtime`, or set COPILOT_CLI_PATH")
	}
	return path
}

// rig is a Runtime on a scripted model, in a home of its own.
type rig struct {
	t     testing.TB
	model *scriptmodel.Server
	r     *Runtime
	cwd   string
	ctx   context.Context
	cloud *cloud // of sessions on GitHub's models
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	return newRigWith(t, scriptmodel.Calls, change...)
}

func newRigWith(t testing.TB, script scriptmodel.ReplyFunc, change ...func(*Options)) *rig {
	t.Helper()
	path := testRuntime(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	model, err := scriptmodel.Start("127.0.0.1:0", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	o := Options{
		CLI: path, Home: filepath.Join(home, ".copilot"), ProviderURL: model.URL,
		ProviderKey: "scripted-model-key",
		Log: slog.New(slog.NewTextHandler(testWriter{t},
			&slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	g := &rig{t: t, model: model, r: New(o), cwd: filepath.Join(home, "cwd")}
	if err := os.Mkdir(g.cwd, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	g.ctx = ctx
	t.Cleanup(func() {
		defer cancel()
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.r.Close(closing); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return g
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// toolFunc is a provider's tool.
type toolFunc func(ctx context.Context, args string) gateway.Outcome

// fakeSession is the gateway's side of a session: it records what the host
// calls, and its tools answer.
type fakeSession struct {
	t    testing.TB
	ctx  context.Context
	id   string
	host gateway.Host
	info gateway.HostInfo
	spec gateway.SessionSpec // of a session that was resumed

	preToolUse func(tool string, args protocol.Raw) gateway.Decision
	userPrompt func(prompt, source string) string
	hook       func(gateway.HookEvent) gateway.HookAnswer
	hears      func(gateway.Event) // before it is recorded; holds the pump up
	transform  func(sections map[string]string) map[string]string
	varies     bool
	answer     func(ctx context.Context, q gateway.Question) (gateway.Answer, error)

	mu           sync.Mutex
	identity     string // of the provider
	changed      chan struct{}
	events       []gateway.Event
	notes        []string
	past         []adminapi.TimelineLine
	prompts      []gateway.Prompt // that providers were asked about
	runtime      []adminapi.RuntimeEvent
	used         []gateway.ModelCall
	window       adminapi.Context
	windowPrompt string
	over         map[string]string // prompts that ended, with why
	busy         int
	idle         int
	ended        string
	tools        map[string]toolFunc
	list         []gateway.Tool
	rev          uint64
	gated        []bool // of each call: the gateway is to ask the gates
}

func (g *rig) start(change ...func(*gateway.StartRequest)) *fakeSession {
	g.t.Helper()
	req := gateway.StartRequest{Host: Kind, Model: scriptmodel.ModelID, CWD: g.cwd, Label: "test"}
	for _, c := range change {
		c(&req)
	}
	s := &fakeSession{
		t: g.t, ctx: g.ctx, changed: make(chan struct{}), tools: map[string]toolFunc{},
		over: map[string]string{},
	}
	err := g.r.start(g.ctx, req,
		func(spec gateway.SessionSpec, info gateway.HostInfo, h gateway.Host) (gateway.HostCalls,
			error) {
			s.id, s.host, s.info = spec.ID, h, info
			return s, nil
		})
	if err != nil {
		g.t.Fatalf("starting a session: %v", err)
	}
	return s
}

// tool adds a tool and gives the host the new list.
func (s *fakeSession) tool(name string, f toolFunc) {
	s.t.Helper()
	s.mu.Lock()
	if s.tools[name] == nil {
		s.list = append(s.list, gateway.Tool{
			Name: name, Description: "A tool of the tests.", Provider: "tests",
			Parameters: protocol.Raw(
				`{"type":"object","properties":{"x":{"type":"string"}},"required":[]}`),
		})
	}
	s.tools[name] = f
	s.mu.Unlock()
	s.setTools()
}

func (s *fakeSession) removeTool(name string) {
	s.t.Helper()
	s.mu.Lock()
	delete(s.tools, name)
	var list []gateway.Tool
	for _, t := range s.list {
		if t.Name != name {
			list = append(list, t)
		}
	}
	s.list = list
	s.mu.Unlock()
	s.setTools()
}

func (s *fakeSession) setTools() {
	s.t.Helper()
	s.mu.Lock()
	s.rev++
	rev, list := s.rev, append([]gateway.Tool(nil), s.list...)
	s.mu.Unlock()
	if err := s.host.SetTools(s.ctx, rev, list); err != nil {
		s.t.Fatalf("setting tools: %v", err)
	}
}

func (s *fakeSession) send(text string) {
	s.t.Helper()
	s.prompt(gateway.Prompt{Text: text, Source: gateway.SourceUser})
}

func (s *fakeSession) prompt(p gateway.Prompt) {
	s.t.Helper()
	if err := s.host.Send(s.ctx, p); err != nil {
		s.t.Fatalf("sending %q: %v", p.Text, err)
	}
}

// turn sends a prompt and waits until the session is idle again.
func (s *fakeSession) turn(text string) {
	s.t.Helper()
	n := s.idles()
	s.send(text)
	s.waitIdle(n + 1)
}

func (s *fakeSession) idles() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle
}

func (s *fakeSession) waitIdle(n int) {
	s.t.Helper()
	s.wait(fmt.Sprintf("idle %d", n), func() bool { return s.idle >= n })
}

// wait waits until something holds; it is asked with mu held.
func (s *fakeSession) wait(what string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Fatalf("waiting for %s: %v\nevents: %s\nnotes: %q", what, ctx.Err(),
				describe(s.events), s.notes)
		}
	}
}

// count counts the events of a callback; call it with mu held.
func (s *fakeSession) count(callback string) int {
	n := 0
	for _, e := range s.events {
		if e.Callback == callback {
			n++
		}
	}
	return n
}

func (s *fakeSession) record(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// said returns what the model said, message by message.
func (s *fakeSession) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		if e.Callback == gateway.OnEndMessage {
			out = append(out, e.Content)
		}
	}
	return out
}

func (s *fakeSession) lastSaid() string {
	said := s.said()
	if len(said) == 0 {
		return ""
	}
	return said[len(said)-1]
}

func (s *fakeSession) errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		if e.SessionError != "" {
			out = append(out, e.SessionError)
		}
	}
	return out
}

func (s *fakeSession) allEvents() []gateway.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]gateway.Event(nil), s.events...)
}

func (s *fakeSession) allNotes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.notes, "\n")
}

func describe(events []gateway.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(
			&b, "\n  %s id=%s delta=%q content=%q tool=%s args=%s error=%v %s user=%q", e.Callback,
			e.ID, e.Delta, e.Content, e.Tool, e.Args, e.Error, e.SessionError, e.UserMessage,
		)
	}
	return b.String()
}

func (s *fakeSession) CallTool(ctx context.Context, c gateway.Call) gateway.Outcome {
	s.mu.Lock()
	f := s.tools[c.Name]
	s.gated = append(s.gated, c.AskGates)
	s.mu.Unlock()
	if f == nil {
		return gateway.Outcome{Error: "no such tool", ErrorCode: protocol.CodeNotFound}
	}
	return f(ctx, string(c.Args))
}

func (s *fakeSession) PreToolUse(
	_ context.Context, tool string, args protocol.Raw,
) gateway.Decision {
	if s.preToolUse == nil {
		return gateway.Decision{}
	}
	return s.preToolUse(tool, args)
}

func (s *fakeSession) UserPrompt(_ context.Context, prompt, source string) string {
	s.record(func() { s.prompts = append(s.prompts, gateway.Prompt{Text: prompt, Source: source}) })
	if s.userPrompt == nil {
		return ""
	}
	return s.userPrompt(prompt, source)
}

func (s *fakeSession) Transform(_ context.Context, sections map[string]string) map[string]string {
	if s.transform == nil {
		return sections
	}
	return s.transform(sections)
}

func (s *fakeSession) PromptVaries() bool { return s.varies }

func (s *fakeSession) NeedsHooks() bool {
	return s.preToolUse != nil || s.userPrompt != nil || s.hook != nil || s.varies
}

func (s *fakeSession) Event(e gateway.Event) {
	if s.hears != nil {
		s.hears(e)
	}
	s.record(func() { s.events = append(s.events, e) })
}

func (s *fakeSession) Note(level adminapi.LogLevel, message string) {
	s.record(func() { s.notes = append(s.notes, string(level)+": "+message) })
}

func (s *fakeSession) ToolProvider(tool string) (name, identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools[tool] == nil {
		return "", ""
	}
	return "tests", "tests" + s.identity
}

func (s *fakeSession) RestoreTimeline(lines []adminapi.TimelineLine, _ bool) {
	s.record(func() { s.past = lines })
}

func (s *fakeSession) Hook(_ context.Context, e gateway.HookEvent) gateway.HookAnswer {
	if s.hook == nil {
		return gateway.HookAnswer{}
	}
	return s.hook(e)
}

func (s *fakeSession) RuntimeEvent(e adminapi.RuntimeEvent) {
	s.record(func() { s.runtime = append(s.runtime, e) })
}

func (s *fakeSession) CountModelCall(c gateway.ModelCall) {
	s.record(func() { s.used = append(s.used, c) })
}

func (s *fakeSession) SetContextWindow(prompt string, c adminapi.Context) {
	s.record(func() { s.window, s.windowPrompt = c, prompt })
}

func (s *fakeSession) Busy() { s.record(func() { s.busy++ }) }
func (s *fakeSession) Idle() { s.record(func() { s.idle++ }) }

func (s *fakeSession) Ask(ctx context.Context, q gateway.Question) (gateway.Answer, error) {
	if s.answer == nil {
		return gateway.Answer{}, gateway.ErrUnanswered
	}
	return s.answer(ctx, q)
}

func (s *fakeSession) TurnEnded(prompts []string, cut string) {
	s.record(func() {
		for _, id := range prompts {
			s.over[id] = cut
		}
	})
}

func (s *fakeSession) Ended(reason string) { s.record(func() { s.ended = reason }) }

// text answers with a string.
func text(s string) toolFunc {
	return func(context.Context, string) gateway.Outcome {
		return gateway.Outcome{Data: rawJSON(s)}
	}
}
