package tools

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// clock is the context of a call. It ends when the call has run for its timeout; the time in which
// a person is asked does not count.
type clock struct {
	context.Context
	end context.CancelCauseFunc

	mu      sync.Mutex // guards the fields that follow
	timer   *time.Timer
	left    time.Duration // when the timer was last started
	started time.Time
	waits   int // questions that are open
}

// errTimeout is the cause of a context that a clock has ended.
var errTimeout = errors.New("timeout of the tool")

func newClock(ctx context.Context, timeout time.Duration) *clock {
	c := &clock{left: timeout, started: time.Now()}
	c.Context, c.end = context.WithCancelCause(ctx)
	c.timer = time.AfterFunc(timeout, func() { c.end(errTimeout) })
	return c
}

// Err implements [context.Context]: the end of the time is a passed deadline.
func (c *clock) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), errTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// stop ends the context.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.end(nil)
}

// pause stops the clock until resume is called.
func (c *clock) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits++; c.waits == 1 {
		c.timer.Stop()
		c.left -= time.Since(c.started)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waits--; c.waits == 0 && c.Context.Err() == nil {
			c.started = time.Now()
			c.timer.Reset(max(0, c.left))
		}
	}
}

// env returns an env whose questions stop the clock.
func (c *clock) env(env *Env) *Env {
	e := *env
	if ask := env.Outside; ask != nil {
		e.Outside = func(ctx context.Context, path string, write bool) error {
			defer c.pause()()
			return ask(ctx, path, write)
		}
	}
	if ask := env.Protected; ask != nil {
		e.Protected = func(ctx context.Context, path, why string) error {
			defer c.pause()()
			return ask(ctx, path, why)
		}
	}
	if ask := env.Private; ask != nil {
		e.Private = func(ctx context.Context, host string, addr netip.AddrPort) error {
			defer c.pause()()
			return ask(ctx, host, addr)
		}
	}
	if ask := env.Edit; ask != nil {
		e.Edit = func(ctx context.Context, edits []FileEdit) (func(error), error) {
			defer c.pause()()
			return ask(ctx, edits)
		}
	}
	return &e
}
