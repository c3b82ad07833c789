package gateway

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// flushing is a peer that keeps the messages and counts the flushes.
type flushing struct {
	sent    []protocol.Message
	flushes int
}

func (f *flushing) Send(m protocol.Message)        { f.sent = append(f.sent, m) }
func (f *flushing) Flush()                         { f.flushes++ }
func (*flushing) Close(protocol.CloseCode, string) {}

// callIDs are the ids of the calls that were sent.
func (f *flushing) callIDs() (ids []string) {
	for _, m := range f.sent {
		if c, ok := m.(*protocol.ToolCall); ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// A caller's batch puts off the flush of its calls, and a provider's batch that of its results. A
// call that waits for a gate is in no batch when it goes on, and any message of the provider other
// than a result has the results before it sent.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		var p flushing
		var caller, reader Batch
		conn := g.Connect(&p, ConnOptions{Batch: &reader})
		receive := func(m protocol.Message) { conn.Receive(protocol.Append(nil, m)) }
		receive(&protocol.Auth{Token: g.InstanceToken()})
		version := protocol.Version
		tool := func(name string) protocol.Tool {
			return protocol.Tool{Name: name, Description: "d", Parameters: protocol.Raw(`{}`)}
		}
		receive(&protocol.Hello{Name: "p", ProtocolVersion: &version, Session: "s1",
			Tools: []protocol.Tool{tool("plain"), tool("gated")},
			Hooks: &protocol.Hooks{OnPreToolUse: []protocol.Rule{{Action: protocol.ActionGate,
				GateID: "g", Match: protocol.Match{Tool: "gated"}}}}})
		synctest.Wait()
		p.flushes = 0
		var host flushing
		begin := func(tool string) {
			s.BeginCall(Call{Name: tool, Batch: &caller}, func(o Outcome) { o.Batch.Add(&host) })
		}
		wantFlushes := func(when string, p *flushing, want int) {
			t.Helper()
			synctest.Wait()
			if p.flushes != want {
				t.Errorf("%s: got %d flushes, want %d", when, p.flushes, want)
			}
		}
		begin("plain")
		begin("plain")
		wantFlushes("two calls", &p, 0)
		caller.Flush()
		wantFlushes("after the caller's flush", &p, 1)
		for _, id := range p.callIDs() {
			receive(&protocol.ToolResult{ID: id, Data: protocol.Raw(`1`)})
		}
		wantFlushes("two results", &host, 0)
		receive(&protocol.ToolProgress{ID: "late", Message: "m"})
		wantFlushes("a message behind the results", &host, 1)

		begin("gated")
		wantFlushes("a gate", &p, 2)
		i := slices.IndexFunc(p.sent, func(m protocol.Message) bool {
			_, ok := m.(*protocol.GateCheck)
			return ok
		})
		receive(&protocol.GateResult{CallID: p.sent[i].(*protocol.GateCheck).CallID,
			Decision: "allow"})
		wantFlushes("a call behind a gate", &p, 3)
		conn.Closed()
		g.Drain(context.Background())
	})
}
