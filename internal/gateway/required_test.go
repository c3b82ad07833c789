package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// guard is a provider in process that answers each gate.check with deny, and calls with "done". Its
// reader handles one frame after the other.
type guard struct {
	conn   *Conn
	frames chan []byte
	gone   chan struct{}
	said   chan protocol.Message // answers to hello
}

func (p *guard) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.GateCheck:
		p.frames <- protocol.Append(nil,
			&protocol.GateResult{CallID: m.CallID, Decision: protocol.DecisionDeny,
				Reason: "guarded"})
	case *protocol.ToolCall:
		p.frames <- protocol.Append(nil,
			&protocol.ToolResult{ID: m.ID, Data: protocol.Raw(`"done"`)})
	case *protocol.HelloAck, *protocol.Error:
		p.said <- m
	}
}

func (p *guard) Flush() {}

func (p *guard) Close(protocol.CloseCode, string) {}

func (p *guard) read() {
	for {
		select {
		case frame := <-p.frames:
			p.conn.Receive(frame)
		case <-p.gone:
			return
		}
	}
}

// killed ends its connection.
func (p *guard) killed() {
	close(p.gone)
	p.conn.Closed()
}

// guarded is a gateway that requires the provider guard of a file.
type guarded struct {
	t    *testing.T
	g    *Gateway
	pass *Pass
}

const awayReason = "provider guard is required here and is not connected: it was killed"

func newGuarded(t *testing.T) *guarded {
	g := New(Options{})
	t.Cleanup(func() { g.Drain(context.Background()) })
	x := &guarded{t: t, g: g}
	x.require(true)
	x.pass = g.Issue(PassSpec{Trust: TrustProject, All: true, Name: "guard", Owner: "/p"})
	return x
}

func (x *guarded) require(is bool) {
	x.g.ExpectProviders([]ExpectedProvider{{
		Name: "guard", Says: "Guard", Owner: "/p", Required: is,
		Match: func(v adminapi.Session) bool { return v.Label != "free" },
		Why:   func(string) string { return "it was killed" },
	}})
}

func (x *guarded) session(id, label string, hooks bool) *Session {
	x.t.Helper()
	s, err := x.g.Register(SessionSpec{ID: id, Label: label, CWD: "/c"},
		HostInfo{Kind: "test", Send: true, LiveTools: true, Hooks: hooks}, quietHost{})
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// join connects the guard, which gates the tool shell and has the tool own.
func (x *guarded) join() *guard {
	x.t.Helper()
	return x.hello(x.pass.Token(), "guard", "all")
}

func (x *guarded) hello(token, name, session string) *guard {
	p := &guard{frames: make(chan []byte, 100), gone: make(chan struct{}),
		said: make(chan protocol.Message, 100)}
	p.conn = x.g.Connect(p, ConnOptions{})
	x.t.Cleanup(func() {
		select {
		case <-p.gone:
		default:
			p.killed()
		}
	})
	go p.read()
	p.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, token)
	p.frames <- fmt.Appendf(nil, `{"type":"hello","protocolVersion":2,"session":%q,"name":%q,
		"tools":[{"name":"own","description":"d","parameters":{}}],
		"hooks":{"onPreToolUse":[{"match":{"tool":"shell"},"action":"gate","gateId":"g"}]}}`, session, name)
	if m := <-p.said; m.MessageType() != protocol.TypeHelloAck {
		x.t.Errorf("%s is not bound: %v", name, m)
	}
	return p
}

// timed returns what a function takes.
func timed[T any](f func() T) (T, time.Duration) {
	begun := time.Now()
	v := f()
	return v, time.Since(begun)
}

func (x *guarded) decide(s *Session, tool string) (Decision, time.Duration) {
	return timed(func() Decision { return s.PreToolUse(x.t.Context(), tool, protocol.Raw(`{}`)) })
}

// later runs a function after a time.
func later(d time.Duration, f func()) {
	go func() {
		<-time.After(d)
		f()
	}()
}

func messagesOf(s *Session) (texts []string) {
	lines, _ := s.Timeline(0)
	for _, l := range lines {
		texts = append(texts, l.Message)
	}
	return texts
}

