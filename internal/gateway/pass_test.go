package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// holder is a provider in process that answers calls when it is told to.
type holder struct {
	conn  *Conn
	calls chan *protocol.ToolCall
	errs  []*protocol.Error
	acks  int
	ended bool
}

func (h *holder) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		h.calls <- m
	case *protocol.HelloAck:
		h.acks++
	case *protocol.Error:
		h.errs = append(h.errs, m)
	}
}

func (h *holder) Flush()                           {}
func (h *holder) Close(protocol.CloseCode, string) { h.ended = true }

// connectWith connects a provider with a token.
func connectWith(g *Gateway, token string) *holder {
	h := &holder{calls: make(chan *protocol.ToolCall, 10)}
	h.conn = g.Connect(h, ConnOptions{})
	h.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: token}))
	return h
}

// hello sends a hello with these tools.
func (h *holder) hello(session string, tools ...string) {
	version := protocol.Version
	m := &protocol.Hello{Name: "p", ProtocolVersion: &version, Session: session,
		Tools: []protocol.Tool{}}
	for _, name := range tools {
		m.Tools = append(m.Tools, protocol.Tool{Name: name, Description: "d",
			Parameters: protocol.Raw(`{}`)})
	}
	h.conn.Receive(protocol.Append(nil, m))
}

func toolNames(s *Session) (names string) {
	for _, t := range s.Tools() {
		names += t.Name + " "
	}
	return names
}

func live(t *testing.T, g *Gateway, id string) *Session {
	t.Helper()
	s, err := g.Register(SessionSpec{ID: id, Label: "label-" + id, CWD: "/c"},
		HostInfo{Kind: "test", Send: true, LiveTools: true}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The one that takes another's place has its tools from the step on in which it
// is bound, though they have the same names; a call that is running stays with
// the other, which hears of nothing new.
func TestPassReplaces(t *testing.T) {
	for _, session := range []string{"s1", protocol.AllSessions} {
		t.Run(session, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(Options{})
				s, other := live(t, g, "s1"), live(t, g, "s2")
				defer g.Drain(context.Background())
				spec := PassSpec{Trust: TrustProject, All: session == protocol.AllSessions}
				if !spec.All {
					spec.Session = session
				}
				first := g.Issue(spec)
				old := connectWith(g, first.Token())
				old.hello(session, "a", "b")
				if !first.IsBound() {
					t.Fatal("the first pass: got not bound, want bound")
				}
				result := make(chan Outcome, 1)
				go func() { result <- s.CallTool(context.Background(), Call{Name: "a"}) }()
				call := <-old.calls

				spec.Replaces = []*Pass{first}
				second := g.Issue(spec)
				next := connectWith(g, second.Token())
				next.hello(session, "b", "list_p_x/") // refused: nothing has changed
				if got := toolNames(s); got != "a b " || len(next.errs) != 1 {
					t.Fatalf(`after a refused hello: %q, %v, want "a b " and one error`, got,
						next.errs)
				}
				next.hello(session, "b", "c")
				if !second.IsBound() {
					t.Fatal("the second pass: got not bound, want bound")
				}
				if got := toolNames(s); got != "b c " {
					t.Fatalf(`after the switch: %q (%v), want "b c "`, got, next.errs)
				}
				if err := other.Stop(context.Background(), "test"); err != nil {
					t.Fatal(err)
				}
				drained := make(chan struct{})
				go func() { defer close(drained); first.Retire()(context.Background()) }()
				synctest.Wait()
				select {
				case <-drained:
					t.Fatal("drained with a call in flight, want it to wait for the call")
				default:
				}
				old.conn.Receive(protocol.Append(nil,
					&protocol.ToolResult{ID: call.ID, Data: protocol.Raw(`1`)}))
				if o := <-result; o.Failed() {
					t.Errorf("the call that was running: %s, want success", o.Error)
				}
				<-drained
				old.hello(session, "d") // its time is over
				if got := toolNames(s); got != "b c " {
					t.Errorf(`after the old one tried to come back: %q, want "b c "`, got)
				}
				first.Revoke()
				if !old.ended {
					t.Error("the old connection is there still, want it closed")
				}
				if late := connectWith(g, first.Token()); len(late.errs) != 1 ||
					late.errs[0].Code != protocol.CodeAuthFailed {
					t.Errorf("the old token: %v, want one %v", late.errs, protocol.CodeAuthFailed)
				}
			})
		})
	}
}

