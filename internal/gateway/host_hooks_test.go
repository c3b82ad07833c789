package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/protocol"
)

// hookHost asks hooks from when it is told that it needs to. It is used by one
// goroutine at a time.
type hookHost struct {
	quietHost
	needed      int
	err         error
	interrupted int
	then        func(s *Session) // called when it needs hooks
	s           *Session
}

func (h *hookHost) EnableHooks(context.Context) error {
	h.needed++
	if h.then != nil {
		h.then(h.s)
	}
	return h.err
}

func (h *hookHost) Interrupt(context.Context, string) ([]string, error) {
	h.interrupted++
	return nil, nil
}

func (h *hookHost) register(t *testing.T, g *Gateway, id string) {
	t.Helper()
	s, err := g.Register(SessionSpec{ID: id, CWD: "/c"}, HostInfo{Kind: "test", Send: true, Hooks: true, Interrupt: true, LiveTools: true}, h)
	if err != nil {
		t.Fatal(err)
	}
	h.s = s
}

// acking is a provider that notes the order of what it is told and what its host was.
type acking struct {
	conn *Conn
	h    *hookHost

	mu      sync.Mutex // guards the fields that follow, of which a test reads what it waited for
	needed  []int      // how often the host was told before each ack
	refused []string
	token   string // to come back with
}

func (a *acking) Send(m protocol.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *protocol.HelloAck:
		a.needed, a.token = append(a.needed, a.h.needed), m.ReconnectToken
	case *protocol.Ack:
		a.needed = append(a.needed, a.h.needed)
	case *protocol.Error:
		a.refused = append(a.refused, m.Error())
	}
}

func (a *acking) Flush() {}

func (a *acking) Close(protocol.CloseCode, string) {}

func (g *Gateway) acking(h *hookHost) *acking {
	a := &acking{h: h}
	a.conn = g.Connect(a, ConnOptions{})
	a.conn.ReceiveMessage(&protocol.Auth{Token: g.AdminToken()})
	return a
}

func denial() []protocol.Rule {
	return []protocol.Rule{{Match: protocol.Match{Tool: "*"}, Action: protocol.ActionDeny}}
}

