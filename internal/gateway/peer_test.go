package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// echo answers every call at once, from within Send's caller.
type echo struct {
	conn    *Conn
	pending []string
	acks    int
	closed  protocol.CloseCode
}

func (e *echo) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		e.pending = append(e.pending, m.ID)
	case *protocol.HelloAck:
		e.acks++
	}
}

func (e *echo) Flush() {
	ids := e.pending
	e.pending = e.pending[:0]
	for _, id := range ids {
		e.conn.Receive(protocol.Append(nil,
			&protocol.ToolResult{ID: id, Data: protocol.Raw(`"Hello, Alice!"`)}))
	}
}

func (e *echo) Close(code protocol.CloseCode, _ string) { e.closed = code }

const greetSchema = `{"type":"object","properties":{"name":{"type":"string"},"loud":{"type":"boolean"},"times":{"type":"integer","minimum":1}},"required":["name"]}`

// joined is a session with a provider in process that has the tool greet.
func joined(tb testing.TB) (*Gateway, *Session, *echo) {
	tb.Helper()
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"},
		HostInfo{Kind: "test", Send: true, LiveTools: true, Interrupt: true}, quietHost{})
	if err != nil {
		tb.Fatal(err)
	}
	e := &echo{}
	e.conn = g.Connect(e, ConnOptions{})
	e.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
	version := protocol.Version
	e.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: "echo", ProtocolVersion: &version,
		Session: "s1",
		Tools: []protocol.Tool{{Name: "greet", Description: "d",
			Parameters: protocol.Raw(greetSchema)}}}))
	if e.acks != 1 {
		tb.Fatalf("the provider got %d acks, want one: it is bound", e.acks)
	}
	tb.Cleanup(func() { e.conn.Closed(); g.Drain(context.Background()) })
	return g, s, e
}

// BenchmarkCallTool is the routing core: find the tool, check the arguments, send
// the call, take the result, wake the caller.
func BenchmarkCallTool(b *testing.B) {
	args := protocol.Raw(`{"name":"Alice","loud":true,"times":3}`)
	for _, way := range []string{"begin", "call"} {
		b.Run(way, func(b *testing.B) {
			_, s, _ := joined(b)
			c := Call{Name: "greet", Args: args}
			var o Outcome
			b.ReportAllocs()
			for b.Loop() {
				if way == "begin" {
					s.BeginCall(c, func(got Outcome) { o = got })
				} else {
					o = s.CallTool(b.Context(), c)
				}
				if o.Failed() {
					b.Fatalf("the call: %s, want success", o.Text())
				}
			}
		})
	}
}

// A session's end, however often it is asked for and by whom, is one; each waits
// for it or for its own context.
func TestStopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, e := joined(t)
		results := make(chan error, 10)
		for range 4 {
			go func() { results <- s.Stop(context.Background(), "test") }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Stop(ctx, "impatient"); err == nil || time.Since(start) != time.Second {
			t.Errorf("an impatient one: %v after %s, want an error and %s", err, time.Since(start),
				time.Second)
		}
		e.conn.Receive(protocol.Append(nil, &protocol.ShutdownReady{}))
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		s.Ended("again")
		<-s.Done()
		if err := s.Stop(context.Background(), "later"); err != nil {
			t.Error(err)
		}
	})
}

// What comes to a session that has ended is refused or ends at once; nobody waits
// for ever.
func TestAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _ := joined(t)
		go func() { _ = s.Stop(context.Background(), "test") }()
		<-s.Done()
		inject := &protocol.Push{Level: protocol.LevelInject, Event: "e"}
		if _, err := s.Push(t.Context(), "p", inject); err == nil {
			t.Error("an ended session takes a push, want an error")
		}
		if _, err := s.PushAndWait(t.Context(), "p", inject); err == nil {
			t.Error("an ended session takes a push to wait for, want an error")
		}
		if _, err := s.Prompt(t.Context(), Prompt{Text: "x"}); err == nil {
			t.Error("an ended session takes a prompt, want an error")
		}
		o := s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)})
		if o.ErrorCode != protocol.CodeNotFound {
			t.Errorf("a call: %s, want %v", o.Text(), protocol.CodeNotFound)
		}
		if err := s.WaitTimeline(t.Context(), 1000); err == nil {
			t.Error("waiting for an ended session's timeline: no error, want one")
		}
		s.Idle()
		s.Busy()
		s.Event(Event{UserMessage: "x"})
		_, _ = s.Interrupt(t.Context(), "x")
	})
}

