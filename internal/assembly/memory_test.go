package assembly

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// given counts the collections that somebody asked for.
func given() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumForcedGC
}

var garbage []byte

func TestGiveBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nobody else collects
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(d time.Duration) { <-time.After(d) }
		go releaseMemory(ctx)
		wait(restPeriod / 2) // never at the instant of a look
		const looks = 5
		burst := func() { garbage = make([]byte, 2*releaseBytes) }

		burst()
		before := given()
		wait(looks * restPeriod)
		if n := given() - before; n != 1 {
			t.Errorf("after a burst: gave back %d times in %d looks, want once", n, looks)
		}
		wait(looks * restPeriod)
		if n := given() - before; n != 1 {
			t.Errorf("at rest: gave back %d times in all, want once", n)
		}
		for range looks {
			burst()
			wait(restPeriod)
		}
		if n := given() - before; n != 1 {
			t.Errorf("in a burst: gave back %d times in all, want once", n)
		}
		wait(looks * restPeriod)
		if n := given() - before; n != 2 {
			t.Errorf("after a second burst: gave back %d times in all, want twice", n)
		}
	})
}

func TestGCPercent(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		allocated, live uint64
		want            int
	}{
		"at rest":                {0, 3 * mib, gcPercentQuiet},
		"at rest with much":      {busyBytes - 1, 100 * mib, gcPercentQuiet},
		"at work before a count": {busyBytes, 0, gcPercentMost},
		"at work with little":    {busyBytes, 2 * mib, gcPercentMost},
		"at work with some":      {500 * mib, 4 * mib, 200},
		"at work with much":      {500 * mib, 100 * mib, gcPercentQuiet},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gcPercent(test.allocated, test.live); got != test.want {
				t.Errorf("got %d %%, want %d %%", got, test.want)
			}
		})
	}
}
