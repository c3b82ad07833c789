//go:build e2e && linux && !race

package e2e_test

const (
	raceEnabled = false
	slowdown    = 1
)
