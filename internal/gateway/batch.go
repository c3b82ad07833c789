package gateway

import (
	"slices"
	"sync"
)

// Batch puts off the flushes that the reader of a connection causes until it has handled the
// messages at hand, so that the frames that they cause go out in one write. Only the reader adds,
// and it calls Flush before it waits for more input or handles a message that may take long. A nil
// Batch puts nothing off.
type Batch struct {
	mu    sync.Mutex // guards the field below
	peers []flusher
}

type flusher interface{ Flush() }

// Add has a peer flushed at the next Flush.
func (b *Batch) Add(p flusher) {
	if b == nil {
		p.Flush()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.peers, p) {
		b.peers = append(b.peers, p)
	}
}

// Flush flushes the peers that were added. Call it under no lock. Any goroutine may.
func (b *Batch) Flush() {
	for p := b.next(); p != nil; p = b.next() {
		p.Flush()
	}
}

// next removes and returns the peer that was added first, or nil.
func (b *Batch) next() flusher {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.peers) == 0 {
		return nil
	}
	p := b.peers[0]
	b.peers = slices.Delete(b.peers, 0, 1)
	return p
}
