// Package chans has the few things that goroutines here do with channels again and again.
package chans

import (
	"context"
	"time"
)

// Wake puts an item into a channel with room for one, unless one is there: its receiver has
// something to do.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// IsClosed reports whether a channel to which nothing is sent is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Lock is a mutex with room for one item. The wait for it ends with a context.
type Lock chan struct{}

// NewLock returns a lock that nobody holds.
func NewLock() Lock { return make(Lock, 1) }

// Lock takes the lock. The error is the cause of ctx's end.
func (l Lock) Lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock releases the lock.
func (l Lock) Unlock() { <-l }

// Sleep waits for a time. The error is the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
