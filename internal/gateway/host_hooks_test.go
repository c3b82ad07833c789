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

// hookHost is a host with hooks, for one goroutine at a time.
type hookHost struct {
	quietHost
	enabled     int   // calls of EnableHooks
	err         error // of EnableHooks
	interrupted int
	then        func(s *Session) // called in EnableHooks
	s           *Session
}

func (h *hookHost) EnableHooks(context.Context) error {
	h.enabled++
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
	s, err := g.Register(SessionSpec{ID: id, CWD: "/c"},
		HostInfo{Kind: "test", Send: true, Hooks: true, Interrupt: true, LiveTools: true,
			EnableHooks: h.EnableHooks}, h)
	if err != nil {
		t.Fatal(err)
	}
	h.s = s
}

// ackedProvider is a provider that notes how often its host had enabled hooks at each ack.
type ackedProvider struct {
	conn *Conn
	h    *hookHost

	mu      sync.Mutex // guards the following fields while messages may come
	enabled []int      // hookHost.enabled at each ack
	refused []string
	token   string // its reconnect token
}

func (a *ackedProvider) Send(m protocol.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *protocol.HelloAck:
		a.enabled, a.token = append(a.enabled, a.h.enabled), m.ReconnectToken
	case *protocol.Ack:
		a.enabled = append(a.enabled, a.h.enabled)
	case *protocol.Error:
		a.refused = append(a.refused, m.Error())
	}
}

func (a *ackedProvider) Flush() {}

func (a *ackedProvider) Close(protocol.CloseCode, string) {}

func (g *Gateway) ackedProvider(h *hookHost) *ackedProvider {
	a := &ackedProvider{h: h}
	a.conn = g.Connect(a, ConnOptions{})
	a.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.AdminToken()}))
	return a
}

func denial() []protocol.Rule {
	return []protocol.Rule{{Match: protocol.Match{Tool: "*"}, Action: protocol.ActionDeny}}
}

// A host enables its hooks before anything is bound that needs them, and only then.
func TestHooksAreEnabledBeforeBinding(t *testing.T) {
	version := protocol.Version
	text := "text"
	hello := func(change func(*protocol.Hello)) *protocol.Hello {
		m := &protocol.Hello{
			Name:            "p",
			ProtocolVersion: &version,
			Session:         "s1",
			Tools: []protocol.Tool{{Name: "greet", Description: "d",
				Parameters: protocol.Raw(greetSchema)}},
		}
		if change != nil {
			change(m)
		}
		return m
	}
	withHooks := func(hooks protocol.Hooks) *protocol.Hello {
		return hello(func(m *protocol.Hello) { m.Hooks = &hooks })
	}
	callback := map[string]*protocol.Transform{"tone": {Action: protocol.TransformCallback}}
	fixed := map[string]*protocol.Transform{
		"tone":       {Action: protocol.TransformAppend, Content: &text},
		"guidelines": nil,
	}
	for name, tt := range map[string]struct {
		first, then protocol.Message
		want        bool
	}{
		"tools":                  {hello(nil), nil, false},
		"rules":                  {withHooks(protocol.Hooks{OnPreToolUse: denial()}), nil, true},
		"a section by callback":  {withHooks(protocol.Hooks{Transforms: callback}), nil, true},
		"a section as it stands": {withHooks(protocol.Hooks{Transforms: fixed}), nil, false},
		"context":                {hello(func(m *protocol.Hello) { m.Context = &text }), nil, true},
		"no context": {hello(func(m *protocol.Hello) {
			m.Context = new("")
		}), nil, false},
		"startup context": {hello(func(m *protocol.Hello) { m.StartupContext = text }), nil, true},
		"in all sessions": {
			hello(func(m *protocol.Hello) { m.Session, m.Context = protocol.AllSessions, &text }),
			nil, true,
		},
		"rules later": {hello(nil), &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: denial()},
			true},
		"no rules later": {
			hello(nil), &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: []protocol.Rule{}},
			false,
		},
		"sections later": {hello(nil), &protocol.HooksUpdate{RequestID: "r", Transforms: fixed},
			false},
		"callbacks later": {hello(nil),
			&protocol.HooksUpdate{RequestID: "r", Transforms: callback}, true},
		"context later": {hello(nil), &protocol.ContextUpdate{RequestID: "r", Context: &text},
			true},
		"no context later": {hello(nil), &protocol.ContextUpdate{RequestID: "r", Context: new("")},
			false},
		"tools later": {hello(nil),
			&protocol.ToolsUpdate{RequestID: "r", Tools: hello(nil).Tools}, false},
		"in another hello": {hello(nil), hello(func(m *protocol.Hello) {
			m.Context = &text
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Options{})
			h := &hookHost{}
			h.register(t, g, "s1")
			h.then = func(s *Session) {
				if d := s.PreToolUse(t.Context(), "x", nil); d.Deny ||
					s.UserPrompt(t.Context(), "x", SourceUser) != "" ||
					s.PromptVaries() {
					t.Error(
						"the provider is bound before the host's hooks are enabled, want no rule, context or transform until then",
					)
				}
				if !s.NeedsHooks() {
					t.Error("NeedsHooks() = false while hooks are being enabled, want true")
				}
			}
			p := g.ackedProvider(h)
			p.conn.Receive(protocol.Append(nil, tt.first))
			acks := 1
			if tt.then != nil {
				if h.enabled != 0 {
					t.Errorf(
						"a hello with tools alone enabled the host's hooks %d times, want none",
						h.enabled)
				}
				p.conn.Receive(protocol.Append(nil, tt.then))
				acks = 2
			}
			want := 0
			if tt.want {
				want = 1
			}
			if len(p.enabled) != acks || p.enabled[acks-1] != want || h.enabled != want ||
				h.s.NeedsHooks() != tt.want {
				t.Errorf(
					"enabled %d times, at each ack %v; NeedsHooks() = %v; refused %q, want %d acks, %v, %d and %v",
					h.enabled, p.enabled, h.s.NeedsHooks(), p.refused, acks, want, want, tt.want,
				)
			}
			h.then = nil
			p.conn.Closed()
			g.Drain(context.Background())
		})
	}
}