// Calls of a session wait for a required provider from the session's first moment on, and whenever
// it is away.
func TestRequiredProviderIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", true)
		if v := s.View(); !slices.Equal(v.WaitsFor, []string{"guard"}) || v.State != "idle" {
			t.Errorf("the session is %s and waits for %q, want idle and guard", v.State, v.WaitsFor)
		}
		// Nobody knows its rules yet, so that all calls wait, and are denied.
		d, took := x.decide(s, "read")
		if !d.Deny || d.Reason != awayReason || d.By != "provider guard" ||
			took != protocol.RequiredTimeout {
			t.Errorf("a call without it: %+v after %s, want a denial with %q after %s", d, took,
				awayReason, protocol.RequiredTimeout)
		}
		joined := make(chan *guard, 10)
		later(time.Second, func() { joined <- x.join() })
		if d, took := x.decide(s, "read"); d.Deny || took != time.Second {
			t.Errorf("a call until it joins: %+v after %s, want it allowed after 1s", d, took)
		}
		if d, took := x.decide(s, "shell"); d.Reason != "guarded" || took != 0 {
			t.Errorf("a gated call: %+v after %s, want its denial at once", d, took)
		}
		// It is killed: what it has no rule about goes on at once.
		(<-joined).killed()
		if d, took := x.decide(s, "read"); d.Deny || took != 0 {
			t.Errorf("a call without a rule: %+v after %s, want it allowed at once", d, took)
		}
		later(3*time.Second, func() { x.join() })
		if d, took := x.decide(s, "shell"); d.Reason != "guarded" || took != 3*time.Second {
			t.Errorf("a gated call while it is away: %+v after %s, want its denial after 3s", d,
				took)
		}
		if v := s.View(); v.WaitsFor != nil {
			t.Errorf("the session waits for %q, want nobody", v.WaitsFor)
		}
		for _, want := range []string{
			"read waits for provider guard, which is required here and is not connected",
			"provider guard denied read: " + awayReason,
			"read waited 1s for provider guard",
			"shell waited 3s for provider guard",
		} {
			if got := messagesOf(s); !slices.Contains(got, want) {
				t.Errorf("the timeline has %q, want %q in it", got, want)
			}
		}
		gates := x.g.Diagnostics().Gates
		if i := slices.IndexFunc(gates, func(n adminapi.GateNote) bool {
			return n.Reason == awayReason
		}); i < 0 ||
			gates[i].Provider != "guard" || gates[i].Decision != protocol.DecisionDeny {
			t.Errorf("the decisions are %+v, want the denial among them", gates)
		}
	})
}

// A provider of all sessions that has not said session.ready is away, in that session.
func TestRequiredProviderIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		x.session("s1", "l", true)
		p := x.join()
		s := x.session("s2", "l", true)
		if d, took := x.decide(s, "read"); d.Deny || took != 0 {
			t.Errorf(
				"a call without a rule of the last hello: %+v after %s, want it allowed at once", d,
				took)
		}
		later(time.Second, func() {
			p.frames <- []byte(`{"type":"session.ready","sessionId":"s2"}`)
		})
		if d, took := x.decide(s, "shell"); d.Reason != "guarded" || took != time.Second {
			t.Errorf("a gated call: %+v after %s, want its denial after 1s", d, took)
		}
	})
}

// Rules that it registered after its hello count, too.
func TestRequiredRulesAreTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", true)
		p := x.join()
		p.frames <- []byte(
			`{"type":"hooks.update","onPreToolUse":[{"match":{"tool":"edit"},"action":"deny"}]}`)
		synctest.Wait()
		p.killed()
		if d, took := x.decide(s, "shell"); d.Deny || took != 0 {
			t.Errorf("a call of its former rule: %+v after %s, want it allowed at once", d, took)
		}
		if d, took := x.decide(s, "edit"); d.Reason != awayReason ||
			took != protocol.RequiredTimeout {
			t.Errorf("a call of its rule: %+v after %s, want a denial after %s", d, took,
				protocol.RequiredTimeout)
		}
		// A session that begins then knows them as well.
		if d, took := x.decide(x.session("s2", "l", true), "shell"); d.Deny || took != 0 {
			t.Errorf("in a new session: %+v after %s, want it allowed at once", d, took)
		}
		// One that ended before it registered any may have wanted a rule about every call.
		p = x.join()
		p.frames <- []byte(`{"type":"hooks.update","onPreToolUse":[]}`)
		synctest.Wait()
		p.killed()
		if d, took := x.decide(s, "shell"); d.Reason != awayReason ||
			took != protocol.RequiredTimeout {
			t.Errorf("without any rule: %+v after %s, want a denial after %s", d, took,
				protocol.RequiredTimeout)
		}
	})
}

