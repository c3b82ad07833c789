//go:build runtime && unix

package copilot

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// midTurn is a turn that stops in the middle until a test lets it continue.
type midTurn struct {
	first   scriptmodel.Reply
	streams bool // first pauses in its text
	options func(*Options)
	reach   func(h *hosted, p *provider) // waits until the turn is in its middle
	resume  func(h *hosted, p *provider) // lets it continue; nil: the text does
	said    string
}

// midTurns returns turns by what they wait for. The MCP server that one of them calls asks
// slowServer.
func midTurns(
	slowServer string, called <-chan struct{}, release chan<- struct{},
) map[string]midTurn {
	tea := func(env map[string]string) func(*Options) {
		return func(o *Options) {
			o.AskUser, o.Permissions.MCP = env[mcpForm] != "", configs.Allow
			o.Profile = configs.DefaultProfile()
			o.Profile.MCP = map[string]configs.SessionMCP{"tea": {
				Command: []string{os.Args[0], "-test.run=^TestMCPProgram$"}, Env: env,
				Tools: []string{"brew"},
			}}
		}
	}
	return map[string]midTurn{
		"an answer streams": {
			first:   scriptmodel.Reply{Text: "one two three", ToolCalls: saysIt.ToolCalls},
			streams: true,
			reach: func(h *hosted, _ *provider) {
				h.until("a delta", func(e gateway.Event) bool {
					return e.Callback == gateway.OnMessage
				})
			},
			said: "one two three",
		},
		"a tool of another provider": {
			first:  calls("hang", `{"x":"hung"}`),
			reach:  func(_ *hosted, p *provider) { <-p.hanging },
			resume: func(_ *hosted, p *provider) { close(p.release) },
			said:   "hung",
		},
		"a permission": {
			first:   calls("bash", `{"command":"echo permitted","description":"x"}`),
			options: func(o *Options) { o.Permissions.Shell = configs.Ask },
			reach:   func(h *hosted, _ *provider) { h.asked(h.s) },
			resume: func(h *hosted, _ *provider) {
				h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideOnce})
			},
			said: "permitted",
		},
		"a question": {
			first:   calls("ask_user", `{"question":"Which?"}`),
			options: func(o *Options) { o.AskUser = true },
			reach:   func(h *hosted, _ *provider) { h.asked(h.s) },
			resume: func(h *hosted, _ *provider) {
				h.answer(h.asked(h.s), gateway.Answer{Text: "the green one"})
			},
			said: "the green one",
		},
		"the runtime's own tool": {
			first: calls(
				"bash",
				`{"command":"echo begun; while [ ! -e go ]; do sleep 0.05; done; echo went on","description":"x"}`,
			),
			options: func(o *Options) { o.Permissions.Shell = configs.Allow },
			reach: func(h *hosted, _ *provider) {
				h.until("the command", func(e gateway.Event) bool {
					return e.Callback == gateway.OnToolExecution &&
						strings.Contains(e.Delta, "begun")
				})
			},
			resume: func(h *hosted, _ *provider) {
				if err := os.WriteFile(filepath.Join(h.r.cwd, "go"), nil, 0o644); err != nil {
					h.t.Error(err)
				}
			},
			said: "went on",
		},
		"a tool of an MCP server": {
			first:   calls("tea-brew", "{}"),
			options: tea(map[string]string{mcpProgram: "brewed", mcpAsks: slowServer}),
			reach:   func(*hosted, *provider) { <-called },
			resume:  func(*hosted, *provider) { close(release) },
			said:    "brewed",
		},
		"a form of an MCP server": {
			first:   calls("tea-brew", "{}"),
			options: tea(map[string]string{mcpProgram: "brewed", mcpForm: "For whom?"}),
			reach:   func(h *hosted, _ *provider) { h.asked(h.s) },
			resume: func(h *hosted, _ *provider) {
				h.answer(h.asked(h.s), gateway.Answer{Content: protocol.Raw(`{"name":"Ada"}`)})
			},
			said: "Ada",
		},
	}
}

// TestGateComesInMidTurn: whatever a turn waits for, the next tool call after the gate's ack is
// asked about, and nothing of the turn is lost.
func TestGateComesInMidTurn(t *testing.T) {
	called, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	for name, tt := range midTurns(server.URL, called, release) {
		t.Run(name, func(t *testing.T) {
			pause := make(chan struct{})
			if tt.streams {
				tt.first.Pause = pause
			}
			if tt.options == nil {
				tt.options = func(*Options) {}
			}
			h := startHosted(t, newRigWith(t, rounds(tt.first, saysIt), readsAll, tt.options))
			p := h.provide(h.s, "tests")
			turn := h.asking("go")
			tt.reach(h, p)
			if h.session().hooksEnabled() == h.late() {
				t.Fatalf("hooks are enabled: %v, want %v", h.session().hooksEnabled(), !h.late())
			}
			g := h.gate("guard")
			close(pause)
			if tt.resume != nil {
				tt.resume(h, p)
			}
			said := <-turn
			if !strings.Contains(said, tt.said) || !strings.Contains(said, "not past guard") ||
				strings.Contains(said, "END") {
				t.Errorf(
					"the turn: %q, want %q, \"not past guard\" in it and no \"END\" in it\n%s",
					said, tt.said, timeline(h.s),
				)
			}
			if calls := g.asked(); len(calls) == 0 ||
				slices.ContainsFunc(calls, func(tool string) bool { return tool != "say" }) {
				t.Errorf(`asked about %q, want only "say", at least once`, calls)
			}
			h.whole()
		})
	}
}

