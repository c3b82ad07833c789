package cluster

import (
	"testing"
	"time"
)

// A guest is dropped once, after its gateway was lost for long enough, and not while that is still
// being noted.
func TestGuestIsOver(t *testing.T) {
	now := time.Now()
	long := now.Add(-time.Hour)
	gated := func() *guest {
		return &guest{isLost: true, lostAt: long, hasGates: true, sessions: []string{"s"}}
	}
	for name, tc := range map[string]struct {
		g       *guest
		upSince time.Time // when the trunk came up; zero while it is down
		want    bool
	}{
		"not noted yet": {&guest{}, time.Time{}, false},
		"not noted yet, with gates": {&guest{hasGates: true, sessions: []string{"s"}}, long,
			false},
		"lost just now":                   {&guest{isLost: true, lostAt: now}, time.Time{}, false},
		"lost for long":                   {&guest{isLost: true, lostAt: long}, time.Time{}, true},
		"with gates":                      {gated(), time.Time{}, false},
		"with gates, whose gateway is up": {gated(), long, true},
		"with gates, and no session": {&guest{isLost: true, lostAt: long, hasGates: true},
			time.Time{}, true},
	} {
		isUp := !tc.upSince.IsZero()
		if got := tc.g.isOver(now, tc.upSince, isUp); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if tc.g.isOver(now, tc.upSince, isUp) {
			t.Errorf("%s: it is over twice", name)
		}
	}
}
