package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"tapgw/internal/protocol"
)

// listHost stores the lists that it is given.
type listHost struct {
	quietHost
	lists chan int // how many tools each has
}

func (h listHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	h.lists <- len(tools)
	return nil
}

// A host that caches its prompt gets its tools again when a transform has changed,
// even if the tools are the same. Another host does not.
func TestRefreshForPrompt(t *testing.T) {
	for _, caches := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{})
			defer g.Drain(context.Background())
			h := listHost{lists: make(chan int, 100)}
			s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"},
				HostInfo{Kind: "test", LiveTools: true, CachesPrompt: caches}, h)
			if err != nil {
				t.Fatal(err)
			}
			e := &echo{}
			e.conn = g.Connect(e, ConnOptions{})
			defer e.conn.Closed()
			e.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
			version := protocol.Version
			e.conn.Receive(protocol.Append(nil,
				&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1",
					Tools: []protocol.Tool{{Name: "greet", Description: "d",
						Parameters: protocol.Raw(greetSchema)}}}))
			text := "CI is passing."
			for _, step := range []struct {
				what   string
				change protocol.Message
				again  bool // changes the prompt's sections
				varies bool
			}{
				{"a section", &protocol.HooksUpdate{Transforms: map[string]*protocol.Transform{
					"tone": {Action: protocol.TransformAppend, Content: new("Be kind.")}}}, true,
					false},
				{"rules", &protocol.HooksUpdate{OnPreToolUse: []protocol.Rule{
					{Match: protocol.Match{Tool: "greet"}, Action: protocol.ActionDeny}}}, false,
					false},
				{"context", &protocol.ContextUpdate{Context: &text}, false, false},
				{"a callback", &protocol.HooksUpdate{Transforms: map[string]*protocol.Transform{
					"guidelines": {Action: protocol.TransformCallback}}}, true, true},
				{"no callback",
					&protocol.HooksUpdate{
						Transforms: map[string]*protocol.Transform{"guidelines": nil},
					}, true, false},
			} {
				synctest.Wait()
				for len(h.lists) > 0 {
					<-h.lists
				}
				e.conn.Receive(protocol.Append(nil, step.change))
				synctest.Wait()
				want := 0
				if step.again && caches {
					want = 1
				}
				if got := len(h.lists); got != want {
					t.Errorf("caches %v: after %s the host got %d lists, want %d", caches,
						step.what, got, want)
				}
				if s.PromptVaries() != step.varies {
					t.Errorf("after %s the prompt varies: %v, want %v", step.what, s.PromptVaries(),
						step.varies)
				}
			}
		})
	}
}

// slowHost takes some time for each list.
type slowHost struct {
	quietHost
	lists chan []Tool
	take  chan struct{} // lets one through
}

func (h slowHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	h.lists <- tools
	<-h.take
	return nil
}

// A host that takes tools live gets the tools of a hello at once. Changes that come
// while it takes a list are in the next list, together.
func TestLiveHostHearsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		h := slowHost{lists: make(chan []Tool, 100), take: make(chan struct{})}
		_, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"},
			HostInfo{Kind: "test", LiveTools: true}, h)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for i := range 10 {
			connectProvider(
				t,
				g,
				fmt.Sprintf(
					`"name":"p%d","tools":[{"name":"t%d","description":"d","parameters":{}}]`, i,
					i),
			)
			synctest.Wait()
		}
		first := <-h.lists
		h.take <- struct{}{}
		rest := <-h.lists
		h.take <- struct{}{}
		synctest.Wait()
		if len(first) != 1 || len(rest) != 10 || len(h.lists) != 0 || time.Since(begun) != 0 {
			t.Errorf(
				"after %s lists of %d and %d tools, and %d more lists, want 1, 10 and 0 at once",
				time.Since(begun), len(first), len(rest), len(h.lists),
			)
		}
		close(h.take)
		g.Drain(context.Background())
	})
}

