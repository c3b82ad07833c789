//go:build runtime && !soak

package copilot

import "time"

// A storm of a few seconds; `make soak` has the long one.
const (
	stormTurns    = 300
	stormPatience = 5 * time.Minute
)