// An inject that is queued when its session ends is settled.
func TestQueuedInjectSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, e := joined(t)
		s.Busy()
		receipt := make(chan Receipt)
		go func() {
			r, err := s.PushAndWait(context.Background(), "p",
				&protocol.Push{Level: protocol.LevelInject, Event: "e"})
			if err != nil {
				t.Error(err)
			}
			receipt <- r
		}()
		synctest.Wait()
		go func() { _ = s.Stop(context.Background(), "test") }()
		synctest.Wait()
		e.conn.Receive(protocol.Append(nil, &protocol.ShutdownReady{}))
		if r := <-receipt; r.Fate != adminapi.FateDropped || !strings.Contains(r.Reason, "ended") {
			t.Errorf("the receipt is %+v, want %v with ended in its reason", r,
				adminapi.FateDropped)
		}
	})
}

// PushAndWait returns when the turn that the push began has ended.
func TestPushAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _ := joined(t)
		done := make(chan Receipt)
		go func() {
			r, err := s.PushAndWait(context.Background(), "p",
				&protocol.Push{Level: protocol.LevelInject, Event: "e"})
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the push returned before its turn ended, want it to wait")
		default:
		}
		s.Busy()
		sleep(time.Minute)
		s.Idle()
		if r := <-done; r.Fate != adminapi.FateDelivered {
			t.Errorf("the receipt is %+v, want %v", r, adminapi.FateDelivered)
		}
		// One that begins no turn does not wait.
		surface := &protocol.Push{Level: protocol.LevelSurface, Event: "e"}
		if r, err := s.PushAndWait(context.Background(), "p", surface); err != nil ||
			r.Fate != adminapi.FateSurfaced {
			t.Errorf("the receipt is %+v, %v, want %v", r, err, adminapi.FateSurfaced)
		}
		keep := &protocol.Push{Level: protocol.LevelKeep, Event: "e"}
		if _, err := s.Push(context.Background(), "_bad", keep); err == nil ||
			!strings.Contains(err.Error(), "provider: ") {
			t.Errorf(`a bad name: %v, want an error and "provider: " in it`, err)
		}
		if _, err := s.Push(context.Background(), "p",
			&protocol.Push{Level: protocol.LevelKeep}); err == nil ||
			!strings.Contains(err.Error(), "push.event: ") {
			t.Errorf(`no event: %v, want an error and "push.event: " in it`, err)
		}
	})
}

// The schemas that calls use are kept compiled, and not those of many more tools.
func TestSchemaCache(t *testing.T) {
	var c schemaCache
	tools := make([]*tool, 3*schemasKept)
	for i := range tools {
		tools[i] = &tool{
			Tool: protocol.Tool{Parameters: protocol.Raw(
				fmt.Sprintf(`{"properties":{"p%d":{"type":"integer"}}}`, i))},
		}
	}
	for i, x := range tools {
		s, err := c.get(x)
		if err != nil {
			t.Fatal(err)
		}
		if s.Check(fmt.Appendf(nil, `{"p%d":"x"}`, i)) == nil {
			t.Fatalf("tool %d has another's schema, want its own", i)
		}
		again, err := c.get(x)
		if err != nil || again != s {
			t.Fatalf("tool %d was compiled twice in a row, want the same schema", i)
		}
	}
	if n := len(c.young) + len(c.old); n > 2*schemasKept {
		t.Errorf("%d schemas are kept, want at most %d", n, 2*schemasKept)
	}
	first, err := c.get(tools[0])
	if err != nil || first == nil {
		t.Errorf("one that was forgotten: %v, want it compiled again", err)
	}
	if _, err := c.get(
		&tool{Tool: protocol.Tool{Parameters: protocol.Raw(`{"type":7}`)}}); err == nil {
		t.Error("a schema of type 7 compiled, want an error")
	}
}

// A late connection, after Drain has looked, is closed.
func TestConnectWhileDraining(t *testing.T) {
	g, _, e := joined(t)
	e.conn.Closed()
	g.Drain(context.Background())
	late := &echo{}
	late.conn = g.Connect(late, ConnOptions{})
	if late.closed != protocol.CloseGoingAway {
		t.Errorf("closed with %d, want %d", late.closed, protocol.CloseGoingAway)
	}
	if _, err := g.Register(SessionSpec{}, HostInfo{}, quietHost{}); err == nil ||
		!strings.Contains(err.Error(), "INVALID_STATE") {
		t.Errorf(`a late session: %v, want an error and "INVALID_STATE" in it`, err)
	}
	if g.InUse() {
		t.Error("a gateway without a session is in use, want not")
	}
}

