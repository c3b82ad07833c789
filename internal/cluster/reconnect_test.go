package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest/membus"
)

// A provider that comes back while its first connection is still up takes its place everywhere,
// with all updates since its hello.
func TestComesBackBesideFirstConnection(t *testing.T) {
	for name, at := range map[string][]string{
		"bound here and elsewhere": {"a", "b", "c"}, "bound at two others": {"a", "c"},
		"bound at one other": {"a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := membus.New(1 << 20)
				machines := map[string]*machine{}
				var sessions []*gateway.Session
				for _, name := range []string{"a", "b", "c"} {
					machines[name] = newMachine(t, bus, name, nil)
					defer machines[name].close()
				}
				for _, name := range at {
					sessions = append(sessions, machines[name].session("of "+name))
				}
				meet()
				b := machines["b"]
				first := b.connect(b.gateway.AdminToken())
				defer first.conn.Closed()
				first.send(fmt.Sprintf(helloTool, "all"))
				token := last[*protocol.HelloAck](first).ReconnectToken
				first.send(
					`{"type":"tools.update","requestId":"u","tools":[{"name":"later","description":"d",` +
						`"parameters":{"type":"object"}}]}`)
				meet()
				second := &provider{t: t}
				second.conn = b.cluster.Connect(second, gateway.ConnOptions{})
				defer second.conn.Closed()
				second.send(fmt.Sprintf(`{"type":"auth","reconnectToken":%q,"name":"gpu"}`, token))
				second.take()
				second.send(`{"type":"hello","name":"gpu","protocolVersion":2}`)
				meet()
				if ack := last[*protocol.HelloAck](second); ack.SessionID != "all" ||
					ack.ReconnectToken == token {
					t.Errorf("bound to %q, want all, with a new token", ack.SessionID)
				}
				if !strings.HasPrefix(first.closed, fmt.Sprint(protocol.CloseTakenOver)) {
					t.Errorf("the first connection: %q, want taken over", first.closed)
				}
				for _, s := range sessions {
					var names []string
					for _, tool := range s.Tools() {
						names = append(names, tool.Name)
					}
					if fmt.Sprint(names) != "[later]" {
						t.Errorf("session %s has the tools %v, want the later one", s.View().Label,
							names)
						continue
					}
					second.take()
					done := call(s, "later")
					c := last[*protocol.ToolCall](second)
					second.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":1}`, c.ID))
					if o := <-done; o.Failed() {
						t.Errorf("a call in session %s: %+v, want the answer", s.View().Label, o)
					}
				}
			})
		})
	}
}

// A provider that has the token of a connection that is up, and authenticates as another one, takes
// over nothing.
func TestTokenOfAnotherTakesNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := membus.New(1 << 20)
		here, there := newMachine(t, bus, "a", nil), newMachine(t, bus, "b", nil)
		defer here.close()
		defer there.close()
		s := here.session("work")
		meet()
		first := there.connect(there.gateway.AdminToken())
		defer first.conn.Closed()
		first.send(fmt.Sprintf(helloTool, "all"))
		token := last[*protocol.HelloAck](first).ReconnectToken
		other := there.connect(there.gateway.InstanceToken())
		defer other.conn.Closed()
		other.send(
			fmt.Sprintf(`{"type":"hello","name":"gpu","protocolVersion":2,"reconnectToken":%q}`,
				token))
		meet()
		if first.closed != "" {
			t.Errorf("the first connection: %q, want open", first.closed)
		}
		first.take()
		done := call(s, "t")
		c := last[*protocol.ToolCall](first)
		first.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":1}`, c.ID))
		if o := <-done; o.Failed() {
			t.Errorf("the call: %+v, want the answer of the first connection", o)
		}
	})
}
