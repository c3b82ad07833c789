package copilot

import (
	"sync"

	"tapgw/internal/chans"
)

// queue hands items from many goroutines to one, in order and without a bound. It never blocks the
// sender, because the SDK stops reading for all sessions while one of its handlers blocks.
type queue[T any] struct {
	wake chan struct{} // holds one

	mu     sync.Mutex // guards the fields that follow
	items  []T
	closed bool
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

// push adds an item. A closed queue drops it.
func (q *queue[T]) push(item T) {
	q.mu.Lock()
	if !q.closed {
		q.items = append(q.items, item)
	}
	q.mu.Unlock()
	q.signal()
}

// close ends the queue. The receiver still gets the queued items.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue[T]) signal() { chans.Wake(q.wake) }

// receiveAll returns all queued items and waits for the first. It returns false when the queue is
// closed and empty. Only one goroutine may call it.
func (q *queue[T]) receiveAll() ([]T, bool) {
	for {
		q.mu.Lock()
		items, closed := q.items, q.closed
		q.items = nil
		q.mu.Unlock()
		switch {
		case len(items) > 0:
			return items, true
		case closed:
			return nil, false
		}
		<-q.wake
	}
}
