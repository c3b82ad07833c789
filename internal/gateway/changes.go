package gateway

import (
	"context"
	"sync"
	"sync/atomic"
)

// counter counts what happens and wakes those who wait for more. Its lock is a leaf.
type counter struct {
	mu    sync.Mutex
	n     uint64
	added chan struct{} // closed at the next one; nil while nobody waits
}

// increment counts one more and returns its number.
func (t *counter) increment() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.added != nil {
		close(t.added)
		t.added = nil
	}
	return t.n
}

// value is the number of the last one.
func (t *counter) value() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// wait returns nil once there was one after n, [ErrSessionEnded] when ended is
// closed before, or the context's error.
func (t *counter) wait(ctx context.Context, n uint64, ended <-chan struct{}) error {
	for {
		t.mu.Lock()
		if t.n > n {
			t.mu.Unlock()
			return nil
		}
		if t.added == nil {
			t.added = make(chan struct{})
		}
		more := t.added
		t.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			if t.value() > n {
				return nil
			}
			return ErrSessionEnded
		}
	}
}

// changes are those of what the gateway shows of itself. While nobody watches
// they are not counted: calls make them too.
type changes struct {
	watchers atomic.Int32
	count    counter
}

// touch says that something which the gateway shows has changed. It may be called
// under any lock.
func (g *Gateway) touch() {
	if g.changes.watchers.Load() > 0 {
		g.changes.count.increment()
	}
}

// Watch makes the gateway count its changes until the function that it returns is
// called: sessions, providers with their tools and calls in flight, pairings and
// questions that came, went or are otherwise now.
func (g *Gateway) Watch() (stop func()) {
	g.changes.watchers.Add(1)
	g.changes.count.increment() // those before were not counted
	return sync.OnceFunc(func() { g.changes.watchers.Add(-1) })
}

// Changes is how many changes were counted.
func (g *Gateway) Changes() uint64 { return g.changes.count.value() }

// WaitChange waits until more than n changes were counted, or ctx ends.
func (g *Gateway) WaitChange(ctx context.Context, n uint64) error {
	return g.changes.count.wait(ctx, n, nil)
}

// Touch counts a change of something that is shown beside what the gateway knows:
// the faults of files, say.
func (g *Gateway) Touch() { g.touch() }