// TestGateComesWhileASubAgentWorks: what a sub-agent calls next is asked about too.
func TestGateComesWhileASubAgentWorks(t *testing.T) {
	bash := func(command string) scriptmodel.Reply {
		return calls("bash",
			string(rawJSON(map[string]string{"command": command, "description": "x"})))
	}
	agent := rounds(bash("cat fifo"), bash("touch made"))
	main := rounds(
		calls("task",
			`{"agent_type":"task","name":"helper","description":"x","mode":"sync","prompt":"sub"}`),
	)
	h := startHosted(t, newRigWith(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		for _, m := range r.Messages {
			if m.Role == "user" && scriptmodel.Prompt(m.Text) == "sub" {
				return agent(r)
			}
		}
		return main(r)
	}, readsAll, func(o *Options) { o.Permissions.Shell = configs.Allow }))
	fifo := filepath.Join(h.r.cwd, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	turn := h.asking("go")
	begun, err := os.OpenFile(fifo, os.O_WRONLY, 0) // when it is read
	if err != nil {
		t.Fatal(err)
	}
	p := h.guard("guard")
	hello := helloOf("guard", h.s.ID())
	hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("shell")}
	p.send(hello, "hello")
	if _, err := begun.WriteString("went on"); err != nil {
		t.Error(err)
	}
	_ = begun.Close()
	if said := <-turn; !strings.Contains(said, "went on") ||
		!strings.Contains(said, "not past guard") {
		t.Errorf(`the turn: %q, want "went on" and "not past guard" in it`, said)
	}
	if _, err := os.Stat(filepath.Join(h.r.cwd, "made")); err == nil {
		t.Error("the sub-agent made the file, want a denial")
	}
	h.whole()
}

// TestGateComesAtAnyTime: a gate that comes while one call follows the other is asked
// about all that begin after its ack.
func TestGateComesAtAnyTime(t *testing.T) {
	const all = 8
	h := newHosted(t,
		newRigWith(t, rounds(slices.Repeat([]scriptmodel.Reply{calls("work", "{}")}, all)...),
			readsAll))
	for before := range all - 2 {
		h.s = h.start(fmt.Sprintf("session-%d", before))
		worker := h.guard(fmt.Sprintf("worker-%d", before))
		hello := helloOf(worker.name, h.s.ID())
		hello.Tools = []protocol.Tool{
			{Name: "work", Description: "Works.", Parameters: protocol.Raw(`{"type":"object"}`)},
		}
		worker.send(hello, "hello")
		turn := h.asking("go")
		for range before {
			<-worker.calls
		}
		p := h.guard(fmt.Sprintf("guard-%d", before))
		hello = helloOf(p.name, h.s.ID())
		hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("work")}
		p.send(hello, "hello")
		worker.mu.Lock()
		// One may be on its way to the worker.
		most := worker.called + 1
		worker.mu.Unlock()
		said := <-turn
		ran, denied := strings.Count(said, "ran"), strings.Count(said, "not past "+p.name)
		if ran > most || ran+denied != all || len(p.asked()) != denied ||
			strings.LastIndex(said, "ran") > strings.Index(said, "not past") {
			t.Errorf(
				"of %d calls %d ran, want at most %d; %d were denied, %d asked about, want %d, none run after one: %q",
				all, ran, most, denied, len(p.asked()), denied, said,
			)
		}
		h.whole()
	}
}

