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

	// fold makes one entry of the first of items and those behind it that it goes on with, and returns how many these
	// are. cut leaves the first n of the entries that were folded out of an entry. nil: nothing is folded.
	fold func(items []T) (T, int)
	cut  func(item T, n uint64) T

	mu        sync.Mutex
	items     []T
	numbers   []uint64 // numbers[i] is that of items[i], the last one of those that were folded into it
	first     uint64   // number of the first entry in items
	end       uint64   // number of the last entry ever added
	unfolded  int      // entries that were added since all were folded
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
	f.end++
	item := build(f.end)
	f.items, f.numbers = append(f.items, item), append(f.numbers, f.end)
	f.unfolded++
	if f.size != nil {
		f.totalSize += f.size(item)
	}
	if f.isOver() && f.fold != nil && f.unfolded >= len(f.items)/4 {
		f.foldAll()
	}
	for f.isOver() {
		if f.size != nil {
			f.totalSize -= f.size(f.items[0])
		}
		var zero T
		f.items[0] = zero
		f.first = f.numbers[0] + 1
		f.items, f.numbers = f.items[1:], f.numbers[1:]
	}
	f.wake()
	return f.end
}

// isOver reports whether the feed has more than it may keep.
func (f *feed[T]) isOver() bool {
	return len(f.items) > f.maxItems || f.size != nil && f.totalSize > f.maxBytes && len(f.items) > 1
}

// foldAll folds what can be folded. A feed that is full folds each time a quarter of it is new, so that an entry is
// looked at few times.
func (f *feed[T]) foldAll() {
	items, numbers := f.items[:0:0], f.numbers[:0:0]
	f.totalSize, f.unfolded = 0, 0
	for i := 0; i < len(f.items); {
		item, n := f.fold(f.items[i:])
		i += n
		items, numbers = append(items, item), append(numbers, f.numbers[i-1])
		if f.size != nil {
			f.totalSize += f.size(item)
		}
	}
	f.items, f.numbers = items, numbers
}

// from returns the entries after a number, without what was folded into the first of them up to it. Call with mu held.
func (f *feed[T]) from(seq uint64) []T {
	if seq >= f.end {
		return nil
	}
	i, _ := slices.BinarySearch(f.numbers, seq+1)
	begin := f.first
	if i > 0 {
		begin = f.numbers[i-1] + 1
	}
	if seq < begin {
		return f.items[i:]
	}
	items := slices.Clone(f.items[i:])
	items[0] = f.cut(items[0], seq+1-begin)
	return items
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
	return slices.Clone(f.from(seq)), f.end
}

// next returns at most maxItems entries after a cursor, until they have maxBytes, and
// whether there are more. first is the number of the first of them; it is not seq+1 if
// there is a gap.
func (f *feed[T]) next(seq uint64, maxItems, maxBytes int) (items []T, first uint64, hasMore bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.from(seq)
	n := 0
	for size := 0; n < min(maxItems, len(left)) && size < maxBytes; n++ {
		if f.size != nil {
			size += f.size(left[n])
		}
	}
	return slices.Clone(left[:n]), max(seq+1, f.first), n < len(left)
}

// last returns the number of the newest entry.
func (f *feed[T]) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}

// wait waits until there is an entry after a cursor. The error is [ErrSessionEnded]
// when none will come, or that of ctx.
func (f *feed[T]) wait(ctx context.Context, seq uint64) error {
	for {
		f.mu.Lock()
		if f.end > seq {
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
