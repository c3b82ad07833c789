package gateway

import (
	"context"
	"sync"
	"sync/atomic"
)

// counter is a number that only grows, and that goroutines can wait on. Its lock is a
// leaf.
type counter struct {
	mu    sync.Mutex // guards the fields below
	n     uint64
	added chan struct{} // closed at the next one; nil without a waiter
}

// increment adds one and returns the new value.
func (c *counter) increment() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.added != nil {
		close(c.added)
		c.added = nil
	}
	return c.n
}

func (c *counter) value() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait waits until the value is more than n. The error is [ErrSessionEnded] when ended
// is closed before, or that of ctx.
func (c *counter) wait(ctx context.Context, n uint64, ended <-chan struct{}) error {
	for {
		c.mu.Lock()
		if c.n > n {
			c.mu.Unlock()
			return nil
		}
		if c.added == nil {
			c.added = make(chan struct{})
		}
		added := c.added
		c.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			if c.value() > n {
				return nil
			}
			return ErrSessionEnded
		}
	}
}

// changes counts the changes of the state that the admin API shows. Every call changes that state,
// so changes counts only while there is a watcher.
type changes struct {
	watchers atomic.Int32
	count    counter
}

// touch counts a change of the state that the gateway shows. It may be called under any lock.
func (g *Gateway) touch() {
	if g.changes.watchers.Load() > 0 {
		g.changes.count.increment()
	}
}

// Watch makes the gateway count the changes of the state that it shows, until stop is called:
// sessions, providers with their tools and pending calls, pairings and questions. Several watchers
// may watch at once; without any nothing is counted, which saves each tool call time. Calling stop
// again does nothing.
func (g *Gateway) Watch() (stop func()) {
	g.changes.watchers.Add(1)
	g.changes.count.increment() // earlier changes were not counted
	return sync.OnceFunc(func() { g.changes.watchers.Add(-1) })
}

// Changes is the number of changes that were counted so far, for [Gateway.WaitChange]. A
// caller reads it before it reads the state, so that no change gets lost between the two.
func (g *Gateway) Changes() uint64 { return g.changes.count.value() }

// WaitChange waits until more than n changes were counted, n being the result of
// [Gateway.Changes]. The only error is that of ctx. Without [Gateway.Watch] nothing is
// counted, so it may wait for ever.
func (g *Gateway) WaitChange(ctx context.Context, n uint64) error {
	return g.changes.count.wait(ctx, n, nil)
}

// ToolChanges is the number of times so far that the tools of a session, the list of sessions or
// the foreground session changed, for [Gateway.WaitToolChange]. Tool calls don't count. A caller
// reads it before it reads the tools, so that no change gets lost between the two.
func (g *Gateway) ToolChanges() uint64 { return g.toolChanges.value() }

// TouchTools counts a change of [Gateway.ToolChanges] that the gateway can't see, such as that a
// host now gives its agent the tools itself.
func (g *Gateway) TouchTools() { g.toolChanges.increment() }

// WaitToolChange waits until there were more than n changes, n being the result of
// [Gateway.ToolChanges]. The only error is that of ctx. Any number of goroutines may wait.
func (g *Gateway) WaitToolChange(ctx context.Context, n uint64) error {
	return g.toolChanges.wait(ctx, n, nil)
}

// Touch counts a change outside the gateway's own state that the page shows too, such
// as a new fault of a provider file.
func (g *Gateway) Touch() { g.touch() }
