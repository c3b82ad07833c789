package server

import (
	"encoding/json"
	"reflect"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// parseToolCall reads each member of protocol.HostToolCall.
func TestToolCallParams(t *testing.T) {
	data, err := json.Marshal(protocol.HostToolCall{
		SessionID: "s1", CallID: "c1", Name: "echo", Args: protocol.Raw(`{"a":1}`), TimeoutMs: 5, Traceparent: "00-1",
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