// A host may read a list for as long as it likes: it stays as it is while the lists that follow are
// made, also when the host refuses some of them.
func TestHostKeepsItsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		h := &keepingHost{}
		_, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"},
			HostInfo{Kind: "test", LiveTools: true}, h)
		if err != nil {
			t.Fatal(err)
		}
		join := func(i int) *Conn {
			c, _ := connectProvider(t, g,
				fmt.Sprintf(
					`"name":"p%d","tools":[{"name":"t%[1]d","description":"d","parameters":{}}]`,
					i))
			return c
		}
		joined := []*Conn{}
		for i := range 8 {
			joined = append(joined, join(i))
			synctest.Wait()
		}
		joined[7].Closed() // the next list is the beginning of the one before
		synctest.Wait()
		join(8)
		synctest.Wait()
		h.refuses.Store(true)
		refused := join(9)
		synctest.Wait()
		h.refuses.Store(false)
		refused.Closed()
		synctest.Wait()
		join(10) // the next list goes on from the one before the refused one
		synctest.Wait()
		joined[1].Closed()
		synctest.Wait()
		join(11)
		synctest.Wait()
		g.Drain(context.Background())
		if len(h.lists) < 12 {
			t.Fatalf("the host got %d lists, want at least 12", len(h.lists))
		}
		for i, list := range h.lists {
			for j, tool := range list {
				if got := h.names[i][j]; tool.Name != got {
					t.Errorf("tool %d of list %d is %s now, was %s", j, i, tool.Name, got)
				}
			}
			if cap(list) > len(list) {
				t.Errorf("the host may append to list %d where the next one begins", i)
			}
		}
		want := []string{"t0", "t2", "t3", "t4", "t5", "t6", "t8", "t10", "t11"}
		if got := h.names[len(h.names)-1]; !slices.Equal(got, want) {
			t.Errorf("the last list has %q, want %q", got, want)
		}
	})
}

// keepingHost keeps all lists, and what they had when they came.
type keepingHost struct {
	quietHost
	lists   [][]Tool
	names   [][]string
	refuses atomic.Bool
}

func (h *keepingHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	names := []string{}
	for _, t := range tools {
		names = append(names, t.Name)
	}
	h.lists, h.names = append(h.lists, tools), append(h.names, names)
	if h.refuses.Load() {
		return errors.New("not now")
	}
	return nil
}

// A tool that stays as it is with another provider is told to the host, which says who has it.
func TestToolsOwnerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		h := slowHost{lists: make(chan []Tool, 10), take: make(chan struct{})}
		close(h.take)
		if _, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"},
			h); err != nil {
			t.Fatal(err)
		}
		const tools = `"tools":[{"name":"a","description":"d","parameters":{}}]`
		c, _ := connectProvider(t, g, `"name":"before",`+tools)
		sleep(protocol.RefreshMax)
		c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"after",` +
			tools + `}`))
		sleep(protocol.RefreshMax)
		for _, want := range []string{"before", "after"} {
			select {
			case list := <-h.lists:
				if len(list) != 1 || list[0].Provider != want {
					t.Errorf("the host was given %+v, want a tool of provider %s", list, want)
				}
			default:
				t.Errorf("the host was given no list with a tool of provider %s", want)
			}
		}
		g.Drain(context.Background())
	})
}

// A provider that leaves takes the memory of its tools with it, also where the list only got
// shorter.
func TestLeftToolsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		_, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"},
			HostInfo{Kind: "test", LiveTools: true}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		connectProvider(t, g,
			`"name":"first","tools":[{"name":"a","description":"d","parameters":{}}]`)
		synctest.Wait()
		c, _ := connectProvider(t, g,
			`"name":"last","tools":[{"name":"b","description":"d","parameters":{}}]`)
		synctest.Wait()
		s, _ := g.Session("s1")
		if len(s.sentTools) != 2 {
			t.Fatalf("the host has %d tools, want 2", len(s.sentTools))
		}
		left := weak.Make(&s.sentTools[1])
		c.Closed()
		synctest.Wait()
		runtime.GC()
		if left.Value() != nil {
			t.Error("the tool of a provider that left is in memory, want it free")
		}
		g.Drain(context.Background())
	})
}
