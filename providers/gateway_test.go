package providers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	domain "tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// The tests of this file run against the gateway itself, over loopback.

// world is a gateway that runs.
type world struct {
	t       testing.TB
	gateway *domain.Gateway
	url     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	home(t)
	persist := server.Persist{Dir: t.TempDir()}
	w := &world{t: t,
		gateway: domain.New(domain.Options{PersistDir: persist.Make, ReadFile: persist.Read})}
	s := server.New(server.Options{Gateway: w.gateway, Version: "test"})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.url = s.URL()
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: got %v, want no error", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: got %v, want no error", err)
		}
	})
	return w
}

// session begins a session whose agent is the test.
func (w *world) session(id string) *session {
	w.t.Helper()
	h := &session{sent: make(chan domain.Prompt, 64), tools: make(chan []string, 64)}
	info := domain.HostInfo{Kind: "test", Send: true, Hooks: true, Interrupt: true, LiveTools: true,
		Aliases: map[string][]string{"shell": {"bash"}, "edit": {"write_file"}}}
	var err error
	h.Session, err = w.gateway.Register(domain.SessionSpec{ID: id, Label: "the " + id,
		CWD: "/code/" + id}, info, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// session is a session and its host.
type session struct {
	*domain.Session
	sent  chan domain.Prompt
	tools chan []string
}

func (h *session) SetTools(_ context.Context, _ uint64, tools []domain.Tool) error {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	h.tools <- names
	return nil
}
func (h *session) Send(_ context.Context, p domain.Prompt) error       { h.sent <- p; return nil }
func (h *session) Log(adminapi.LogLevel, string)                       {}
func (h *session) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (h *session) Close(context.Context, string) error                 { return nil }
func (h *session) call(t testing.TB, tool, args string) (s string) {
	return h.outcome(t, tool, args).Text()
}

func (h *session) outcome(t testing.TB, tool, args string) domain.Outcome {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return h.CallTool(ctx, domain.Call{Name: tool, Args: protocol.Raw(args)})
}

// asks asks the rules about a call, as the session's agent does.
func (h *session) asks(t testing.TB, tool, args string) string {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d := h.PreToolUse(ctx, tool, protocol.Raw(args))
	switch {
	case d.Deny:
		return "denied: " + d.Reason
	case d.Context != "":
		return "allowed with: " + d.Context
	}
	return "allowed"
}

// provider runs a provider and waits until it is bound.
func (w *world) provider(name string, o providers.Options,
	before ...func(*providers.Provider)) (*providers.Provider, *running) {
	w.t.Helper()
	bound := make(chan bool, 64)
	then := o.OnBound
	o.URL, o.Logger = w.url, quiet
	if o.Token == "" {
		o.Token = w.gateway.InstanceToken()
	}
	o.OnBound = func(ctx context.Context, b providers.Binding) {
		bound <- true
		if then != nil {
			then(ctx, b)
		}
	}
	p := providers.New(name, &o)
	for _, f := range before {
		f(p)
	}
	r := run(w.t, p)
	select {
	case <-bound:
	case <-r.done:
		w.t.Fatalf("Run returned %v, want it to run on", r.err)
	case <-time.After(patience):
		w.t.Fatal("the provider is not bound, want a binding")
	}
	return p, r
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Rules and gates hold from when they were confirmed, until they were removed.
func TestRealRules(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	ctx := t.Context()
	p, _ := w.provider("guard", providers.Options{}, func(p *providers.Provider) {
		must[*providers.Rule](t)(p.Deny(ctx, providers.Match{Tool: "shell", Args: `rm\s+-rf`},
			"never"))
		must[*providers.Rule](t)(p.AddContext(ctx, providers.Match{Tool: "edit", File: "*.sql"},
			"A migration."))
	})
	const push, write = `{"command":"git push"}`, `{"path":"db/1.sql"}`
	expect(t, "deny", s.asks(t, "bash", `{"command":"rm -rf /"}`), "denied: never")
	expect(t, "no rule", s.asks(t, "bash", push), "allowed")
	expect(t, "context", s.asks(t, "write_file", write), "allowed with: A migration.")

	red := "CI is red"
	gate := must[*providers.Rule](t)(p.Gate(ctx, providers.Match{Tool: "shell", Args: "git push"},
		func(_ context.Context, call providers.GateCall) (providers.Decision, error) {
			if call.Session != "s1" || call.Tool != "bash" || string(call.Args) != push {
				return providers.Deny(fmt.Sprintf("%+v", call)), nil
			}
			if red == "" {
				return providers.AllowWith("CI is green"), nil
			}
			return providers.Deny(red), nil
		}))
	if gate.Revision == 0 {
		t.Error("the tool's revision is 0, want more")
	}
	expect(t, "gate", s.asks(t, "bash", push), "denied: CI is red")
	red = ""
	expect(t, "gate", s.asks(t, "bash", push), "allowed with: CI is green")
	revision := must[uint64](t)(gate.Remove(ctx))
	if revision != gate.Revision+1 {
		t.Errorf("revision %d after %d, want %v", revision, gate.Revision, gate.Revision+1)
	}
	expect(t, "gate removed", s.asks(t, "bash", push), "allowed")

	broken := must[*providers.Rule](t)(p.Gate(ctx, providers.Match{Tool: "shell"},
		func(context.Context, providers.GateCall) (providers.Decision, error) {
			panic("ouch")
		}, providers.FailOpen))
	expect(t, "a gate that panics", s.asks(t, "bash", push), "denied: The gate panicked: ouch")
	must[uint64](t)(broken.Remove(ctx))
	_, err := p.Deny(ctx, providers.Match{Args: "("}, "")
	if codeOf(err) != providers.CodeInvalidJSON ||
		!strings.Contains(err.Error(), "onPreToolUse[2].match.args") {
		t.Errorf("a pattern that is none: %v, want INVALID_JSON naming it", err)
	}
	expect(t, "after a refusal", s.asks(t, "bash", push), "allowed")
}

// A gate whose provider goes while it is asked denies, unless it fails open.
func TestRealGateLost(t *testing.T) {
	for want, opts := range map[string][]func(*providers.Rule){
		"denied: Gate provider 'guard' disconnected before it answered.": nil,
		"allowed": {providers.FailOpen},
	} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t)
			s := w.session("s1")
			asked := make(chan bool, 1)
			_, r := w.provider("guard", providers.Options{}, func(p *providers.Provider) {
				must[*providers.Rule](t)(p.Gate(t.Context(), providers.Match{},
					func(ctx context.Context, _ providers.GateCall) (providers.Decision, error) {
						asked <- true
						<-ctx.Done()
						return providers.Allow(), nil
					}, opts...))
			})
			answer := make(chan string, 1)
			go func() { answer <- s.asks(t, "bash", `{}`) }()
			receive(t, asked)
			r.stop()
			expect(t, "the call", receive(t, answer), want)
		})
	}
}

