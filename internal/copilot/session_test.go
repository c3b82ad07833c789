//go:build runtime

package copilot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

func TestToolRoundTrip(t *testing.T) {
	g := newRig(t)
	s := g.start()
	var got string
	s.tool("greet", func(_ context.Context, args string) gateway.Outcome {
		got = args
		return gateway.Outcome{Data: rawJSON("hello <world>")}
	})
	s.turn(`call:greet {"x":"a<b"}`)

	if got != `{"x":"a<b"}` {
		t.Errorf(`args of the call: %s, want {"x":"a<b"}`, got)
	}
	if s.lastSaid() != "hello <world>" {
		t.Errorf(`the model said %q, want "hello <world>"`, s.lastSaid())
	}
	var seen []string
	for _, e := range s.allEvents() {
		switch {
		case e.UserMessage != "":
			seen = append(seen, "user "+e.UserMessage+" from "+e.Source)
		case e.Callback == gateway.OnStartToolExecution:
			seen = append(seen, e.Callback+" "+e.Tool+" of "+e.Provider+" "+e.Args)
		case e.Callback == gateway.OnEndToolExecution:
			seen = append(seen, e.Callback+" "+e.Tool+" "+e.Result.Content)
		case e.Callback == "" && e.Duration > 0:
			seen = append(seen, "took of "+e.ID)
		case e.Forwarded != "":
			seen = append(seen, e.Forwarded+" "+string(e.Data))
		case e.Callback == gateway.OnMessage:
			seen = append(seen, e.Callback+" "+e.Delta)
		case e.Callback == gateway.OnEndMessage:
			seen = append(seen, e.Callback+" "+e.Content)
		default:
			seen = append(seen, e.Callback)
		}
	}
	want := []string{
		`user call:greet {"x":"a<b"} from user`,
		"onAgentStart",
		`assistant.message {"content":"","toolRequests":[{"name":"greet","args":{"x":"a<b"}}]}`,
		`onStartToolExecution greet of tests {"x":"a<b"}`,
		"onEndToolExecution greet hello <world>",
		"took of call_1_1",
		"onAgentEnd",
		"onAgentStart",
		"onStartMessage",
		"onMessage hello ",
		"onMessage <world>",
		"onEndMessage hello <world>",
		"onAgentEnd",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	if s.busy != 1 || s.idle != 1 {
		t.Errorf("busy %d times, idle %d times, want busy 1 and idle 1", s.busy, s.idle)
	}
}

func TestReasoning(t *testing.T) {
	g := newRigWith(t, func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Reasoning: "let me think", Text: "done"}
	})
	s := g.start()
	s.turn("why?")
	var deltas, whole string
	for _, e := range s.allEvents() {
		switch e.Callback {
		case gateway.OnReasoning:
			deltas += e.Delta
		case gateway.OnEndReasoning:
			whole = e.Content
		}
	}
	if deltas != "let me think" || whole != deltas {
		t.Errorf(`reasoning in pieces %q, whole %q, want "let me think" in both`, deltas, whole)
	}
}

func TestToolsChangeInMidTurn(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("first", text("1"))
	s.tool("change", func(context.Context, string) gateway.Outcome {
		s.tool("second", text("2"))
		s.removeTool("first")
		return gateway.Outcome{Data: rawJSON("changed")}
	})
	s.turn("call:change")
	before, after := g.model.Requests()[0], g.model.Requests()[1]
	if !before.HasTool("first") || before.HasTool("second") {
		t.Errorf(`tools before: %q, want tool "first" and no tool "second"`, before.ToolNames())
	}
	if after.HasTool("first") || !after.HasTool("second") || !after.HasTool("change") {
		t.Errorf(`tools in the turn's next request: %q, want "second" and "change", no "first"`,
			after.ToolNames())
	}
	if s.lastSaid() != "changed" {
		t.Errorf(`the model said %q, want "changed"`, s.lastSaid())
	}
	s.turn("call:second")
	if s.lastSaid() != "2" {
		t.Errorf(`the new tool said %q, want "2"`, s.lastSaid())
	}
	s.removeTool("second")
	s.removeTool("change")
	s.turn("hello")
	last := g.model.Requests()[len(g.model.Requests())-1]
	if last.HasTool("second") || last.HasTool("change") {
		t.Errorf(`tools after all were removed: %q, want no tool "second" and no tool "change"`,
			last.ToolNames())
	}
}

