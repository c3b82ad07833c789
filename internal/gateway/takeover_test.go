package gateway

import (
	"context"
	"testing"

	"tapgw/internal/protocol"
)

// tokenKeeper is a provider's end that keeps its last reconnect token.
type tokenKeeper struct{ token string }

// Send implements [Peer].
func (k *tokenKeeper) Send(m protocol.Message) {
	if ack, ok := m.(*protocol.HelloAck); ok {
		k.token = ack.ReconnectToken
	}
}

// Flush implements [Peer].
func (k *tokenKeeper) Flush() {}

// Close implements [Peer].
func (k *tokenKeeper) Close(protocol.CloseCode, string) {}

// A provider that takes its connection over has its tools and gates all the while:
// what is called meanwhile finds the ones or the others.
func TestTakeoverLeavesNoGap(t *testing.T) {
	g := New(Options{})
	s := live(t, g, "s")
	var c *Conn // the newest
	t.Cleanup(func() {
		// or the session would wait for it to clean up
		c.Receive(protocol.Append(nil, &protocol.Goodbye{}))
		_ = s.Stop(context.Background(), "test")
	})
	version := protocol.Version
	k := &tokenKeeper{}
	join := func(reconnect string) {
		c = g.Connect(k, ConnOptions{})
		c.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
		c.Receive(
			protocol.Append(
				nil,
				&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s",
					ReconnectToken: reconnect,
					Tools: []protocol.Tool{{Name: "a", Description: "d",
						Parameters: protocol.Raw(`{}`)}},
					Hooks: &protocol.Hooks{
						OnPreToolUse: []protocol.Rule{
							{Match: protocol.Match{Tool: "a"}, Action: protocol.ActionGate,
								GateID: "g"},
						},
					}},
			),
		)
	}
	join("")
	done, gaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			if r := s.routes.Load(); r.find("a") == nil || len(r.rules) == 0 {
				n++
			}
			select {
			case <-done:
				gaps <- n
				return
			default:
			}
		}
	}()
	was := k.token
	for range 500 {
		join(k.token)
	}
	close(done)
	if n := <-gaps; n > 0 {
		t.Errorf("%d looks found no tool or no gate, want none", n)
	}
	if k.token == was {
		t.Error("the reconnect token is the old one, want a new one: somebody took over")
	}
}
