//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

func TestToolRoundTrip(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	session := h.copilot(m)
	h.bindProvider(session, "greeter", "greet")
	if got := h.ask(session, `call:greet {"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("the session answers %q, want %q", got, "Hello, Ada!")
	}
	requests := m.Requests()
	if len(requests) != 2 {
		t.Fatalf("the model got %d requests, want 2", len(requests))
	}
	if first := requests[0]; !first.HasTool("greet") {
		t.Errorf(`the model was offered %q, want tool "greet"`, first.ToolNames())
	}
	if second := requests[1]; second.LastResult() != "Hello, Ada!" {
		t.Errorf(`the model was told %q, want "Hello, Ada!"`, second.LastResult())
	}
}

// TestNoCrosstalk has two sessions with two providers each, whose tools have
// the same names, all at work at once.
func TestNoCrosstalk(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	labels := []string{"crimson", "navy"}
	var asking sync.WaitGroup
	for _, label := range labels {
		session := h.copilot(m, "--label", label)
		h.bindProvider(session, label+"-first", "whoami,whoami_"+label)
		h.bindProvider(session, label+"-second", "whoami_second")
		asking.Go(func() {
			for n := range 5 {
				args := fmt.Sprintf(` {"for":"%s %d"}`, label, n)
				prompt := "call:whoami" + args + "\ncall:whoami_second" + args + "\ncall:whoami_" +
					label + args
				r := h.run(tapctl, "sessions", "query", session, prompt)
				answers := strings.Split(r.stdout, "\n")
				slices.Sort(answers) // calls that the model makes at once end in any order
				first, second := fmt.Sprintf("%[1]s-first here, for %[1]s %[2]d", label, n),
					fmt.Sprintf("%[1]s-second here, for %[1]s %[2]d", label, n)
				if r.code != 0 || !slices.Equal(answers, []string{first, first, second}) {
					t.Errorf(
						"session %s answers %q (exit code %d %s), want code 0 and %q",
						label, answers, r.code, r.stderr, []string{first, first, second},
					)
				}
			}
		})
	}
	asking.Wait()
	requests := m.Requests()
	if len(requests) != 20 {
		t.Errorf("two sessions with five turns each made %d requests, want 20", len(requests))
	}
	for _, r := range requests {
		for i, label := range labels {
			if other := labels[1-i]; r.HasTool("whoami_"+label) &&
				strings.Contains(string(r.Body), other) {
				t.Errorf("request %d of session %s, want nothing of %s in it:\n%s", r.N, label,
					other, r.Body)
			}
		}
	}
}

// TestToolsUpdate changes a provider's tools: what the gateway has acknowledged
// is in the next request to the model.
func TestToolsUpdate(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	session := h.copilot(m)
	p := h.bindProvider(session, "changer", "greet_old,wait")

	// Between two turns.
	p.writeLine("add", "greet_new")
	p.expect("added greet_new <nil>")
	h.ask(session, "hello")
	if r := request(t, m, 1); !r.HasTool("greet_new") || !r.HasTool("greet_old") {
		t.Errorf(
			`with a tool more the model is offered %q, want tool "greet_new" and tool "greet_old"`,
			r.ToolNames())
	}
	p.writeLine("remove", "greet_new")
	p.expect("removed greet_new <nil>")
	h.ask(session, "hello again")
	if r := request(t, m, 2); r.HasTool("greet_new") || !r.HasTool("greet_old") {
		t.Errorf(
			`with a tool less the model is offered %q, want no tool "greet_new" and tool "greet_old"`,
			r.ToolNames(),
		)
	}

	// In a turn, while one of the provider's tools runs.
	turn := h.asking(session, "call:wait")
	p.expect("called wait")
	p.writeLine("add", "greet_mid")
	p.writeLine("remove", "greet_old")
	p.expect("removed greet_old <nil>")
	p.writeLine("finish")
	turn.expect("finished")
	if r := request(t, m, 4); !r.HasTool("greet_mid") || r.HasTool("greet_old") ||
		!r.HasTool("wait") {
		t.Errorf(
			`in mid-turn the model is offered %q, want tool "greet_mid", no tool "greet_old" and tool "wait"`,
			r.ToolNames(),
		)
	}
	if r := request(t, m, 3); r.HasTool("greet_mid") || !r.HasTool("greet_old") {
		t.Errorf(`before that it was offered %q, want no tool "greet_mid" and tool "greet_old"`,
			r.ToolNames())
	}
}

// TestToolsFollowAtOnce changes tools just before a result, a prompt or the end
// of a connection, again and again: each time the next request to the model is
// the first to show it.
func TestToolsFollowAtOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m)
	api := g.api()
	ask := func(prompt string) (last *scriptmodel.Request) {
		for l, err := range api.Query(t.Context(), session, adminapi.Query{Prompt: prompt}) {
			if err != nil || (l.End != nil && l.End.Error != nil) {
				t.Fatalf("asking %q: %v %s, want a turn without an error", prompt, err, l.Raw)
			}
		}
		all := m.Requests()
		return all[len(all)-1]
	}
	for n := range 10 {
		c := g.peer(session, "hasty", message{"name": "first"})
		if r := ask("hello"); !r.HasTool("first") {
			t.Errorf(
				`round %d: a provider was acknowledged, the model is offered %q, want tool "first"`,
				n, r.ToolNames(),
			)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			id := c.next("tool.call")["id"]
			c.send(message{"type": "tools.update",
				"tools": []message{{"name": "second", "description": "Is new",
					"parameters": message{"type": "object"}}}})
			c.send(message{"type": "tool.result", "id": id, "data": "changed"})
		}()
		if r := ask("call:first"); r.HasTool("first") || !r.HasTool("second") ||
			r.LastResult() != "changed" {
			t.Errorf(
				`round %d: with the result %q the model is offered %q, want "changed" and tool "second" instead of "first"`,
				n, r.LastResult(), r.ToolNames(),
			)
		}
		<-answered
		left := make(chan struct{})
		go func() {
			defer close(left)
			c.next("tool.call")
			_ = c.ws.CloseNow()
		}()
		if r := ask("call:second"); r.HasTool("second") ||
			!strings.Contains(r.LastResult(), "DISCONNECTED") {
			t.Errorf(
				`round %d: with the result %q the model is offered %q, want no tool "second" and "DISCONNECTED" in it`,
				n, r.LastResult(), r.ToolNames(),
			)
		}
		<-left
	}
}

func TestProviderKilledInMidCall(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	session := h.copilot(m)
	h.bindProvider(session, "stays", "greet")
	p := h.bindProvider(session, "dies", "wait,wait_more")
	turn := h.asking(session, "call:wait")
	p.expect("called wait")
	p.kill()
	second := request(t, m, 2)
	if text := second.LastResult(); !strings.Contains(text, "DISCONNECTED") {
		t.Errorf(`the model was told %q, want "DISCONNECTED" in it`, text)
	}
	if second.HasTool("wait") || second.HasTool("wait_more") || !second.HasTool("greet") {
		t.Errorf(
			`without its provider the model is offered %q, want no tool "wait", no tool "wait_more" and tool "greet"`,
			second.ToolNames(),
		)
	}
	if code := turn.wait(patience); code != 0 {
		t.Errorf("the turn ended with code %d, want 0", code)
	}
	if got := h.ask(session, `call:greet {"name":"Bob"}`); got != "Hello, Bob!" {
		t.Errorf("the other provider's tool says %q, want %q", got, "Hello, Bob!")
	}
}

func TestPushLevels(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	hold := make(chan struct{})
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		reply := scriptmodel.Calls(r)
		if strings.Contains(r.LastUser(), "take your time") {
			reply = scriptmodel.Reply{Text: "I took it.", Gate: hold}
		}
		return reply
	})
	h.serve()
	session := h.copilot(m)
	p := h.bindProvider(session, "watcher", "greet")

	// An idle session is woken.
	p.writeLine("push", "inject", "the build is red")
	if first := request(t, m, 1); !strings.Contains(first.LastUser(), "the build is red") {
		t.Errorf(`the model was told %q, want "the build is red" in it`, first.LastUser())
	}
	h.waitIdle(session)

	// A busy one is not disturbed, and told when its turn has ended.
	turn := h.asking(session, "take your time")
	request(t, m, 2)
	p.writeLine("push", "inject", "the build is green")
	h.waitTimeline(session, "the build is green")
	p.writeLine("push", "surface", "the build is blue")
	p.writeLine("push", "keep", "the build is grey")
	h.waitTimeline(session, "the build is blue")
	eventually(t, patience, func() error { return stored(h, session, 4) })
	if n := len(m.Requests()); n != 2 {
		t.Errorf("a busy session made %d requests, want 2", n)
	}
	close(hold)
	if code := turn.wait(patience); code != 0 {
		t.Errorf("the turn ended with code %d, want 0", code)
	}
	third := request(t, m, 3)
	last := len(third.Messages) - 1
	if said := third.Messages[last-1]; !strings.Contains(third.LastUser(), "the build is green") ||
		said.Role != "assistant" || said.Text != "I took it." {
		t.Errorf(
			`after its turn the model was told %+v, want what it said, then "the build is green"`,
			third.Messages[last-1:],
		)
	}
	h.waitIdle(session)

	// What is only shown, or only kept, is no model's business.
	h.ask(session, "anything new?")
	for text, want := range map[string]int{"the build is blue": 1, "the build is grey": 0} {
		if heard(m, text) {
			t.Errorf("the model was told %q, want it kept back", text)
		}
		if got := len(h.timeline(session, text)); got != want {
			t.Errorf("%q is in the timeline %d times, want %d", text, got, want)
		}
	}
	kept := decode[[]adminapi.StreamRow](t,
		h.tapctl("query", "--session", session, "watcher@watcher", "--json"))
	var got []string
	for _, e := range kept {
		got = append(got, e.Level+" "+e.Event)
	}
	want :=
		"keep the build is grey, surface the build is blue, inject the build is green, inject the build is red"
	if strings.Join(got, ", ") != want {
		t.Errorf("the stream has %q, want %q", got, want)
	}
}

// stored checks how many events the streams of a session hold.
func stored(h *home, session string, want int) error {
	if events := decode[[]adminapi.StreamRow](h.t,
		h.tapctl("query", "--session", session, "--json")); len(
		events) != want {
		return fmt.Errorf("%d events are stored, want %d", len(events), want)
	}
	return nil
}