// A runtime before 1.0.81 has no session.tools.set.
func TestToolsWithoutToolsSet(t *testing.T) {
	g := newRig(t)
	g.r.lacksToolsSet = true
	s := g.start()
	s.tool("first", text("1"))
	s.turn("call:first")
	if s.lastSaid() != "1" {
		t.Errorf(`the model said %q, want "1"`, s.lastSaid())
	}
	s.tool("change", func(context.Context, string) gateway.Outcome {
		s.removeTool("first")
		s.tool("second", text("2"))
		return gateway.Outcome{Data: rawJSON("changed")}
	})
	s.turn("call:change")
	if s.lastSaid() != "changed" {
		t.Errorf(`the model said %q, want "changed"`, s.lastSaid())
	}
	reqs := g.model.Requests()
	if last := reqs[len(reqs)-1]; last.HasTool("first") || !last.HasTool("second") {
		t.Errorf(
			`tools in the next request of the turn: %q, want no tool "first" and tool "second"`,
			last.ToolNames())
	}
	s.turn("call:second")
	if s.lastSaid() != "2" {
		t.Errorf(`the new tool said %q, want "2"`, s.lastSaid())
	}
}

func TestBuiltinClash(t *testing.T) {
	g := newRig(t)
	s := g.start()
	if !slices.Contains(s.info.Tools, "bash") || !slices.Contains(s.info.Tools, "view") {
		t.Errorf(`the runtime's own tools: %q, want "bash" and "view" among them`, s.info.Tools)
	}
	s.tool("bash", text("mine"))
	s.tool("fine", text("ok"))
	s.turn("call:fine")
	if s.lastSaid() != "ok" {
		t.Errorf(`the model said %q, errors %q, want "ok"`, s.lastSaid(), s.errors())
	}
	if notes := s.allNotes(); strings.Count(notes, "tool bash of provider tests is left out") != 1 {
		t.Errorf(`notes: %s, want "tool bash of provider tests is left out" once`, notes)
	}
}

func TestHooks(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.preToolUse = func(_ string, args protocol.Raw) gateway.Decision {
		if strings.Contains(string(args), "forbidden") {
			return gateway.Decision{Deny: true, Reason: "not on a Sunday"}
		}
		return gateway.Decision{Context: "handle with care"}
	}
	s.userPrompt = func(_, source string) string { return "asked by " + source }
	called := 0
	s.tool("act", func(context.Context, string) gateway.Outcome {
		called++
		return gateway.Outcome{Data: rawJSON("acted")}
	})
	s.turn(`call:act {"x":"forbidden"}`)
	if called != 0 || !strings.Contains(s.lastSaid(), "not on a Sunday") {
		t.Errorf(
			`a denied tool ran %d times; the model said %q, want 0 and "not on a Sunday" in it`,
			called, s.lastSaid(),
		)
	}
	s.turn(`call:act {"x":"fine"}`)
	if called != 1 || s.lastSaid() != "acted" {
		t.Errorf(`an allowed tool ran %d times; the model said %q, want 1 and "acted"`, called,
			s.lastSaid())
	}
	reqs := g.model.Requests()
	body := string(reqs[len(reqs)-1].Body)
	if !strings.Contains(body, "handle with care") || !strings.Contains(body, "asked by user") {
		t.Error("the model's input lacks the context of the hooks, want both texts")
	}
	n := s.idles()
	s.prompt(gateway.Prompt{Text: "an event", Source: "provider:news.feed-1"})
	s.waitIdle(n + 1)
	reqs = g.model.Requests()
	if said := reqs[len(reqs)-1].LastUser(); !strings.Contains(said,
		"[from provider news.feed-1]\nan event") ||
		!strings.Contains(said, "asked by provider:news.feed-1") {
		t.Errorf(
			`the prompt of a provider: %q, want %q and "asked by provider:news.feed-1" in it`,
			said, "[from provider news.feed-1]\nan event",
		)
	}
	last := s.allEvents()
	at := slices.IndexFunc(last, func(e gateway.Event) bool { return e.UserMessage == "an event" })
	if at < 0 || last[at].Source != "provider:news.feed-1" {
		t.Errorf(`the event of a provider's prompt: %s, want it to be of "provider:news.feed-1"`,
			describe(last))
	}
}