// A host is told to ask before anything is in force that it is to ask about, and is
// not told for what it need not ask about.
func TestHooksAreHadBeforeTheyHold(t *testing.T) {
	version := protocol.Version
	text := "text"
	hello := func(change func(*protocol.Hello)) *protocol.Hello {
		m := &protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1", Tools: []protocol.Tool{{Name: "greet", Description: "d", Parameters: protocol.Raw(greetSchema)}}}
		if change != nil {
			change(m)
		}
		return m
	}
	callback := map[string]*protocol.Transform{"tone": {Action: protocol.TransformCallback}}
	fixed := map[string]*protocol.Transform{"tone": {Action: protocol.TransformAppend, Content: &text}, "guidelines": nil}
	for name, tt := range map[string]struct {
		first, then protocol.Message
		want        bool
	}{
		"tools":                  {hello(nil), nil, false},
		"rules":                  {hello(func(m *protocol.Hello) { m.Hooks = &protocol.Hooks{OnPreToolUse: denial()} }), nil, true},
		"a section by callback":  {hello(func(m *protocol.Hello) { m.Hooks = &protocol.Hooks{Transforms: callback} }), nil, true},
		"a section as it stands": {hello(func(m *protocol.Hello) { m.Hooks = &protocol.Hooks{Transforms: fixed} }), nil, false},
		"context":                {hello(func(m *protocol.Hello) { m.Context = &text }), nil, true},
		"no context":             {hello(func(m *protocol.Hello) { m.Context = new("") }), nil, false},
		"startup context":        {hello(func(m *protocol.Hello) { m.StartupContext = text }), nil, true},
		"in all sessions":        {hello(func(m *protocol.Hello) { m.Session, m.Context = protocol.AllSessions, &text }), nil, true},
		"rules later":            {hello(nil), &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: denial()}, true},
		"no rules later":         {hello(nil), &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: []protocol.Rule{}}, false},
		"sections later":         {hello(nil), &protocol.HooksUpdate{RequestID: "r", Transforms: fixed}, false},
		"callbacks later":        {hello(nil), &protocol.HooksUpdate{RequestID: "r", Transforms: callback}, true},
		"context later":          {hello(nil), &protocol.ContextUpdate{RequestID: "r", Context: &text}, true},
		"no context later":       {hello(nil), &protocol.ContextUpdate{RequestID: "r", Context: new("")}, false},
		"tools later":            {hello(nil), &protocol.ToolsUpdate{RequestID: "r", Tools: hello(nil).Tools}, false},
		"in another hello":       {hello(nil), hello(func(m *protocol.Hello) { m.Context = &text }), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Options{})
			h := &hookHost{}
			h.register(t, g, "s1")
			h.then = func(s *Session) {
				if d := s.PreToolUse(t.Context(), "x", nil); d.Deny || s.UserPrompt(t.Context(), "x", SourceUser) != "" || s.PromptVaries() {
					t.Error("it holds before the host asks")
				}
				if !s.NeedsHooks() {
					t.Error("a prompt that the host is given now would not be asked about")
				}
			}
			p := g.acking(h)
			p.conn.ReceiveMessage(tt.first)
			acks := 1
			if tt.then != nil {
				if h.needed != 0 {
					t.Errorf("the host was told for a hello with tools")
				}
				p.conn.ReceiveMessage(tt.then)
				acks = 2
			}
			want := 0
			if tt.want {
				want = 1
			}
			if len(p.needed) != acks || p.needed[acks-1] != want || h.needed != want || h.s.NeedsHooks() != tt.want {
				t.Errorf("told %d times, before each ack %v; wanted: %v; refused %q", h.needed, p.needed, h.s.NeedsHooks(), p.refused)
			}
			h.then = nil
			p.conn.Closed()
			g.Drain(context.Background())
		})
	}
}

// A provider of all sessions brings what it has into those that come, by its word; one
// that comes back with a reconnect token brings what it had.
func TestHooksOfSessionsToComeAndOfReturns(t *testing.T) {
	g := New(Options{})
	first, second := &hookHost{}, &hookHost{}
	first.register(t, g, "s1")
	p := g.acking(first)
	version := protocol.Version
	p.conn.ReceiveMessage(&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: protocol.AllSessions, Hooks: &protocol.Hooks{OnPreToolUse: denial()}})
	second.register(t, g, "s2")
	if second.needed != 0 {
		t.Error("told before the provider came")
	}
	p.conn.ReceiveMessage(&protocol.SessionReady{SessionID: "s2"})
	if second.needed != 1 || !second.s.NeedsHooks() {
		t.Errorf("the second was told %d times", second.needed)
	}
	p.conn.Closed()
	again := g.acking(first)
	again.conn.ReceiveMessage(&protocol.Hello{Name: "p", ProtocolVersion: &version, ReconnectToken: p.token})
	if first.needed != 2 || second.needed != 2 || len(again.refused) > 0 {
		t.Errorf("on its return: told %d and %d times; refused %q", first.needed, second.needed, again.refused)
	}
	again.conn.Closed()
	g.Drain(context.Background())
}

// Of the user's own hooks those count that the host asks.
func TestOwnHooksAreHadBeforeTheyHold(t *testing.T) {
	for kind, want := range map[HookKind]int{
		HookSessionStart: 1, HookUserPrompt: 1, HookPreToolUse: 1, HookPostToolUse: 1, HookAgentStop: 1, HookError: 0, HookSessionEnd: 0,
	} {
		g := New(Options{})
		h := &hookHost{}
		h.register(t, g, "s1")
		h.then = func(s *Session) {
			if len(s.hooksOn(kind, "x")) > 0 {
				t.Errorf("%s holds before the host asks", kind)
			}
		}
		g.SetHooks([]Hook{{Name: "own", On: kind, Timeout: time.Second, Ask: func(context.Context, []byte) ([]byte, error) { return nil, nil }}})
		if h.needed != want || h.s.NeedsHooks() != (want == 1) {
			t.Errorf("%s: told %d times; wanted: %v", kind, h.needed, h.s.NeedsHooks())
		}
		g.Drain(context.Background())
	}
}

