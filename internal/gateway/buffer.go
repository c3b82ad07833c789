package gateway

import (
	"context"
	"slices"
	"sync"
)

// buffer is a bounded buffer of the newest entries of a sequence, whose numbers begin at 1. Each
// reader holds a cursor, the number of the last entry that it has, so a slow reader doesn't block
// the writer: it has a gap where entries left the buffer. Its lock is a leaf.
type buffer[T any] struct {
	maxItems int
	maxBytes int // of all items, by size
	size     func(T) int
	count    counter       // of all entries ever added
	ended    chan struct{} // closed when no entry will come
	close    func()        // closes ended, once

	mu        sync.Mutex // guards the fields below
	items     []T
	first     uint64 // number of the first entry in items
	totalSize int
}

func newBuffer[T any](maxItems, maxBytes int, size func(T) int) *buffer[T] {
	ended := make(chan struct{})
	return &buffer[T]{maxItems: maxItems, maxBytes: maxBytes, size: size, first: 1,
		ended: ended, close: sync.OnceFunc(func() { close(ended) })}
}

// add appends the entry that build makes of its number.
func (b *buffer[T]) add(build func(seq uint64) T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	item := build(b.first + uint64(len(b.items)))
	b.items = append(b.items, item)
	b.totalSize += b.size(item)
	for len(b.items) > b.maxItems || b.totalSize > b.maxBytes && len(b.items) > 1 {
		b.totalSize -= b.size(b.items[0])
		var zero T
		b.items[0] = zero
		b.items = b.items[1:]
		b.first++
	}
	b.count.increment()
}

// next returns at most maxItems entries after a cursor, until they have maxBytes. first is
// the number of the first of them; it is not cursor+1 if there is a gap.
func (b *buffer[T]) next(cursor uint64, maxItems, maxBytes int) (items []T, first uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = max(cursor+1, b.first)
	left := b.items[min(first-b.first, uint64(len(b.items))):]
	n := 0
	for size := 0; n < min(maxItems, len(left)) && size < maxBytes; n++ {
		size += b.size(left[n])
	}
	return slices.Clone(left[:n]), first
}

// wait waits until there is an entry after a cursor. The error is [ErrSessionEnded] if the session
// ends first, or that of ctx.
func (b *buffer[T]) wait(ctx context.Context, cursor uint64) error {
	return b.count.wait(ctx, cursor, b.ended)
}
