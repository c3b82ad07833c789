package gateway

import (
	"context"
	"fmt"
	"testing"

	"tapgw/internal/protocol"
)

// A sender that takes a new name for each event fills no memory with its limits.
func TestWaitingEventsBoundTheirSenders(t *testing.T) {
	g := New(Options{})
	defer g.Drain(context.Background())
	for i := range 10 * maxWaitingEvents {
		m := &protocol.Push{Level: protocol.LevelKeep, Event: "e"}
		if _, err := g.StoreEvent(t.Context(), fmt.Sprintf("name-%d", i), m); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(g.waitingEvents.limits); got > maxWaitingEvents {
		t.Errorf("limits of senders: got %d, want at most %d", got, maxWaitingEvents)
	}
}
