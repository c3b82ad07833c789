package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrSessionEnded is the error of waiting for something that a session does, after the
// session has ended. Followers get it only once they have read all entries: nothing more
// will come.
var ErrSessionEnded = errors.New("the session has ended")

// feed is a bounded buffer of the newest entries of a sequence. Each reader holds a
// cursor, the number of the last entry that it has, so a slow reader blocks nobody: it
// has a gap where entries left the buffer. Numbers begin at 1. Its lock is a leaf.
type feed[T any] struct {
	maxItems int
	maxBytes int         // of all items, by size
	size     func(T) int // nil: no limit of bytes

	mu        sync.Mutex
	items     []T // items[i] has the number first+i
	first     uint64
	totalSize int
	added     chan struct{} // closed when an entry is added; nil while nobody waits
	isClosed  bool
}

func newFeed[T any](maxItems, maxBytes int, size func(T) int) *feed[T] {
	return &feed[T]{maxItems: maxItems, maxBytes: maxBytes, size: size, first: 1}
}

// add appends the entry that build makes, and returns its number. build runs under the
// feed's lock, so entries that take a number of another sequence keep its order.
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

// after returns the entries after a cursor and the cursor for the next read.
func (f *feed[T]) after(seq uint64) (items []T, cursor uint64) {
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

// next returns at most maxItems entries after a cursor, until they have maxBytes, and
// whether there are more. first is the number of the first of them; it is not seq+1 if
// there is a gap.
func (f *feed[T]) next(seq uint64, maxItems, maxBytes int) (items []T, first uint64, hasMore bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = max(seq+1, f.first)
	skip := first - f.first
	if skip >= uint64(len(f.items)) {
		return nil, first, false
	}
	left := f.items[skip:]
	n := 0
	for size := 0; n < min(maxItems, len(left)) && size < maxBytes; n++ {
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

// wait waits until there is an entry after a cursor. The error is [ErrSessionEnded]
// when none will come, or that of ctx.
func (f *feed[T]) wait(ctx context.Context, seq uint64) error {
	for {
		f.mu.Lock()
		if f.first+uint64(len(f.items))-1 > seq {
			f.mu.Unlock()
			return nil
		}
		if f.isClosed {
			f.mu.Unlock()
			return ErrSessionEnded
		}
		if f.added == nil {
			f.added = make(chan struct{})
		}
		added := f.added
		f.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the waits of readers: no entry will come.
func (f *feed[T]) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isClosed = true
	f.wake()
}
