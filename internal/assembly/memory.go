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
func releaseMemory(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(restPeriod)
	defer tick.Stop()
	var atRelease, last uint64
	kept := 0 // bytes of the program that stay at rest; at the first rest they are the start's
	percent := gcPercentStart
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(sample)
		now := sample[0].Value.Uint64()
		if p := gcPercent(now-last, sample[1].Value.Uint64()); p != percent && adaptsGC() {
			debug.SetGCPercent(p)
			percent = p
		}
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

// How far the heap grows between collections. In a quiet gateway, short-lived data leaves holes
// between long-lived data such as a thousand sources, and more room means more holes. But
// gcPercentQuiet also lowers Go's smallest heap to 1.2 MiB, which a gateway at work would collect
// hundreds of times a second. It gets room for busyRoom bytes, at most gcPercentMost. A large heap
// gets no more than a quiet one: with 200 sessions and 500 providers at other gateways, as much
// room as lives took a gateway beyond 60 MiB.
const (
	gcPercentStart = 100 // Go's own: the gateway is ready before the first collection
	gcPercentQuiet = 30  // in percent of the live heap
	gcPercentMost  = 300
	busyBytes      = 1 << 20 // allocated in a restPeriod make a gateway at work
	busyRoom       = 8 << 20
)

// gcPercent is how far a heap with live bytes grows, in percent, if the gateway has allocated
// some bytes in the last restPeriod.
func gcPercent(allocated, live uint64) int {
	if allocated < busyBytes {
		return gcPercentQuiet
	}
	return int(min(gcPercentMost, max(gcPercentQuiet, 100*busyRoom/max(live, 1))))
}

// adaptsGC reports whether the gateway chooses how far the heap grows, and not the user.
func adaptsGC() bool { return os.Getenv("GOGC") == "" }