// Only the provider of the file opens the gate: nobody else who has its name does.
func TestRequiredProviderIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", true)
		x.hello(x.g.InstanceToken(), "guard", "s1")
		if d, _ := x.decide(s, "read"); d.Reason != awayReason {
			t.Errorf("with another of its name: %+v, want a denial", d)
		}
	})
}

// Where the session's host asks no gates, the gateway does, for the tools of all providers.
func TestRequiredHoldsCallsOfTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", false)
		other := connectWith(x.g, x.g.InstanceToken())
		t.Cleanup(other.conn.Closed)
		other.conn.Receive(
			[]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"other","tools":[` +
				`{"name":"shell","description":"d","parameters":{}},` +
				`{"name":"quick","description":"d","parameters":{},"timeout":1500}]}`))
		call := func(c Call) (Outcome, time.Duration) {
			return timed(func() Outcome { return s.CallTool(t.Context(), c) })
		}
		for name, test := range map[string]struct {
			call Call
			took time.Duration
		}{
			"no limit":        {Call{Name: "shell"}, protocol.RequiredTimeout},
			"the tool's":      {Call{Name: "quick"}, 1500 * time.Millisecond},
			"the caller's":    {Call{Name: "shell", Timeout: time.Second}, time.Second},
			"an unknown tool": {Call{Name: "own"}, protocol.RequiredTimeout},
		} {
			o, took := call(test.call)
			if o.ErrorCode != protocol.CodeDenied || o.Error != awayReason || took != test.took {
				t.Errorf("%s: %s after %s, want DENIED after %s", name, o.Text(), took, test.took)
			}
		}
		// An interrupt ends the wait.
		later(time.Second, s.CancelCalls)
		if o, took := call(Call{Name: "shell"}); o.ErrorCode != protocol.CodeCancelled ||
			took != time.Second {
			t.Errorf("an interrupted call: %s after %s, want CANCELLED after 1s", o.Text(), took)
		}
		joined := make(chan *guard, 10)
		later(time.Second, func() { joined <- x.join() })
		if o, took := call(Call{Name: "shell"}); !strings.Contains(o.Error, "guarded") ||
			took != time.Second {
			t.Errorf("a gated call: %s after %s, want its denial after 1s", o.Text(), took)
		}
		// Its own tool comes back with it.
		(<-joined).killed()
		later(time.Second, func() { joined <- x.join() })
		if o, took := call(Call{Name: "own"}); o.Text() != "done" || took != time.Second {
			t.Errorf("its own tool: %s after %s, want done after 1s", o.Text(), took)
		}
		if o, took := call(Call{Name: "nothing"}); o.ErrorCode != protocol.CodeNotFound ||
			took != 0 {
			t.Errorf("a tool that nobody has: %s after %s, want NOT_FOUND at once", o.Text(), took)
		}
	})
}

// Waits for a required provider end with the turn, the session and the caller; a rule that denies
// waits for nobody.
func TestRequiredWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", true)
		later(time.Second, s.CancelCalls)
		d, took := x.decide(s, "read")
		if !d.Deny || !strings.Contains(d.Reason, "interrupted") || took != time.Second {
			t.Errorf("interrupted: %+v after %s, want a denial after 1s", d, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		later(time.Second, cancel)
		if d := s.PreToolUse(ctx, "read", nil); !d.Deny {
			t.Errorf("the caller has left: %+v, want a denial", d)
		}
		other := connectWith(x.g, x.g.InstanceToken())
		t.Cleanup(other.conn.Closed)
		other.conn.Receive(
			[]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"other",` +
				`"hooks":{"onPreToolUse":[{"match":{"tool":"read"},"action":"deny","reason":"never"}]}}`))
		if d, took := x.decide(s, "read"); d.Reason != "never" || took != 0 {
			t.Errorf("a call that a rule denies: %+v after %s, want that denial at once", d, took)
		}
		later(time.Second, func() { _ = s.Stop(context.Background(), "test") })
		if d, took := x.decide(s, "edit"); !d.Deny || took != time.Second {
			t.Errorf("the session ends: %+v after %s, want a denial after 1s", d, took)
		}
	})
}

