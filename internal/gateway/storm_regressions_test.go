package gateway

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/protocol"
)

// Each of these tests shows one fault that TestCallsEndOnce once found.

// connectProvider connects a provider to session s1; its hello has more fields.
func connectProvider(t *testing.T, g *Gateway, hello string) (*Conn, *inbox) {
	t.Helper()
	p := &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}
	c := g.Connect(p, ConnOptions{})
	t.Cleanup(c.Closed)
	c.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, g.InstanceToken()))
	c.Receive(fmt.Appendf(nil, `{"type":"hello","protocolVersion":2,"session":"s1",%s}`, hello))
	return c, p
}

// toolCalls are the calls that came since the last time.
func (p *inbox) toolCalls() (list []*protocol.ToolCall) {
	for _, m := range p.drain() {
		if call, ok := m.(*protocol.ToolCall); ok {
			list = append(list, call)
		}
	}
	return list
}

func stormSession(t *testing.T) (*Gateway, *Session) {
	t.Helper()
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"}, HostInfo{Kind: "storm"},
		quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	return g, s
}

// A gate that joins while a call waits for its slot is asked about the call. The call
// still ends at its own timeout.
func TestQueuedCallKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := stormSession(t)
		c, p := connectProvider(
			t,
			g,
			`"name":"p","concurrency":{"max":1},"tools":[{"name":"t","description":"d","parameters":{},"timeout":100}]`,
		)
		s.BeginCall(Call{Name: "t"}, func(Outcome) {})
		first := p.toolCalls()
		begun := time.Now()
		done := make(chan Outcome, 1)
		s.BeginCall(Call{Name: "t"}, func(o Outcome) { done <- o })
		connectProvider(
			t,
			g,
			`"name":"guard","hooks":{"onPreToolUse":[{"match":{"tool":"t"},"action":"gate","gateId":"g"}]}`,
		)
		sleep(50 * time.Millisecond)
		c.Receive(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":1}`, first[0].ID))
		if o := <-done; o.ErrorCode != protocol.CodeTimeout ||
			time.Since(begun) != 100*time.Millisecond {
			t.Errorf("after %s: %s, want %v after 100 ms", time.Since(begun), o.Text(),
				protocol.CodeTimeout)
		}
		if more := p.toolCalls(); len(more) != 0 {
			t.Errorf("it ran: %+v, want none", more)
		}
	})
}

// A retry goes to another instance, even if the one that failed has offered the tool
// again.
func TestRetryGoesElsewhere(t *testing.T) {
	const tools = `"tools":[{"name":"t","description":"d","parameters":{}}]`
	g, s := stormSession(t)
	conns, peers := map[string]*Conn{}, map[string]*inbox{}
	for _, instance := range []string{"a", "b"} {
		hello := fmt.Sprintf(`"name":"p","instance":%q,%s`, instance, tools)
		conns[instance], peers[instance] = connectProvider(t, g, hello)
	}
	done := make(chan Outcome, 1)
	s.BeginCall(Call{Name: "t"}, func(o Outcome) { done <- o })
	fail := func(instance string, call *protocol.ToolCall) {
		conns[instance].Receive(fmt.Appendf(nil, `{"type":"tools.update",%s}`, tools))
		conns[instance].Receive(fmt.Appendf(nil,
			`{"type":"tool.result","id":%q,"error":"no","errorCode":"INTERNAL","retryable":true}`,
			call.ID))
	}
	first, second := "a", "b"
	calls := peers[first].toolCalls()
	if len(calls) == 0 {
		first, second = second, first
		calls = peers[first].toolCalls()
	}
	fail(first, calls[0])
	if again := peers[first].toolCalls(); len(again) != 0 {
		t.Fatal("the call is tried again at the instance where it failed, want the other one")
	}
	if calls = peers[second].toolCalls(); len(calls) != 1 {
		t.Fatalf("the other instance got %d calls, want one", len(calls))
	}
	fail(second, calls[0])
	if o := <-done; o.ErrorCode != protocol.CodeInternal {
		t.Errorf("the call ended with %s, want %v", o.Text(), protocol.CodeInternal)
	}
}