func TestPassOpens(t *testing.T) {
	g := New(Options{})
	defer g.Drain(context.Background())
	live(t, g, "s1")
	live(t, g, "s2")
	tests := []struct {
		name    string
		spec    PassSpec
		session string
		code    protocol.Code // "": bound
	}{
		{"its session", PassSpec{Trust: TrustProject, Session: "s1"}, "s1", ""},
		{"another", PassSpec{Trust: TrustProject, Session: "s1"}, "s2",
			protocol.CodeInvalidSession},
		{"all without the grant", PassSpec{Trust: TrustProject}, "all", protocol.CodeUnauthorized},
		{"all", PassSpec{Trust: TrustExternal, All: true}, "all", ""},
		{
			"one that matches",
			PassSpec{Trust: TrustExternal, Match: func(v adminapi.Session) bool {
				return v.Label == "label-s2"
			}},
			"s2",
			"",
		},
		{
			"one that does not",
			PassSpec{Trust: TrustExternal, Match: func(v adminapi.Session) bool {
				return v.Label == "label-s2"
			}},
			"s1",
			protocol.CodeInvalidSession,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := g.Issue(tt.spec)
			h := connectWith(g, p.Token())
			h.hello(tt.session)
			switch {
			case tt.code == "" && (h.acks != 1 || len(h.errs) > 0):
				t.Errorf("not bound: %v, want one ack and no error", h.errs)
			case tt.code != "" && (len(h.errs) != 1 || h.errs[0].Code != tt.code):
				t.Errorf("got %v, want %s", h.errs, tt.code)
			}
			p.Revoke()
			if !h.ended {
				t.Error("the token is revoked and its connection open, want it closed")
			}
			p.Revoke()
		})
	}
}

// What the user's file says of the tools holds whatever the provider says, in its
// hello and later; the provider hears the names that it gave.
func TestToolPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		defer g.Drain(context.Background())
		p := g.Issue(PassSpec{Trust: TrustProject, Session: "s1", Tools: ToolPolicy{
			Allow: []string{"get_*", "long"}, Deny: []string{"*_secret"}, Prefix: "x_",
			Concurrency: 1, Timeout: time.Minute,
		}})
		h := connectWith(g, p.Token())
		h.hello("s1", "get_a", "get_secret", "put_a")
		if got := toolNames(s); got != "x_get_a " {
			t.Fatalf(`has %q (%v), want "x_get_a "`, got, h.errs)
		}
		if ms := s.Tools()[0].TimeoutMs; ms != 60_000 {
			t.Errorf("timeout %d ms, want 60000", ms)
		}
		h.conn.Receive(protocol.Append(nil, &protocol.ToolsUpdate{
			Tools: []protocol.Tool{{Name: "get_b", Description: "d",
				Parameters: protocol.Raw(`{}`)}},
			Remove: []string{"get_a"},
		}))
		if got := toolNames(s); got != "x_get_b " {
			t.Fatalf(`after the update: %q (%v), want "x_get_b "`, got, h.errs)
		}
		results := make(chan Outcome, 2)
		for range 2 {
			go func() { results <- s.CallTool(context.Background(), Call{Name: "x_get_b"}) }()
		}
		synctest.Wait()
		if len(h.calls) != 1 {
			t.Errorf("%d calls at once, want 1", len(h.calls))
		}
		for range 2 {
			c := <-h.calls
			if c.Tool != "get_b" {
				t.Errorf(`called as %q, want "get_b"`, c.Tool)
			}
			h.conn.Receive(protocol.Append(nil,
				&protocol.ToolResult{ID: c.ID, Data: protocol.Raw(`1`)}))
			if o := <-results; o.Failed() {
				t.Errorf("the call: %s, want success", o.Error)
			}
		}
		long := "long" // with the prefix one letter more than names may have
		for len(long) < 63 {
			long += "g"
		}
		p.Revoke() // its name is free then
		p = g.Issue(PassSpec{Trust: TrustProject, Session: "s1", Tools: ToolPolicy{Prefix: "x_"}})
		h = connectWith(g, p.Token())
		h.hello("s1", long)
		if len(h.errs) != 1 || h.errs[0].Code != protocol.CodeToolConflict {
			t.Errorf("a name that is too long: %v, want one %v", h.errs, protocol.CodeToolConflict)
		}
	})
}