// A file that is written, changed or removed while sessions run counts at once, and so does a new
// label.
func TestRequiredChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s, free := x.session("s1", "l", true), x.session("s2", "free", true)
		if d, took := x.decide(free, "read"); d.Deny || took != 0 {
			t.Errorf("a session that the file is not for: %+v after %s, want it allowed at once", d,
				took)
		}
		free.Update("l", "")
		if d, _ := x.decide(free, "read"); d.Reason != awayReason {
			t.Errorf("with a label that the file is for: %+v, want a denial", d)
		}
		later(time.Second, func() { x.require(false) })
		if d, took := x.decide(s, "read"); d.Deny || took != time.Second {
			t.Errorf("until it is not required: %+v after %s, want it allowed after 1s", d, took)
		}
		x.require(true)
		if d, _ := x.decide(s, "read"); d.Reason != awayReason {
			t.Errorf("required again: %+v, want a denial", d)
		}
		x.g.ExpectProviders(nil)
		if d, took := x.decide(s, "read"); d.Deny || took != 0 {
			t.Errorf("without the file: %+v after %s, want it allowed at once", d, took)
		}
	})
}

// A host that has hooks off gets them on before a required provider counts, and a session that
// can't have them ends.
func TestRequiredNeedsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		if s := x.session("s1", "l", true); !s.NeedsHooks() {
			t.Error("a new session needs no hooks, want them from its first prompt on")
		}
		if s := x.session("s2", "free", true); s.NeedsHooks() {
			t.Error("a session that the file is not for needs hooks, want none")
		}
	})
}

// A provider that flaps keeps no call for longer than it may wait in all.
func TestRequiredFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		s := x.session("s1", "l", true)
		ctx, stop := context.WithCancel(t.Context())
		var flapping = make(chan struct{})
		go func() {
			defer close(flapping)
			for ctx.Err() == nil {
				<-time.After(time.Second)
				p := x.join()
				p.killed()
			}
		}()
		const most = protocol.RequiredTimeout + protocol.GateTimeout
		if d, took := x.decide(s, "shell"); !d.Deny || took > most {
			t.Errorf("%+v after %s, want a denial within %s", d, took, most)
		}
		stop()
		<-flapping
	})
}

// promptsHost tells when it got prompts.
type promptsHost struct {
	quietHost
	got chan time.Time
}

func (h promptsHost) Send(context.Context, Prompt) error {
	h.got <- time.Now()
	return nil
}

// A prompt waits for providers whose tools were there a moment ago, two seconds at most, and for no
// others.
func TestPromptWaitsForTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newGuarded(t)
		x.require(false)
		n := 0
		session := func() (*Session, promptsHost) {
			n++
			h := promptsHost{got: make(chan time.Time, 10)}
			s, err := x.g.Register(SessionSpec{ID: fmt.Sprint("s", n), CWD: "/c"},
				HostInfo{Kind: "test", Send: true, LiveTools: true}, h)
			if err != nil {
				t.Fatal(err)
			}
			return s, h
		}
		prompt := func(s *Session, h promptsHost) time.Duration {
			begun := time.Now()
			if _, err := s.Prompt(t.Context(), Prompt{Text: "hi"}); err != nil {
				t.Fatal(err)
			}
			took := (<-h.got).Sub(begun)
			s.Idle()
			return took
		}
		s, h := session()
		if took := prompt(s, h); took != 0 {
			t.Errorf("nobody knows its tools: the prompt waited %s, want 0s", took)
		}
		p := x.join()
		s2, h2 := session()
		later(time.Second, func() {
			p.frames <- []byte(`{"type":"session.ready","sessionId":"s2"}`)
		})
		if took := prompt(s2, h2); took != time.Second {
			t.Errorf("a new session: the prompt waited %s, want 1s", took)
		}
		p.killed()
		if took := prompt(s, h); took != promptHold {
			t.Errorf("it was killed: the prompt waited %s, want %s", took, promptHold)
		}
		if took := prompt(s, h); took != 0 {
			t.Errorf("it is away for longer: the prompt waited %s, want 0s", took)
		}
		_, took := timed(func() string { return s2.UserPrompt(t.Context(), "hi", "") })
		if took != 0 {
			t.Errorf("it is away for longer: a host's prompt waited %s, want 0s", took)
		}
		s3, _ := session()
		if _, took := timed(func() string {
			return s3.UserPrompt(t.Context(), "hi", "")
		}); took != promptHold {
			t.Errorf("a new session: a host's prompt waited %s, want %s", took, promptHold)
		}
	})
}
