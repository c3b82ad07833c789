//go:build soak

package gateway

import "testing"

// TestSoakCalls is the long form of TestCallsEndOnce.
func TestSoakCalls(t *testing.T) { storm(t, 1_000_000) }
