package assembly

import (
	"context"
	"os"
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
func releaseMemory(ctx context.Context, calls func() uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	tick := time.NewTicker(restPeriod)
	defer tick.Stop()
	var atRelease, last uint64
	kept := 0 // bytes of the program that stay at rest; at the first rest they are the start's
	var collector collector
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(sample)
		now := sample[0].Value.Uint64()
		collector.look(calls())
		if last == 0 {
			// The pages that only the start needed go even if the gateway is at work from now on.
			releaseProgram(programBytes)
		}
		if now-last < restBytes && now-atRelease >= releaseBytes {
			debug.FreeOSMemory()
			releaseProgram(kept)
			atRelease, kept = now, programBytes
		}
		last = now
	}
}

// How far the heap grows between collections, in percent. With the usual 100, a busy gateway would
// collect its heap of a few megabytes hundreds of times a second. In a quiet gateway, short-lived
// data leaves holes between long-lived data such as a thousand sources, and more room means more
// holes.
const (
	gcPercentBusy  = 300
	gcPercentQuiet = 30
	// busyCalls is how many calls in a restPeriod make a busy gateway.
	busyCalls = 100
)

// collector sets how far the heap grows between collections. It leaves that to GOGC where
// that is set.
type collector struct {
	calls  uint64 // at the last look
	isBusy bool
}

func (c *collector) look(calls uint64) {
	isBusy := calls-c.calls >= busyCalls
	c.calls = calls
	if isBusy == c.isBusy || os.Getenv("GOGC") != "" {
		return
	}
	c.isBusy = isBusy
	percent := gcPercentQuiet
	if isBusy {
		percent = gcPercentBusy
	}
	debug.SetGCPercent(percent)
}