// Calls that ended while they waited for a slot are not among the remembered ends of
// the provider, which never got them.
func TestUnsentCallsAreNotRemembered(t *testing.T) {
	g, s := stormSession(t)
	c, p := connectProvider(
		t,
		g,
		`"name":"p","concurrency":{"max":1},"tools":[{"name":"t","description":"d","parameters":{}}]`,
	)
	s.BeginCall(Call{Name: "t"}, func(Outcome) {})
	result := fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":1}`, p.toolCalls()[0].ID)
	c.Receive(result)
	s.BeginCall(Call{Name: "t"}, func(Outcome) {}) // has the slot
	for range protocol.MaxFinishedCalls {
		s.BeginCall(Call{Name: "t"}, func(Outcome) {}).Cancel("given up")
	}
	p.drain()
	c.Receive(result)
	for _, m := range p.drain() {
		t.Errorf("a late result is answered with %+v, want no answer", m)
	}
}

// A gate is asked once about a call, even if a rule about other calls joins meanwhile.
// A rule about the call is asked too.
func TestGateIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := stormSession(t)
		_, tool := connectProvider(t, g,
			`"name":"p","tools":[{"name":"t","description":"d","parameters":{}}]`)
		rule := func(tool string) string {
			return fmt.Sprintf(
				`"hooks":{"onPreToolUse":[{"match":{"tool":%q},"action":"gate","gateId":"g"}]}`,
				tool)
		}
		checks := func(c *Conn, p *inbox) (n int) {
			for _, m := range p.drain() {
				if check, ok := m.(*protocol.GateCheck); ok {
					n++
					c.Receive(fmt.Appendf(nil,
						`{"type":"gate.result","callId":%q,"decision":"allow"}`, check.CallID))
				}
			}
			synctest.Wait()
			return n
		}
		c, p := connectProvider(t, g, `"name":"guard",`+rule("t"))
		s.BeginCall(Call{Name: "t"}, func(Outcome) {})
		allowed := make(chan Decision, 1)
		go func() { allowed <- s.PreToolUse(t.Context(), "t", nil) }()
		synctest.Wait()
		connectProvider(t, g, `"name":"bystander",`+rule("other"))
		if n := checks(c, p); n != 2 {
			t.Errorf("the gate is asked %d times by two, want 2", n)
		}
		if n := checks(c, p); n != 0 {
			t.Errorf("the gate is asked again %d times, want 0", n)
		}
		if d := <-allowed; d.Deny {
			t.Errorf("the gate denied: %s, want it allowed", d.Reason)
		}
		if n := len(tool.toolCalls()); n != 1 {
			t.Errorf("it ran %d times, want 1", n)
		}

		s.BeginCall(Call{Name: "t"}, func(Outcome) {})
		synctest.Wait()
		second, peer := connectProvider(t, g, `"name":"second",`+rule("t"))
		if n := checks(c, p); n != 1 {
			t.Errorf("the gate is asked %d times, want 1", n)
		}
		if n := checks(second, peer); n != 1 {
			t.Errorf("the gate that joined is asked %d times, want 1", n)
		}
	})
}