// A provider of all sessions may change its tools per session and then of all; a
// change that one session takes and the common list does not leaves both whole.
func TestUpdateOfAllKeepsTheLimit(t *testing.T) {
	g, _, _ := joined(t)
	var faults []*protocol.Error
	peer := &listening{hear: func(m protocol.Message) {
		if e, ok := m.(*protocol.Error); ok {
			faults = append(faults, e)
		}
	}}
	c := g.Connect(peer, ConnOptions{})
	defer c.Closed()
	defs := func(from, n int) []protocol.Tool {
		list := make([]protocol.Tool, n)
		for i := range list {
			list[i] = protocol.Tool{Name: fmt.Sprintf("x%d", from+i), Description: "d",
				Parameters: protocol.Raw("{}")}
		}
		return list
	}
	version := protocol.Version
	c.Receive(protocol.Append(nil, &protocol.Auth{Token: g.AdminToken()}))
	c.Receive(
		protocol.Append(
			nil,
			&protocol.Hello{Name: "all", ProtocolVersion: &version, Session: "all",
				Tools: defs(0, 100)},
		),
	)
	c.Receive(protocol.Append(nil, &protocol.ToolsUpdate{SessionID: "s1", Tools: defs(0, 1)}))
	if len(faults) != 0 {
		t.Fatalf("faults: %v, want none", faults)
	}
	// One more fits the session's list of one, not the common one of 100.
	c.Receive(protocol.Append(nil, &protocol.ToolsUpdate{Tools: defs(100, 1), Remove: []string{},
		RequestID: "r"}))
	if len(faults) != 1 || faults[0].Code != protocol.CodePayloadTooLarge ||
		faults[0].RequestID != "r" {
		t.Fatalf("faults: %v, want one %v for request r", faults, protocol.CodePayloadTooLarge)
	}
	c.Receive(protocol.Append(nil, &protocol.ToolsUpdate{Tools: defs(100, 1),
		Remove: []string{"x0"}, RequestID: "r"}))
	if len(faults) != 1 {
		t.Fatalf("more faults: %v, want one", faults[1:])
	}
	if n := len(g.Providers()); n != 2 || g.Providers()[1].Tools != 100 {
		t.Errorf("the providers are %+v, want one with 100 tools", g.Providers())
	}
}

// listening is a peer that hears.
type listening struct{ hear func(protocol.Message) }

func (l *listening) Send(m protocol.Message)        { l.hear(m) }
func (*listening) Flush()                           {}
func (*listening) Close(protocol.CloseCode, string) {}

// The local session runs calls that prompts ask for.
func TestLocalSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Starters: map[string]Starter{HostLocal: LocalStarter{}}})
		if _, err := g.Start(t.Context(), StartRequest{Host: "nobody"}); err == nil ||
			!strings.Contains(err.Error(), "host: ") {
			t.Errorf(`an unknown host: %v, want an error and "host: " in it`, err)
		}
		if models, err := g.Models(t.Context(), HostLocal); err != nil || len(models) != 1 {
			t.Errorf("models: %v, %v, want one", models, err)
		}
		s, err := g.Start(t.Context(), StartRequest{Host: HostLocal, CWD: "/c"})
		if err != nil {
			t.Fatal(err)
		}
		e := &echo{}
		e.conn = g.Connect(e, ConnOptions{})
		e.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
		version := protocol.Version
		e.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: "echo", ProtocolVersion: &version,
			Session: s.ID(),
			Tools: []protocol.Tool{{Name: "greet", Description: "d",
				Parameters: protocol.Raw(greetSchema)}}}))
		var calls []string
		for _, prompt := range []string{"hello", `call:greet {"name":"Alice"}`,
			`call:greet {"name":1}`,
			`call:greet {"name":`, "call:nothing"} {
			cursor, err := s.Prompt(t.Context(), Prompt{Text: prompt})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			lines, _ := s.Live(cursor)
			for _, l := range lines {
				switch {
				case l.Event.Callback == OnEndToolExecution && l.Event.Error != nil:
					calls = append(calls, l.Event.Error.Code)
				case l.Event.Callback == OnEndToolExecution:
					calls = append(calls, l.Event.Result.Content)
				}
			}
			if last := lines[len(lines)-1]; last.Event.Callback != OnIdle {
				t.Errorf("%s: the last callback is %s, want %s", prompt, last.Event.Callback,
					OnIdle)
			}
		}
		if got := strings.Join(calls,
			"; "); got != "Hello, Alice!; INVALID_ARGUMENTS; INVALID_ARGUMENTS; NOT_FOUND" {
			t.Errorf("calls: %s, want %q", got,
				"Hello, Alice!; INVALID_ARGUMENTS; INVALID_ARGUMENTS; NOT_FOUND")
		}
		e.conn.Closed()
		g.Drain(context.Background())
	})
}
