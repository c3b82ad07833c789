//go:build soak

package gateway

import "testing"

// TestSoakCalls is the long form of [TestCallsEndOnce]: under the race detector in
// real time, without it in a bubble's.
func TestSoakCalls(t *testing.T) { runStorm(t, 1_000_000) }