// A provider of all sessions needs hooks in a new session once it says session.ready. One
// that reconnects needs them for the rules that it had.
func TestHooksOfNewSessionsAndReconnects(t *testing.T) {
	g := New(Options{})
	first, second := &hookHost{}, &hookHost{}
	first.register(t, g, "s1")
	p := g.ackedProvider(first)
	version := protocol.Version
	p.conn.Receive(protocol.Append(nil, &protocol.Hello{
		Name: "p", ProtocolVersion: &version, Session: protocol.AllSessions,
		Hooks: &protocol.Hooks{OnPreToolUse: denial()},
	}))
	second.register(t, g, "s2")
	if second.enabled != 0 {
		t.Errorf("the hooks were enabled %d times before session.ready, want none", second.enabled)
	}
	p.conn.Receive(protocol.Append(nil, &protocol.SessionReady{SessionID: "s2"}))
	if second.enabled != 1 || !second.s.NeedsHooks() {
		t.Errorf("the second host's hooks were enabled %d times, want once", second.enabled)
	}
	p.conn.Closed()
	again := g.ackedProvider(first)
	again.conn.Receive(
		protocol.Append(nil, &protocol.Hello{Name: "p", ProtocolVersion: &version,
			ReconnectToken: p.token}),
	)
	if first.enabled != 2 || second.enabled != 2 || len(again.refused) > 0 {
		t.Errorf(
			"after the reconnect: enabled %d and %d times, want 2 and 2; refused %q",
			first.enabled, second.enabled, again.refused,
		)
	}
	again.conn.Closed()
	g.Drain(context.Background())
}

// silentHook is a user hook that answers nothing.
func silentHook(kind HookKind) Hook {
	return Hook{Name: "own", On: kind, Timeout: time.Second,
		Ask: func(context.Context, []byte) ([]byte, error) {
			return nil, nil
		}}
}

// User hooks that the host calls enable its hooks before they are set.
func TestUserHooksEnableHostHooks(t *testing.T) {
	for kind, want := range map[HookKind]int{
		HookSessionStart: 1, HookUserPrompt: 1, HookPreToolUse: 1, HookPostToolUse: 1,
		HookAgentStop: 1, HookError: 0, HookSessionEnd: 0,
	} {
		g := New(Options{})
		h := &hookHost{}
		h.register(t, g, "s1")
		h.then = func(s *Session) {
			if len(s.hooksOn(kind, "x")) > 0 {
				t.Errorf("%s is set before the host's hooks are enabled, want it set after", kind)
			}
		}
		g.SetHooks([]Hook{silentHook(kind)})
		if h.enabled != want || h.s.NeedsHooks() != (want == 1) {
			t.Errorf(
				"%s: enabled %d times; NeedsHooks() = %v, want %d and %v",
				kind, h.enabled, h.s.NeedsHooks(), want, want == 1,
			)
		}
		g.Drain(context.Background())
	}
}

