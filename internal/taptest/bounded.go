// Package taptest holds what tests of several packages share.
package taptest

import (
	"runtime/metrics"
	"testing"
	"time"
)

// endless is so long that nothing takes it that ends, on however busy a machine.
const endless = 20 * time.Second

// Bounded runs what must end and may take at most so many bytes of memory on the
// way, for itself alone: what else runs counts too. What does not end panics, so
// that fuzzing finds the input.
func Bounded(t testing.TB, what string, most uint64, do func()) {
	t.Helper()
	timer := time.AfterFunc(endless, func() { panic(what + " does not end") })
	defer timer.Stop()
	before := allocated()
	do()
	if took := allocated() - before; took > most {
		t.Errorf("%s took %d bytes of memory, %d is the most", what, took, most)
	}
}

// allocated is how many bytes were ever taken from the heap.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