// The prompt has the texts of a provider in the right place.
func TestRealPrompt(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	ctx := t.Context()
	revision := must[uint64](t)
	p, _ := w.provider("prompter", providers.Options{Context: "CI is green.",
		StartupContext: "Watching 3 endpoints."},
		func(p *providers.Provider) {
			revision(p.Append(ctx, "safety", "Be kind."))
			revision(p.Transform(ctx, "tone", func(_ context.Context, s providers.Section) (string,
				error) {
				return strings.ToUpper(s.Current), nil
			}))
		})
	prompt := func() string { return s.UserPrompt(ctx, "hello", domain.SourceUser) }
	expect(t, "the first prompt", prompt(), "Watching 3 endpoints.\n\nCI is green.")
	expect(t, "the second", prompt(), "CI is green.")
	revision(p.SetContext(ctx, "CI is red."))
	expect(t, "the third", prompt(), "CI is red.")
	revision(p.SetContext(ctx, "Only here.", "s1"))
	expect(t, "the fourth", prompt(), "Only here.")
	revision(p.SetContext(ctx, ""))
	expect(t, "the fifth", prompt(), "")

	sections := func() string {
		return fmt.Sprint(s.Transform(ctx, map[string]string{"safety": "Do no harm.", "tone": "dry",
			"other": "as it is"}))
	}
	expect(t, "sections", sections(), "map[other:as it is safety:Do no harm.\n\nBe kind. tone:DRY]")
	revision(p.Prepend(ctx, "tone", "First."))
	revision(p.RemoveTransform(ctx, "safety"))
	expect(t, "sections", sections(), "map[other:as it is safety:Do no harm. tone:First.\n\ndry]")
	revision(p.Replace(ctx, "tone", "Wet."))
	expect(t, "sections", sections(), "map[other:as it is safety:Do no harm. tone:Wet.]")
	if _, err := p.Replace(ctx, "identity",
		"I am you."); codeOf(err) != providers.CodeUnauthorized {
		t.Errorf("replacing the identity: %v, want UNAUTHORIZED", err)
	}
}