// When a host can't enable its hooks, nothing that needs them is bound and all else goes on.
func TestHooksCantBeEnabled(t *testing.T) {
	version, text := protocol.Version, "text"
	hello := &protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1"}
	ruled := &protocol.Hello{
		Name:            "p",
		ProtocolVersion: &version,
		Session:         "s1",
		Hooks:           &protocol.Hooks{OnPreToolUse: denial()},
	}
	for name, tt := range map[string]struct {
		first, then protocol.Message
		bound       int
	}{
		"hello":          {nil, ruled, 0},
		"another hello":  {hello, ruled, 0}, // a failed rebind leaves nothing bound
		"hooks.update":   {hello, &protocol.HooksUpdate{RequestID: "r", OnPreToolUse: denial()}, 1},
		"context.update": {hello, &protocol.ContextUpdate{RequestID: "r", Context: &text}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Options{})
			h := &hookHost{err: errors.New("it does not listen")}
			h.register(t, g, "s1")
			p := g.ackedProvider(h)
			if tt.first != nil {
				p.conn.Receive(protocol.Append(nil, tt.first))
			}
			acks := len(p.enabled)
			p.conn.Receive(protocol.Append(nil, tt.then))
			if len(p.refused) != 1 || !strings.Contains(p.refused[0], "INTERNAL") ||
				!strings.Contains(p.refused[0], "it does not listen") ||
				len(p.enabled) != acks {
				t.Errorf(
					`refused %q, acks %v, want one INTERNAL with "it does not listen" and %d acks`,
					p.refused, p.enabled, acks,
				)
			}
			if d := h.s.PreToolUse(t.Context(), "x", nil); d.Deny ||
				h.s.UserPrompt(t.Context(), "x", SourceUser) != "" {
				t.Error("the refused rules or context have effect, want none")
			}
			if h.interrupted != 0 || h.s.NeedsHooks() || len(h.s.bindings) != tt.bound {
				t.Errorf(
					"interrupted %d times, NeedsHooks() = %v, %d bound, want 0, false and %d",
					h.interrupted, h.s.NeedsHooks(), len(h.s.bindings), tt.bound,
				)
			}
			if lines, _ := h.s.Timeline(0); !strings.Contains(
				lines[len(lines)-1].Message+lines[max(0, len(lines)-2)].Message,
				"hooks and gates can't be asked: it does not listen") {
				t.Errorf(
					`the timeline: %v, want "hooks and gates can't be asked: it does not listen" in it`, lines)
			}
			h.err = nil // it may be tried again
			acks = len(p.enabled)
			p.conn.Receive(protocol.Append(nil, tt.then))
			if len(p.enabled) != acks+1 || !h.s.NeedsHooks() {
				t.Errorf("tried again: refused %q, acks %v, want %d acks and hooks", p.refused,
					p.enabled, acks+1)
			}
			p.conn.Closed()
			g.Drain(context.Background())
		})
	}
}

// A session whose host can't enable its hooks ends when user hooks are set.
func TestUserHooksCantBeEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		deaf := errors.New("it does not listen")
		good, bad, worse := &hookHost{}, &hookHost{err: deaf}, &hookHost{err: deaf}
		bad.register(t, g, "bad")
		good.register(t, g, "good")
		worse.register(t, g, "worse")
		g.SetHooks([]Hook{silentHook(HookPreToolUse)})
		<-bad.s.Done()
		<-worse.s.Done()
		select {
		case <-good.s.Done():
			t.Error("the session that asks has ended too, want it to live")
		default:
		}
		if bad.enabled != 1 || worse.enabled != 1 {
			t.Errorf("waited for %d and %d times, want once for each runtime that hangs",
				bad.enabled, worse.enabled)
		}
		if bad.interrupted != 1 || worse.interrupted != 1 || good.interrupted != 0 ||
			len(good.s.hooksOn(HookPreToolUse, "x")) != 1 {
			t.Errorf(
				"interrupted %d and %d times, want 1 and 0, and one that is bound",
				bad.interrupted, good.interrupted,
			)
		}
		g.Drain(context.Background())
	})
}
