//go:build e2e && linux && race

package e2e_test

const (
	raceEnabled = true
	slowdown    = 4 // of everything
)
