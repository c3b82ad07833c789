package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The gateway is at rest when, in a restLook, it allocates less than restNoise
// bytes. It has something to give back once it has allocated restWorth since it
// did so last.
const (
	restLook  = time.Second / 2
	restNoise = 64 << 10
	restWorth = 1 << 20
)

// giveBack returns memory to the system whenever the gateway comes to rest, until
// ctx ends: fifty providers that say hello, or a burst of calls, leave several times
// what they need from then on, and a daemon is at rest most of its life. Go itself
// collects a heap that does not grow every two minutes only, and keeps more of it.
func giveBack(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	allocated := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	tick := time.NewTicker(restLook)
	defer tick.Stop()
	var given, last uint64
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := allocated()
		if now-last < restNoise && now-given >= restWorth {
			debug.FreeOSMemory()
			given = now
		}
		last = now
	}
}