// A rule about a provider's tools holds for a call that is dispatched to it after it
// waited for another provider.
func TestQueuedCallMeetsTheRulesOfItsNewProvider(t *testing.T) {
	const tools = `"tools":[{"name":"t","description":"d","parameters":{}}]`
	g, s := stormSession(t)
	first, p := connectProvider(t, g, `"name":"first","concurrency":{"max":1},`+tools)
	connectProvider(t, g,
		`"name":"guard","hooks":{"onPreToolUse":[{"match":{"provider":"second"},"action":"deny"}]}`)
	s.BeginCall(Call{Name: "t"}, func(Outcome) {})
	done := make(chan Outcome, 1)
	s.BeginCall(Call{Name: "t"}, func(o Outcome) { done <- o })
	first.Receive([]byte(`{"type":"tools.update","tools":[]}`))
	_, other := connectProvider(t, g, `"name":"second",`+tools)
	first.Receive(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":1}`, p.toolCalls()[0].ID))
	if calls := other.toolCalls(); len(calls) != 0 {
		t.Fatalf("the denied call ran: %v, want none", calls)
	}
	if o := <-done; o.ErrorCode != protocol.CodeDenied {
		t.Errorf("the call ended with %s, want %v", o.Text(), protocol.CodeDenied)
	}
}

// A hello that lowers the limit holds from then on: slots of before it that get free go to no
// waiting call until fewer are used than it allows. One that raises the limit frees slots for all
// that wait, when the next call ends.
func TestHelloChangesTheLimit(t *testing.T) {
	hello := func(n int) string {
		return fmt.Sprintf(`"name":"p","concurrency":{"max":%d,"scope":"provider"},`+
			`"tools":[{"name":"t","description":"d","parameters":{}}]`, n)
	}
	g, s := stormSession(t)
	c, p := connectProvider(t, g, hello(2))
	answer := func(call *protocol.ToolCall) {
		c.Receive(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":1}`, call.ID))
	}
	begin := func(n int) {
		for range n {
			s.BeginCall(Call{Name: "t"}, func(Outcome) {})
		}
	}
	begin(2)
	before := p.toolCalls()
	c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1",` + hello(1) + `}`))
	begin(4)
	answer(before[0])
	if calls := p.toolCalls(); len(calls) != 0 {
		t.Fatalf("%d calls begin while the one slot is used, want none", len(calls))
	}
	answer(before[1])
	calls := p.toolCalls()
	if len(calls) != 1 {
		t.Fatalf("%d calls begin, want the one that the limit allows", len(calls))
	}
	c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1",` + hello(3) + `}`))
	begin(5) // those of before were cancelled; two of these get a slot at once
	if begun := p.toolCalls(); len(begun) != 2 {
		t.Fatalf("%d calls begin beside the cancelled one, want 2", len(begun))
	}
	answer(calls[0])
	if begun := p.toolCalls(); len(begun) != 1 {
		t.Errorf("%d calls begin with the freed slot, want 1", len(begun))
	}
}

// callsOnError is a provider whose session makes a call as soon as the provider has read an error.
type callsOnError struct {
	inbox
	begin func()
}

func (p *callsOnError) Flush() {
	for _, m := range p.drain() {
		if _, failed := m.(*protocol.Error); failed {
			p.begin()
		}
	}
}

// A call that begins when the provider knows of its mistake is not the one that the mistake may
// have answered.
func TestMistakeSparesLaterCalls(t *testing.T) {
	for name, mistake := range map[string]string{
		"unknown id": `{"type":"tool.result","id":"never issued","data":1}`,
		"broken":     `{"type":"tool.result","id":`,
		"malformed":  `{"type":"tool.result","data":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			g, s := stormSession(t)
			p := &callsOnError{inbox: inbox{arrived: make(chan struct{}, 1),
				closed: make(chan struct{})}}
			ended := make(chan Outcome, 1)
			p.begin = func() { s.BeginCall(Call{Name: "t"}, func(o Outcome) { ended <- o }) }
			c := g.Connect(p, ConnOptions{})
			c.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, g.InstanceToken()))
			c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"p",` +
				`"tools":[{"name":"t","description":"d","parameters":{}}]}`))
			c.Receive([]byte(mistake))
			select {
			case o := <-ended:
				t.Fatalf("the later call ended with %s %q, want it to run", o.ErrorCode, o.Error)
			default:
			}
			c.Closed()
			if o := <-ended; o.ErrorCode != protocol.CodeDisconnected {
				t.Errorf("the call ended with %s %q, want %s", o.ErrorCode, o.Error,
					protocol.CodeDisconnected)
			}
		})
	}
}
