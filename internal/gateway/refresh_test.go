package gateway

import (
	"context"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// listHost counts the lists that it is given.
type listHost struct {
	quietHost
	lists chan int // how many tools each has
}

func (h listHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	h.lists <- len(tools)
	return nil
}

// A host that keeps what it was told of the prompt gets its tools again when
// that changed, though they are the same; another host does not.
func TestRefreshForPrompt(t *testing.T) {
	for _, caches := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{})
			defer g.Drain(context.Background())
			h := listHost{lists: make(chan int, 100)}
			s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test", Transforms: true, LiveTools: true, CachesPrompt: caches}, h)
			if err != nil {
				t.Fatal(err)
			}
			e := &echo{}
			e.conn = g.Connect(e, ConnOptions{})
			defer e.conn.Closed()
			e.conn.Deliver(&protocol.Auth{Token: g.InstanceToken()})
			version := protocol.Version
			e.conn.Deliver(&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1", Tools: []protocol.Tool{{Name: "greet", Description: "d", Parameters: protocol.Raw(greetSchema)}}})
			text := "CI is passing."
			for _, step := range []struct {
				what   string
				change protocol.Message
				again  bool // changes the prompt's sections
				varies bool
			}{
				{"a section", &protocol.HooksUpdate{Transforms: map[string]*protocol.Transform{"tone": {Action: protocol.TransformAppend, Content: new("Be kind.")}}}, true, false},
				{"rules", &protocol.HooksUpdate{OnPreToolUse: []protocol.Rule{{Match: protocol.Match{Tool: "greet"}, Action: protocol.ActionDeny}}}, false, false},
				{"context", &protocol.ContextUpdate{Context: &text}, false, false},
				{"a callback", &protocol.HooksUpdate{Transforms: map[string]*protocol.Transform{"guidelines": {Action: protocol.TransformCallback}}}, true, true},
				{"no callback", &protocol.HooksUpdate{Transforms: map[string]*protocol.Transform{"guidelines": nil}}, true, false},
			} {
				synctest.Wait()
				for len(h.lists) > 0 {
					<-h.lists
				}
				e.conn.Deliver(step.change)
				synctest.Wait()
				want := 0
				if step.again && caches {
					want = 1
				}
				if got := len(h.lists); got != want {
					t.Errorf("caches %v: after %s the host got %d lists, want %d", caches, step.what, got, want)
				}
				if s.PromptVaries() != step.varies {
					t.Errorf("after %s the prompt varies: %v", step.what, s.PromptVaries())
				}
			}
		})
	}
}