// A session has a tool once AddTool has returned, and lacks it once RemoveTool has.
func TestRealTools(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	ctx := t.Context()
	p, _ := w.provider("one", providers.Options{Concurrency: providers.Concurrency{Max: 1}})
	must[uint64](t)(p.AddTool(ctx, fixed("greet", "Hello!", nil)))
	expect(t, "greet", s.call(t, "greet", `{}`), "Hello!")
	other, _ := w.provider("two", providers.Options{})
	if _, err := other.AddTool(ctx,
		fixed("greet", "Mine!", nil)); codeOf(err) != providers.CodeToolConflict {
		t.Errorf("the same tool: %v, want TOOL_CONFLICT", err)
	}
	must[uint64](t)(other.AddTool(ctx, fixed("other", "Mine!", nil)))
	expect(t, "other", s.call(t, "other", `{}`), "Mine!")
	must[uint64](t)(p.AddTool(ctx, fixed("greet", "Hello again!", nil)))
	expect(t, "greet", s.call(t, "greet", `{}`), "Hello again!")
	must[uint64](t)(p.RemoveTool(ctx, "greet"))
	expect(t, "greet", s.call(t, "greet", `{}`),
		`NOT_FOUND: tool "greet" does not exist in this session`)
	must[uint64](t)(other.AddTool(ctx, fixed("greet", "Mine!", nil)))
	expect(t, "greet", s.call(t, "greet", `{}`), "Mine!")

	// One call at a time, the others in order.
	release, began := make(chan struct{}), make(chan string, 8)
	must[uint64](t)(p.SetTools(ctx,
		[]providers.Tool{raw("slow", func(_ context.Context, args json.RawMessage) (any, error) {
			began <- string(args)
			<-release
			return "done", nil
		})}))
	results := make(chan string, 2)
	for i := range 2 {
		go func() { results <- s.call(t, "slow", fmt.Sprintf(`{"n":%d}`, i)) }()
	}
	receive(t, began)
	if len(began) != 0 {
		t.Error("two calls run at once, want one")
	}
	close(release)
	for range 2 {
		expect(t, "slow", receive(t, results), "done")
	}
}

// Files lie in the directory that the binding names.
func TestRealFile(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	w.provider("filer", providers.Options{}, func(p *providers.Provider) {
		providers.AddTool(p, "report", "Write a report",
			func(ctx context.Context, _ struct{}) (providers.File, error) {
				call, _ := providers.CallFrom(ctx)
				name := filepath.Join(call.PersistDir, "report.txt")
				return providers.File{Path: name, MIMEType: "text/plain"}, os.WriteFile(name,
					[]byte("all is well"), 0o600)
			})
	})
	expect(t, "report", s.call(t, "report", `{}`), "all is well")
}

