//go:build runtime

package copilot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// obey is a model that does what the last prompt says, whatever was interrupted
// before it.
func obey(r *scriptmodel.Request) scriptmodel.Reply {
	prompt, results := "", []string(nil)
	for _, m := range r.Messages {
		switch text := scriptmodel.Prompt(m.Text); {
		case m.Role == "tool":
			results = append(results, m.Text)
		case m.Role == "user" && text != "":
			prompt, results = text, nil
		}
	}
	if len(results) > 0 {
		return scriptmodel.Reply{Text: strings.Join(results, "\n")}
	}
	if call, ok := strings.CutPrefix(prompt, "call:"); ok {
		name, args, _ := strings.Cut(call, " ")
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: name, Args: args}}}
	}
	return scriptmodel.Reply{Text: "You said: " + prompt}
}

// provider is a program that gives one session the tools say, which answers with
// what it is told, and hang, which does not answer.
type provider struct {
	conn    *gateway.Conn
	hanging chan struct{} // gets one for each call of hang
	release chan struct{} // closed to answer them
	acked   chan struct{}
	gone    chan struct{}

	mu    sync.Mutex
	calls []*protocol.ToolCall
}

func (p *provider) Send(m protocol.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m := m.(type) {
	case *protocol.HelloAck:
		close(p.acked)
	case *protocol.ToolCall:
		p.calls = append(p.calls, m)
	}
}

func (p *provider) Flush() {
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, c := range calls {
		if c.Tool == "hang" {
			p.hanging <- struct{}{}
			go func() {
				select {
				case <-p.release:
					p.conn.Receive(protocol.Append(nil,
						&protocol.ToolResult{ID: c.ID, Data: c.Args}))
				case <-p.gone:
				}
			}()
			continue
		}
		p.conn.Receive(protocol.Append(nil, &protocol.ToolResult{ID: c.ID, Data: c.Args}))
	}
}

func (p *provider) Close(protocol.CloseCode, string) {}

// provide connects a provider of a name to a session.
func (h *hosted) provide(s *gateway.Session, name string) *provider {
	h.t.Helper()
	p := &provider{
		hanging: make(chan struct{}, 100), release: make(chan struct{}), acked: make(chan struct{}),
		gone: make(chan struct{}),
	}
	p.conn = h.g.Connect(p, gateway.ConnOptions{})
	p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: h.g.InstanceToken()}))
	version := protocol.Version
	schema := protocol.Raw(`{"type":"object","properties":{"x":{"type":"string"}}}`)
	p.conn.Receive(protocol.Append(nil,
		&protocol.Hello{Name: name, ProtocolVersion: &version, Session: s.ID(),
			Tools: []protocol.Tool{
				{
					Name:        "say",
					Description: "Says it.",
					Parameters:  schema,
				}, {Name: "hang", Description: "Takes its time.", Parameters: schema},
			}}))
	select {
	case <-p.acked:
	case <-h.r.ctx.Done():
		h.t.Fatal("the provider was not bound, want it bound")
	}
	h.t.Cleanup(func() { close(p.gone); p.conn.Closed() })
	return p
}

// lean gives the model no tools but the providers': a turn is about its prompt.
func lean(o *Options) {
	o.Profile = configs.DefaultProfile()
	o.Profile.AvailableTools = []string{"report_intent"}
}

func user(text string) gateway.Prompt { return gateway.Prompt{Text: text} }

// TestTurnsOfOneSession: prompts that wait, steer and are interrupted each get what
// comes of them, and nothing else.
func TestTurnsOfOneSession(t *testing.T) {
	h := startHosted(t, newRigWith(t, obey, lean))
	p := h.provide(h.s, "tests")
	follow := func(pr gateway.Prompt) chan string {
		turn, err := h.s.Turn(h.r.ctx, pr)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan string, 1)
		go func() {
			said, errs, end := answerOf(h.r.ctx, turn)
			done <- fmt.Sprintf("%s|%s|%v", said, strings.Join(errs, ";"), end)
		}()
		return done
	}
	is := func(name string, done chan string, want string) {
		t.Helper()
		if got := <-done; got != want+fmt.Sprintf("||%v", gateway.ErrTurnEnded) {
			t.Errorf("%s: %q, want %q", name, got, want+fmt.Sprintf("||%v", gateway.ErrTurnEnded))
		}
	}

	// One behind the other.
	first, second, third := follow(user(`call:say {"x":"1"}`)), follow(user("two")),
		follow(user(`call:say {"x":"3"}`))
	is("first", first, `{"x":"1"}`)
	is("second", second, "You said: two")
	is("third", third, `{"x":"3"}`)

	// Interrupted, with others waiting, of which one is changed, one is taken back, and one has
	// been sent into the turn: what waits begins after the interrupt, what was sent first.
	running := follow(user(`call:hang {"x":"1"}`))
	<-p.hanging
	changed, gone := follow(user("wrong")), follow(user("never"))
	sent := follow(user("go on"))
	ids := map[string]string{}
	for _, q := range h.s.Queue() {
		ids[q.Prompt] = q.ID
	}
	for what, err := range map[string]error{
		"change": h.s.EditQueued(ids["wrong"], "right"), "cancel": h.s.CancelQueued(ids["never"]),
		"send": h.s.SendQueued(h.r.ctx, ids["go on"]),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if q := h.s.Queue(); len(q) != 2 || q[0].Prompt != "go on" || !q[0].Sent ||
		q[1].Prompt != "right" {
		t.Errorf("these wait: %+v, want what was sent and then what was changed", q)
	}
	if dropped, err := h.s.Interrupt(h.r.ctx, "enough"); err != nil || len(dropped) > 0 {
		t.Errorf(`dropped %q, %v, want none`, dropped, err)
	}
	if got := <-running; !strings.HasSuffix(got, "||interrupted") {
		t.Errorf(`interrupted: %q, want "||interrupted" at its end`, got)
	}
	if got := <-gone; got != "||cancelled before its turn" {
		t.Errorf(`one that was taken back: %q, want "||cancelled before its turn"`, got)
	}
	is("one that was sent", sent, "You said: go on")
	is("one that was changed", changed, "You said: right")
	is("afterwards", follow(user("still here?")), "You said: still here?")
}