// Where hooks can't be had nothing comes that has to be asked about, and all is as it
// was: the turn goes on, and prompts are given.
func TestHooksCantBeHad(t *testing.T) {
	version, text := protocol.Version, "text"
	ruled := &protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1", Hooks: &protocol.Hooks{OnPreToolUse: denial()}}
	for name, tt := range map[string]struct {
		first, then protocol.Message
		bound       int
	}{
		"hello":          {nil, ruled, 0},
		"another hello":  {&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1"}, ruled, 0}, // a failed rebind leaves nothing bound
		"hooks.update":   {&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1"}, &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: denial()}, 1},
		"context.update": {&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1"}, &protocol.ContextUpdate{RequestID: "r", Context: &text}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Options{})
			h := &hookHost{err: errors.New("it does not listen")}
			h.register(t, g, "s1")
			p := g.acking(h)
			if tt.first != nil {
				p.conn.ReceiveMessage(tt.first)
			}
			acks := len(p.needed)
			p.conn.ReceiveMessage(tt.then)
			if len(p.refused) != 1 || !strings.Contains(p.refused[0], "INTERNAL") || !strings.Contains(p.refused[0], "it does not listen") || len(p.needed) != acks {
				t.Errorf("refused %q, acks %v", p.refused, p.needed)
			}
			if d := h.s.PreToolUse(t.Context(), "x", nil); d.Deny || h.s.UserPrompt(t.Context(), "x", SourceUser) != "" {
				t.Error("what was refused holds")
			}
			if h.interrupted != 0 || h.s.NeedsHooks() || len(h.s.bindings) != tt.bound {
				t.Errorf("interrupted %d times, wants hooks: %v, %d bound", h.interrupted, h.s.NeedsHooks(), len(h.s.bindings))
			}
			if lines, _ := h.s.Timeline(0); !strings.Contains(lines[len(lines)-1].Message+lines[max(0, len(lines)-2)].Message, "hooks and gates can't be asked: it does not listen") {
				t.Errorf("the timeline: %v", lines)
			}
			h.err = nil // it may be tried again
			acks = len(p.needed)
			p.conn.ReceiveMessage(tt.then)
			if len(p.needed) != acks+1 || !h.s.NeedsHooks() {
				t.Errorf("tried again: refused %q, acks %v", p.refused, p.needed)
			}
			p.conn.Closed()
			g.Drain(context.Background())
		})
	}
}

// The user's own hooks hold whatever happens: a session that can't ask them ends.
func TestOwnHooksCantBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		good, bad, worse := &hookHost{}, &hookHost{err: errors.New("it does not listen")}, &hookHost{err: errors.New("it does not listen")}
		bad.register(t, g, "bad")
		good.register(t, g, "good")
		worse.register(t, g, "worse")
		g.SetHooks([]Hook{{Name: "own", On: HookPreToolUse, Timeout: time.Second, Ask: func(context.Context, []byte) ([]byte, error) { return nil, nil }}})
		<-bad.s.Done()
		<-worse.s.Done()
		select {
		case <-good.s.Done():
			t.Error("the session that asks has ended too")
		default:
		}
		if bad.needed != 1 || worse.needed != 1 {
			t.Errorf("waited for %d and %d times: a runtime that hangs takes its time for each", bad.needed, worse.needed)
		}
		if bad.interrupted != 1 || worse.interrupted != 1 || good.interrupted != 0 || len(good.s.hooksOn(HookPreToolUse, "x")) != 1 {
			t.Errorf("interrupted %d and %d times", bad.interrupted, good.interrupted)
		}
		g.Drain(context.Background())
	})
}