// Pushes have fates; streams have filters and a history.
func TestRealStreams(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	ctx := t.Context()
	p, _ := w.provider("ci", providers.Options{}, func(p *providers.Provider) {
		must[uint64](t)(p.SetFilter(ctx, "noise",
			providers.FilterRule{Match: "^debug", Outcome: providers.Drop},
			providers.FilterRule{Match: "fatal", Outcome: providers.Surface}))
	})
	push := func(want providers.Fate, e providers.Event, opts ...providers.PushOption) {
		t.Helper()
		r, err := p.Push(ctx, e, opts...)
		if err != nil || r.Fate != want || r.Session != "s1" {
			t.Errorf("pushing %q: %+v, %v, want %s", e.Text, r, err, want)
		}
	}
	push(providers.Stored, providers.Event{Text: "a", Level: providers.Keep,
		Metadata: map[string]any{"run": 1}})
	push(providers.Surfaced, providers.Event{Text: "b"})
	push(providers.Dropped, providers.Event{Text: "debug: x", Stream: "noise"})
	push(providers.Surfaced, providers.Event{Text: "fatal: x", Stream: "noise",
		Level: providers.Keep})

	s.Busy()
	push(providers.Queued, providers.Event{Text: "c", Level: providers.Inject})
	waits := pushed(ctx, p, providers.Event{Text: "d", Prompt: "Look at d.", Level: providers.Keep},
		providers.WaitDelivered)
	if e, err := p.Query(ctx, providers.Query{}); err != nil || len(e) == 0 {
		// so the push before it was taken too
		t.Errorf("querying: %v, %v, want no error and at least one", e, err)
	}
	if len(waits) != 0 {
		t.Error("Push returned, want it to wait for its turn")
	}
	s.Idle()
	expect(t, "the prompt", receive(t, s.sent).Text, "c")
	s.Busy()
	s.Idle()
	expect(t, "the prompt", receive(t, s.sent).Text, "Look at d.")
	if got := receive(t, waits); got.err != nil || got.receipt.Fate != providers.Delivered {
		t.Errorf("got %+v, want that it was delivered", got)
	}

	entries, err := p.Query(ctx, providers.Query{Streams: []string{"ci", "noise"}, Last: 2})
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s@%s %s %s %s", e.Stream, e.Provider, e.Text, e.Level,
			e.Prompt))
	}
	want := []string{"ci@ci d keep Look at d.", "ci@ci c inject ", "noise@ci fatal: x surface "}
	if err != nil || !slices.Equal(lines, want) {
		t.Errorf("the streams have %q, %v, want %q", lines, err, want)
	}
	if _, err := p.Query(ctx, providers.Query{Streams: []string{"x@other"}}); codeOf(
		err) != providers.CodeUnauthorized {
		t.Errorf("another's stream: %v, want UNAUTHORIZED", err)
	}
	over := 0
	for range 20 {
		if err := p.Keep(ctx, "too fast"); codeOf(err) == providers.CodeRateLimited {
			over++
		}
	}
	if over == 0 {
		t.Error("20 pushes at once were all taken, want some refused")
	}
}

// Subscribers get the session's events in order.
func TestRealEvents(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	heard := make(chan string, 64)
	w.provider("listener", providers.Options{}, func(p *providers.Provider) {
		providers.Subscribe(p, func(_ context.Context, e providers.UserMessage) {
			heard <- "user: " + e.Content
		})
		providers.Subscribe(p, func(_ context.Context, e providers.AssistantMessage) {
			heard <- fmt.Sprintf("assistant: %s %s", e.Content, e.ToolRequests)
		})
		providers.Subscribe(p, func(_ context.Context, e providers.ToolExecution) {
			heard <- fmt.Sprintf("tool: %s %s %t %s", e.Tool, e.Args, e.Failed, e.Output)
		})
		providers.Subscribe(p, func(_ context.Context, e providers.AssistantIntent) {
			heard <- "intent: " + e.Intent
		})
	})
	for _, e := range []domain.Event{
		{UserMessage: "fix it"},
		{Intent: "reading"},
		{Callback: domain.OnStartToolExecution, ID: "c1", Tool: "bash", Args: `{"command":"ls"}`},
		{Callback: domain.OnEndToolExecution, ID: "c1",
			Result: &adminapi.ToolOutput{Content: "a b"}},
		{Callback: domain.OnEndMessage, Content: "done",
			Requests: []domain.ToolRequest{{Name: "bash", Args: protocol.Raw(`{}`)}}},
	} {
		s.Event(e)
	}
	for _, want := range []string{"user: fix it", "intent: reading",
		`tool: bash {"command":"ls"} false a b`,
		"assistant: done [{bash {}}]"} {
		expect(t, "heard", receive(t, heard), want)
	}
}