// TestManyGatesAtOnce: providers that come at the same time in the middle of a turn are
// all asked, in every session of one bound to all.
func TestManyGatesAtOnce(t *testing.T) {
	h := startHosted(t, newRigWith(t, rounds(calls("hang", "{}"), saysIt), readsAll))
	first := h.s
	h.s = h.start("second")
	sessions := []*gateway.Session{first, h.s}
	var turns []chan string
	var hanging []*provider
	for i, s := range sessions {
		h.s = s
		p := h.provide(s, fmt.Sprintf("tests-%d", i))
		turns = append(turns, h.asking("go"))
		<-p.hanging
		hanging = append(hanging, p)
	}
	var guards []*guard
	for i := range 4 {
		name := fmt.Sprintf("guard-%d", i)
		p := h.guard(name)
		hello := helloOf(name, protocol.AllSessions)
		hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("say")}
		p.in <- func() { p.conn.Receive(protocol.Append(nil, hello)) }
		guards = append(guards, p)
	}
	for _, p := range guards {
		p.waitAck("hello")
	}
	for _, p := range hanging {
		close(p.release)
	}
	for i, turn := range turns {
		if said := <-turn; !strings.Contains(said, "not past guard-") {
			t.Errorf(`session %d: %q, want "not past guard-" in it`, i, said)
		}
		h.s = sessions[i]
		h.whole()
	}
	for _, p := range guards {
		if len(p.asked()) != 2 {
			t.Errorf("%s was asked about %q, want two questions", p.name, p.asked())
		}
	}

	// A session that comes later has them from the provider's word on.
	h.s = h.start("third")
	for _, p := range guards {
		p.in <- func() {
			p.conn.Receive(protocol.Append(nil, &protocol.SessionReady{SessionID: h.s.ID()}))
		}
		p.send(
			&protocol.ContextUpdate{RequestID: "context", SessionID: h.s.ID(),
				Context: new("of " + p.name)}, "context",
		)
	}
	if !h.session().hooksEnabled() {
		t.Error("the third session is without hooks, want it to have them")
	}
	p := h.provide(h.s, "tests-2")
	close(p.release)
	if said := <-h.asking("go"); !strings.Contains(said, "not past guard-") {
		t.Errorf(`the third session: %q, want "not past guard-" in it`, said)
	}
}

// TestTransformComesWithAGate: a provider of which the sections are asked while its
// hello, or its update, waits for the hooks is not waited for, and is asked after.
func TestTransformComesWithAGate(t *testing.T) {
	hooks := &protocol.Hooks{
		OnPreToolUse: gateOf("say"),
		Transforms: map[string]*protocol.Transform{
			"guidelines": {Action: protocol.TransformCallback},
		},
	}
	for name, come := range map[string]func(h *hosted, p *guard){
		"hello": func(h *hosted, p *guard) {
			hello := helloOf("guard", h.s.ID())
			hello.Hooks = hooks
			p.send(hello, "hello")
		},
		"update": func(h *hosted, p *guard) {
			p.send(helloOf("guard", h.s.ID()), "hello")
			p.send(&protocol.HooksUpdate{
				RequestID: "1", OnPreToolUse: hooks.OnPreToolUse, Transforms: hooks.Transforms,
			}, "1")
		},
		"hello again": func(h *hosted, p *guard) {
			p.send(helloOf("guard", h.s.ID()), "hello")
			hello := helloOf("guard", h.s.ID())
			hello.Hooks = hooks
			p.send(hello, "hello")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHosted(t, newRigWith(t, rounds(calls("hang", "{}"), saysIt), readsAll))
			tests := h.provide(h.s, "tests")
			p := h.guard("guard")
			turn := h.asking("go")
			<-tests.hanging
			come(h, p)
			close(tests.release)
			if said := <-turn; !strings.Contains(said, "not past guard") {
				t.Errorf(`the turn: %q, want "not past guard" in it`, said)
			}
			first := len(h.r.model.Requests()) // the runtime makes its message for a turn
			if said := <-h.asking("go"); !strings.Contains(said, "not past guard") {
				t.Errorf(`the next turn: %q, want "not past guard" in it`, said)
			}
			for i, r := range h.r.model.Requests() {
				if edited := strings.Contains(r.System(),
					"EDITED by guard"); edited != (i >= first) {
					t.Errorf(
						"in request %d, of which %d are of the first turn, the section is the provider's: %v, want %v",
						i, first, edited, i >= first,
					)
				}
			}
			if lines := timeline(h.s); strings.Contains(lines, "did not answer in time") {
				t.Errorf(
					"the timeline: the provider did not answer in time, want no wait for it:\n%s",
					lines)
			}
			h.whole()
		})
	}
}

// TestPromptsWhileHooksCome: prompts that are given at the time when hooks come are
// neither lost nor doubled.
func TestPromptsWhileHooksCome(t *testing.T) {
	h := newHosted(t, newRigWith(t, obey, lean))
	for n := range 5 {
		h.s = h.start(fmt.Sprintf("session-%d", n))
		h.provide(h.s, fmt.Sprintf("tests-%d", n))
		<-h.asking("hello")
		p := h.guard(fmt.Sprintf("teller-%d", n))
		hello := helloOf(p.name, h.s.ID())
		hello.Context = new("CONTEXT")
		p.in <- func() { p.conn.Receive(protocol.Append(nil, hello)) }
		var turns []chan string
		for i := range 3 {
			turns = append(turns, h.asking(fmt.Sprintf("hello %d", i)))
		}
		for _, turn := range turns {
			if said := <-turn; !strings.HasPrefix(said, "You said: hello ") ||
				strings.Contains(said, "END") {
				t.Errorf(`a turn: %q, want "You said: hello " at its start and no "END" in it`,
					said)
			}
		}
		p.waitAck("hello")
		h.whole()
	}
}