// What the model's sub-agents do goes through the hooks too, but their prompts
// are nobody's.
func TestSubAgent(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Permissions.Shell = configs.Allow })
	s := g.start()
	s.preToolUse = func(tool string, _ protocol.Raw) gateway.Decision {
		return gateway.Decision{Deny: tool == "bash", Reason: "not on a Sunday"}
	}
	s.userPrompt = func(prompt, _ string) string { return "about it" }
	file := filepath.Join(g.cwd, "made")
	args := rawJSON(map[string]string{"agent_type": "task", "name": "helper",
		"description": "make it", "mode": "sync", "prompt": "call:bash " + string(
			rawJSON(map[string]string{"command": "touch " + file, "description": "make a file"}),
		)})
	s.turn("call:task " + string(args))
	if !strings.Contains(s.lastSaid(), "not on a Sunday") {
		t.Errorf(`the model said %q, want "not on a Sunday" in it`, s.lastSaid())
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the sub-agent: %v, want no file", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.prompts) != 1 {
		t.Errorf("the providers were asked about %v, want one prompt", s.prompts)
	}
	var intents []string
	for _, e := range s.events {
		if e.Intent != "" {
			intents = append(intents, e.Intent)
		}
	}
	if want := []string{"make it", "make a file"}; !slices.Equal(intents, want) {
		t.Errorf("intents %q, want %q", intents, want)
	}
}

// A prompt that steers a running turn has no hook in the runtime; the providers
// are asked all the same, once.
func TestImmediate(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.userPrompt = func(prompt, _ string) string { return "about " + prompt }
	s.tool("act", func(context.Context, string) gateway.Outcome {
		s.prompt(gateway.Prompt{Text: "hurry up", Mode: adminapi.ModeImmediate,
			Source: gateway.SourceUser})
		return gateway.Outcome{Data: rawJSON("acted")}
	})
	s.turn("call:act")
	reqs := g.model.Requests()
	if len(reqs) != 2 || !strings.Contains(reqs[1].LastUser(), "about hurry up") {
		t.Errorf(
			`%d requests; the last user message: %q, want 2 and "about hurry up" in it`,
			len(reqs), reqs[len(reqs)-1].LastUser(),
		)
	}
	n := s.idles()
	s.prompt(gateway.Prompt{Text: "now", Mode: adminapi.ModeImmediate, Source: gateway.SourceUser})
	s.waitIdle(n + 1)
	reqs = g.model.Requests()
	if got := strings.Count(reqs[2].LastUser(), "about now"); got != 1 {
		t.Errorf("context stands %d times in %q, want 1", got, reqs[2].LastUser())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked []string
	for _, p := range s.prompts {
		asked = append(asked, p.Text)
	}
	if want := []string{"call:act", "hurry up", "now"}; !slices.Equal(asked, want) {
		t.Errorf("providers were asked about %q, want %q", asked, want)
	}
}

func TestInterruptCancelsCalls(t *testing.T) {
	g := newRig(t)
	s := g.start()
	started, cancelled := make(chan struct{}), make(chan struct{})
	s.tool("slow", func(ctx context.Context, _ string) gateway.Outcome {
		close(started)
		<-ctx.Done()
		close(cancelled)
		return gateway.Outcome{}
	})
	s.send("call:slow")
	within(t, started, "the call")
	s.send("never to begin")
	if _, err := s.host.Interrupt(g.ctx, "a person said so"); err != nil {
		t.Fatal(err)
	}
	within(t, cancelled, "the call's end")
	s.waitIdle(1)
	var ended int
	for _, e := range s.allEvents() {
		if e.Callback == gateway.OnEndToolExecution && e.Error != nil {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("tool executions that ended with an error: %d in %s, want 1", ended,
			describe(s.allEvents()))
	}
	s.turn("hello")
	if got := len(g.model.Requests()); got != 2 {
		t.Errorf("model requests: %d, want 2", got)
	}
	if s.idles() != 2 {
		t.Errorf("idle %d times, want 2", s.idles())
	}
}

func TestModelError(t *testing.T) {
	g := newRigWith(t, func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Status: 400, Text: "the model is on strike"}
	})
	s := g.start()
	s.turn("hello")
	if errs := s.errors(); len(errs) != 1 || !strings.Contains(errs[0], "on strike") {
		t.Errorf(`errors: %q, want one with "on strike" in it`, errs)
	}
}

// An error line of ours must not come back as an error of the session.
func TestLogLines(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.host.Log(adminapi.LogError, "a line")
	s.host.Log(adminapi.LogWarning, "another")
	s.turn("hello")
	if errs := s.errors(); len(errs) > 0 {
		t.Errorf("errors: %q, want none", errs)
	}
	if strings.Contains(string(g.model.Requests()[0].Body), "a line") {
		t.Error("a timeline line reached the model, want it to stay with people")
	}
}

