package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrSessionEnded says that a session is gone and nothing more will follow.
var ErrSessionEnded = errors.New("the session has ended")

// feed keeps the newest entries of a sequence for readers that each hold a
// cursor, so that a slow reader costs nobody anything: it misses what fell out.
// Sequence numbers begin at 1. Its lock is a leaf.
type feed[T any] struct {
	maxItems int         // entries kept
	maxBytes int         // and their size at most, by size
	size     func(T) int // nil: every entry is free

	mu        sync.Mutex
	items     []T // items[i] has the number first+i
	first     uint64
	totalSize int
	added     chan struct{} // closed when something is added; nil while nobody waits
	closed    bool
}

func newFeed[T any](keep, bytes int, size func(T) int) *feed[T] {
	return &feed[T]{maxItems: keep, maxBytes: bytes, size: size, first: 1}
}

// add appends what build makes for the entry's number and returns the number.
func (f *feed[T]) add(build func(seq uint64) T) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq := f.first + uint64(len(f.items))
	item := build(seq)
	f.items = append(f.items, item)
	if f.size != nil {
		f.totalSize += f.size(item)
	}
	for len(f.items) > f.maxItems || (f.size != nil && f.totalSize > f.maxBytes && len(f.items) > 1) {
		if f.size != nil {
			f.totalSize -= f.size(f.items[0])
		}
		var zero T
		f.items[0] = zero
		f.items = f.items[1:]
		f.first++
	}
	f.wake()
	return seq
}

func (f *feed[T]) wake() {
	if f.added != nil {
		close(f.added)
		f.added = nil
	}
}

// after returns what came after a number, and the number to ask with next.
func (f *feed[T]) after(seq uint64) ([]T, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.first + uint64(len(f.items)) - 1
	if seq >= last {
		return nil, last
	}
	from := 0
	if seq >= f.first {
		from = int(seq - f.first + 1)
	}
	return append([]T(nil), f.items[from:]...), last
}

// next returns entries after a number, at most so many and not much more than so
// many bytes of them, whether there are more, and the number of the first of them,
// which is not the one that follows where some fell out.
func (f *feed[T]) next(seq uint64, most, bytes int) (items []T, first uint64, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = max(seq+1, f.first)
	skip := first - f.first
	if skip >= uint64(len(f.items)) {
		return nil, first, false
	}
	left := f.items[skip:]
	n := 0
	for size := 0; n < min(most, len(left)) && size < bytes; n++ {
		if f.size != nil {
			size += f.size(left[n])
		}
	}
	return slices.Clone(left[:n]), first, n < len(left)
}

// last returns the number of the newest entry.
func (f *feed[T]) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first + uint64(len(f.items)) - 1
}

// wait returns nil once there is something after seq, [ErrSessionEnded] when
// there will never be, or the context's error.
func (f *feed[T]) wait(ctx context.Context, seq uint64) error {
	for {
		f.mu.Lock()
		if f.first+uint64(len(f.items))-1 > seq {
			f.mu.Unlock()
			return nil
		}
		if f.closed {
			f.mu.Unlock()
			return ErrSessionEnded
		}
		if f.added == nil {
			f.added = make(chan struct{})
		}
		more := f.added
		f.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close tells waiting readers that nothing more comes.
func (f *feed[T]) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wake()
}
