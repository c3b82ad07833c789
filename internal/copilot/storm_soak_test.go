//go:build runtime && soak

package copilot

import "time"

const (
	stormTurns    = 1000
	stormPatience = 15 * time.Minute
)