// An idle that the runtime reports before a prompt that it was just given is
// not that prompt's end.
func TestIdleIsOfTheLastPrompt(t *testing.T) {
	gates := make(chan chan struct{}, 10)
	g := newRigWith(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.Contains(r.LastUser(), "held") {
			gate := make(chan struct{})
			gates <- gate
			return scriptmodel.Reply{Text: "released", Gate: gate}
		}
		return scriptmodel.Reply{Text: "at once"}
	})
	s := g.start()
	for range 20 {
		said := len(s.said())
		s.send("quick")
		// The second goes out when the answer to the first was seen, so the
		// runtime's idle after the first is on its way.
		s.wait("the answer", func() bool { return s.count(gateway.OnEndMessage) > said })
		s.send("held")
		sent := s.idles()
		var gate chan struct{}
		select {
		case gate = <-gates:
		case <-g.ctx.Done():
			t.Fatal("the second prompt did not reach the model, want its request")
		}
		if now := s.idles(); now != sent {
			t.Fatalf(
				"idle was reported %d times after a prompt was taken and before it was answered, want 0", now-sent)
		}
		close(gate)
		s.waitIdle(sent + 1)
		if s.lastSaid() != "released" {
			t.Fatalf(`idle came before the answer: %q, want "released" before it`, s.said())
		}
	}
}

func TestRoundBudget(t *testing.T) {
	g := newRigWith(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.Contains(r.LastUser(), "stop") {
			return scriptmodel.Reply{Text: "stopped"}
		}
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "again"}}}
	}, func(o *Options) { o.MaxRounds = 3 })
	s := g.start()
	// Context after each result is a message of the user's role: it renews nothing.
	s.preToolUse = func(string, protocol.Raw) gateway.Decision {
		return gateway.Decision{Context: "go on"}
	}
	s.tool("again", text("and again"))
	s.turn("for ever")
	if errs := s.errors(); len(errs) != 1 || !strings.Contains(errs[0], "3 rounds (max_rounds") {
		t.Errorf(`errors: %q, want one with "3 rounds (max_rounds" in it`, errs)
	}
	if n := len(g.model.Requests()); n > 5 {
		t.Errorf("the model was asked %d times, want at most 5", n)
	}
	s.turn("stop")
	if s.lastSaid() != "stopped" {
		t.Errorf(`the next turn said %q, want "stopped"`, s.lastSaid())
	}
}

func TestTwoSessions(t *testing.T) {
	g := newRig(t)
	a, b := g.start(), g.start()
	if a.id == b.id {
		t.Fatal("one id for two sessions, want two")
	}
	for name, s := range map[string]*fakeSession{"a": a, "b": b} {
		s.tool("who", text("I am "+name))
		s.tool("only_"+name, text(name))
	}
	for range 5 {
		for _, s := range []*fakeSession{a, b} {
			s.send("call:who")
		}
	}
	for name, s := range map[string]*fakeSession{"a": a, "b": b} {
		s.wait("five answers", func() bool { return s.count(gateway.OnEndMessage) == 5 })
		for _, said := range s.said() {
			if said != "I am "+name {
				t.Errorf("session %s said %q, want %q", name, said, "I am "+name)
			}
		}
	}
	for _, r := range g.model.Requests() {
		if r.HasTool("only_a") == r.HasTool("only_b") {
			t.Errorf("a request has the tools %q, want those of one session", r.ToolNames())
		}
	}
	// One session's end is not the other's.
	if err := a.host.Close(g.ctx, "enough"); err != nil {
		t.Errorf("closing a session: %v", err)
	}
	b.turn("call:only_b")
	if b.lastSaid() != "b" {
		t.Errorf(`session b said %q, want "b"`, b.lastSaid())
	}
	if err := a.host.Send(g.ctx, gateway.Prompt{Text: "x"}); err == nil {
		t.Error("a closed session took a prompt, want an error")
	}
}

// A slow handler of one session must not hold up another.
func TestSlowGatewayCallsDontBlockOthers(t *testing.T) {
	g := newRig(t)
	a, b := g.start(), g.start()
	release := make(chan struct{})
	a.tool("slow", func(ctx context.Context, _ string) gateway.Outcome {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return gateway.Outcome{Data: rawJSON("late")}
	})
	a.userPrompt = func(prompt, _ string) string {
		if prompt == "slow hook" {
			<-release
		}
		return ""
	}
	a.send("slow hook")
	b.turn("hello")
	b.turn("hello again")
	close(release)
	a.waitIdle(1)
}

func within(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("waited for %s, which did not come", what)
	}
}
