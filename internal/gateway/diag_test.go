package gateway

import (
	"slices"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

func TestRing(t *testing.T) {
	r := newRing[int](3)
	for i, want := range [][]int{{}, {1}, {2, 1}, {3, 2, 1}, {4, 3, 2}, {5, 4, 3}} {
		if i > 0 {
			*r.next() = i
		}
		if got := r.newest(); !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", i, got, want)
		}
	}
}

// Noting how a call ended takes no memory.
func TestNoteCallAllocates(t *testing.T) {
	d := newDiag()
	p := &Provider{name: "p", latencies: &latencies{}}
	k := &call{session: &Session{id: "s"}, name: "t", tool: &tool{provider: p}, id: newCallID(),
		begun: time.Now()}
	o := Outcome{Duration: time.Millisecond}
	if n := testing.AllocsPerRun(1000, func() { d.noteCall(k, &o) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Latencies are those of the last calls, errors of all.
func TestProviderLoad(t *testing.T) {
	d := newDiag()
	p := &Provider{name: "p", latencies: &latencies{}}
	var v adminapi.ProviderLoad
	d.readLatencies(&v, p.latencies)
	if v != (adminapi.ProviderLoad{}) {
		t.Errorf("before any call: %+v, want %+v", v, (adminapi.ProviderLoad{}))
	}
	end := func(took time.Duration, code protocol.Code) {
		k := &call{session: &Session{id: "s"}, name: "t", tool: &tool{provider: p},
			begun: time.Now()}
		d.noteCall(k, &Outcome{Duration: took, ErrorCode: code})
	}
	end(time.Hour*2, protocol.CodeTimeout) // longer than is counted
	d.readLatencies(&v, p.latencies)
	if want := (adminapi.ProviderLoad{Calls: 1, Errors: 1, P50Ms: 4294967.295,
		P99Ms: 4294967.295}); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	for i := range maxLatencies { // the first falls out
		end(time.Duration(i)*time.Millisecond, "")
	}
	d.readLatencies(&v, p.latencies)
	if want := (adminapi.ProviderLoad{Calls: maxLatencies + 1, Errors: 1, P50Ms: 127,
		P99Ms: 252}); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
}
