package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The gateway is at rest when it allocates less than restBytes in a restPeriod. Memory is
// worth releasing when the gateway has allocated releaseBytes since the last time. Calls need
// less of the program than programBytes: between bursts of them it stays.
const (
	restPeriod   = time.Second / 2
	restBytes    = 64 << 10
	releaseBytes = 1 << 20
	programBytes = 10 << 20
)

// releaseMemory returns memory to the system whenever the gateway comes to rest, until ctx
// ends. Fifty providers that say hello, or a burst of calls, leave several times the memory
// that they need later, and a daemon is at rest most of its life. Go itself collects a heap
// that does not grow every two minutes only, and keeps more of it.
func releaseMemory(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	allocated := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	tick := time.NewTicker(restPeriod)
	defer tick.Stop()
	var atRelease, last uint64
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := allocated()
		if now-last < restBytes && now-atRelease >= releaseBytes {
			debug.FreeOSMemory()
			releaseProgram(programBytes)
			atRelease = now
		}
		last = now
	}
}