// TestSteer: a prompt that comes into a turn is part of it.
func TestSteer(t *testing.T) {
	h := startHosted(t, newRigWith(t, obey, lean))
	p := h.provide(h.s, "tests")
	turn, err := h.s.Turn(h.r.ctx, user(`call:hang {"x":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	<-p.hanging
	steered, err := h.s.Turn(h.r.ctx,
		gateway.Prompt{Text: "the other way", Mode: adminapi.ModeImmediate})
	if err != nil {
		t.Fatal(err)
	}
	close(p.release)
	said, _, end := answerOf(h.r.ctx, turn)
	if said, _, end := answerOf(h.r.ctx, steered); said != "You said: the other way" ||
		!errors.Is(end, gateway.ErrTurnEnded) {
		t.Errorf(
			`the prompt that steers: %q %v, want "You said: the other way" and %v`,
			said, end, gateway.ErrTurnEnded,
		)
	}
	if !strings.HasSuffix(said, "You said: the other way") ||
		!errors.Is(end, gateway.ErrTurnEnded) {
		t.Errorf(
			"the turn that it came into: %q %v, want \"You said: the other way\" at its end and %v\n%s",
			said, end, gateway.ErrTurnEnded, timeline(h.s),
		)
	}
}

// TestTurnTime: a turn that takes too long is stopped, and the session goes on.
func TestTurnTime(t *testing.T) {
	h := startHosted(t, newRigWith(t, obey, lean, func(o *Options) {
		o.MaxTurnTime = 5 * time.Second
	}))
	h.provide(h.s, "tests")
	_, errs, end := turnOf(h.r.ctx, h.s, user(`call:hang {"x":"1"}`))
	if len(errs) != 1 ||
		!strings.Contains(errs[0],
			"it took longer than 5s (max_turn_time in [copilot] of tapgw.toml)") {
		t.Errorf("errors %q, end %v, want one that it took longer than max_turn_time", errs, end)
	}
	said, errs, end := turnOf(h.r.ctx, h.s, user("hello"))
	if said != "You said: hello" || len(errs) > 0 || !errors.Is(end, gateway.ErrTurnEnded) {
		t.Errorf(`afterwards: %q %q %v, want "You said: hello", none and %v`, said, errs, end,
			gateway.ErrTurnEnded)
	}
}

// TestTurnStorm has ten sessions at work at once, with tools, injects and
// interrupts: each turn gets its own answer and no other, and none is lost.
func TestTurnStorm(t *testing.T) {
	const sessions, turns = 10, 1000
	h := newHosted(t, newRigWith(t, obey, lean))
	var storm sync.WaitGroup
	for n := range sessions {
		name := fmt.Sprintf("session%d", n)
		s := h.start(name)
		p := h.provide(s, "p"+name)
		storm.Go(func() { h.weather(s, p, name, turns/sessions) })
	}
	storm.Wait()
}

// weather is one session's part of the storm.
func (h *hosted) weather(s *gateway.Session, p *provider, name string, turns int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	check := func(n int, pr gateway.Prompt, want, wantEnd string) {
		said, errs, end := turnOf(ctx, s, pr)
		if said != want || fmt.Sprint(end) != wantEnd || len(errs) > 0 {
			h.t.Errorf("%s turn %d: %q ended %q, want %q, %q (%q)", name, n, said, end, want,
				wantEnd, errs)
		}
	}
	whole := gateway.ErrTurnEnded.Error()
	for n := 0; n < turns && ctx.Err() == nil && !h.t.Failed(); n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		switch n % 5 {
		case 0:
			check(n, user("say "+id), "You said: say "+id, whole)
		case 1, 2:
			check(n, user(fmt.Sprintf(`call:say {"x":%q}`, id)), fmt.Sprintf(`{"x":%q}`, id), whole)
		case 3: // beside what a provider injects
			if _, err := s.Push(ctx, "p"+name, &protocol.Push{
				Stream: "news", Level: protocol.LevelInject, Event: "news for " + id,
			}); err != nil {
				h.t.Errorf("%s: %v", id, err)
			}
			check(n, user("say "+id), "You said: say "+id, whole)
		case 4: // interrupted, with one behind it
			var both sync.WaitGroup
			both.Go(func() {
				check(n, user(fmt.Sprintf(`call:hang {"x":%q}`, id)), "", "interrupted")
			})
			select {
			case <-p.hanging:
			case <-ctx.Done():
				h.t.Errorf("%s: its tool was not called, want one call\n%s", id, timeline(s))
			}
			behind, err := s.Turn(ctx, user("behind "+id))
			if err != nil {
				h.t.Errorf("%s: %v", id, err)
				return
			}
			if _, err := s.Interrupt(ctx, "the storm"); err != nil {
				h.t.Errorf("%s: %v", id, err)
			}
			if said, _, end := answerOf(ctx, behind); said != "You said: behind "+id ||
				fmt.Sprint(end) != whole {
				h.t.Errorf("%s: one behind it said %q and ended %v, want its own answer and %q", id,
					said, end, whole)
			}
			behind.Close()
			both.Wait()
		}
	}
	if ctx.Err() != nil {
		h.t.Errorf("%s: the turns did not end in time, want all of them\n%s", name, timeline(s))
	}
}
