// Package taptest holds helpers that tests of several packages share.
package taptest

import (
	"runtime/metrics"
	"testing"
	"time"
)

// endless is longer than anything that ends takes, even on a busy machine.
const endless = 20 * time.Second

// Bounded runs do and fails the test if it allocates more than most bytes on the heap. Messages
// name do by the parameter what. Run it alone, because other allocations count too. If do does not
// end within 20 s, Bounded panics, so that fuzzing stores the input.
func Bounded(t testing.TB, what string, most uint64, do func()) {
	t.Helper()
	timer := time.AfterFunc(endless, func() { panic(what + " does not end") })
	defer timer.Stop()
	before := allocated()
	do()
	if took := allocated() - before; took > most {
		t.Errorf("%s took %d bytes of memory, want at most %d", what, took, most)
	}
}

// allocated returns how many bytes were allocated on the heap since the start.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
