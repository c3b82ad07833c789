package main

import "testing"

// TestSSELatency sees that every reader has every event.
func TestSSELatency(t *testing.T) {
	took, err := sseLatency(t.Context(), 3)
	if want := sseEvents / 3 * 3; err != nil || len(took) != want {
		t.Errorf("%d events were read, want %d: %v", len(took), want, err)
	}
}
