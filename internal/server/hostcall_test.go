package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// parseToolCall reads each member of protocol.HostToolCall.
func TestToolCallParams(t *testing.T) {
	data, err := json.Marshal(protocol.HostToolCall{
		SessionID: "s1", CallID: "c1", Name: "echo", Args: protocol.Raw(`{"a":1}`), TimeoutMs: 5,
		Traceparent: "00-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, fault := parseToolCall(data)
	want := toolCallParams{sessionID: "s1", callID: "c1", timeoutMs: 5,
		call: gateway.Call{Name: "echo", Args: protocol.Raw(`{"a":1}`), Traceparent: "00-1"}}
	if fault != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, fault, want)
	}
}

// countedFlushes counts the flushes of a peer.
type countedFlushes int

func (n *countedFlushes) Flush() { *n++ }

// Any message of a host other than a call may take long, so the frames that calls before it put off
// go out first.
func TestCallsAreSentBeforeOtherRequests(t *testing.T) {
	w := &wire{isClosed: true, batch: &gateway.Batch{}}
	c := &hostConn{info: &gateway.HostInfo{}, rpc: rpcConn{wire: w}}
	var n countedFlushes
	w.batch.Add(&n)
	for _, step := range []struct {
		method string
		want   countedFlushes
	}{{protocol.MethodToolCall, 0}, {protocol.MethodEnd + "?", 1}} {
		c.receive(fmt.Appendf(nil, `{"id":1,"method":%q,"params":{}}`, step.method))
		if n != step.want {
			t.Errorf("after %s: got %d flushes, want %d", step.method, n, step.want)
		}
	}
}
