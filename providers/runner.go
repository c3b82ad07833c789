package providers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// This file is the run of a provider: it finds gateways, connects, and connects again after each
// loss.

const (
	firstWait = 200 * time.Millisecond
	maxWait   = 900 * time.Millisecond // so that a gateway is found within a second of its return
	// maxDropWait is the longest wait for a gateway that accepts the provider and soon loses it,
	// again and again.
	maxDropWait = 5 * time.Second
	// refusedWait is how long a refused token is not sent again: the gateway locks out an address
	// that sends too many wrong ones, and all providers of a machine have the same address.
	refusedWait = 30 * time.Second
	// stopGrace is how long Run waits for the user's functions after its context has ended.
	stopGrace = 5 * time.Second
)

// errRefused means that the gateway does not know the token.
var errRefused = errors.New("the gateway refused the token")

// runner is one run of a provider. The goroutine that called Run owns all fields but wg and the
// sequencers.
type runner struct {
	p        *Provider
	metadata protocol.Raw
	wg       sync.WaitGroup // every goroutine of the run
	// The user's functions: tools without a key, listeners by session, callbacks without a key.
	calls, events, callbacks *sequencer

	reconnect reconnect
	session   string                 // the last bound session, until it ends
	prepared  map[string]bool        // sessions that PrepareSession has run for
	refused   map[endpoint]time.Time // when each token was refused
	failing   bool                   // the last attempt failed, and that was reported
}

// reconnect is the state that restores a binding after a lost connection (docs/protocol.md,
// "Reconnecting").
type reconnect struct {
	token string
	to    endpoint
	until time.Time // zero while the connection is up
}

func newRunner(p *Provider, metadata protocol.Raw) *runner {
	r := &runner{p: p, metadata: metadata, refused: map[endpoint]time.Time{},
		prepared: map[string]bool{}}
	r.calls = &sequencer{wg: &r.wg, limit: p.opts.MaxCalls}
	r.events = &sequencer{wg: &r.wg, limit: 1, room: maxEvents}
	r.callbacks = &sequencer{wg: &r.wg, limit: 1}
	return r
}

// run connects again and again until ctx ends (nil) or waiting can't help (an error).
func (r *runner) run(ctx context.Context) error {
	defer r.waitForCallbacks()
	absent, drops := 0, 0 // attempts in a row, and connections in a row that were soon lost
	for {
		lasted, accepted, err := r.tryEndpoints(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if fatal, ok := errors.AsType[fatalError](err); ok {
			return fatal.error
		}
		var wait time.Duration
		if accepted {
			absent = 0
			if lasted >= maxDropWait {
				drops = 0
			}
			wait = backoff(drops, maxDropWait)
			drops++
		} else {
			wait = backoff(absent, maxWait)
			absent++
		}
		r.reportFailure(err, wait)
		if chans.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// backoff returns the wait before an attempt. It grows from 0.2 s by half each time, up to a limit.
// The jitter only shortens it.
func backoff(attempt int, limit time.Duration) time.Duration {
	d := firstWait
	for range attempt {
		if d = d * 3 / 2; d > limit {
			d = limit
			break
		}
	}
	return d/2 + rand.N(d/2) //nolint:gosec // it is no secret
}

// tryEndpoints tries each endpoint once until one accepts the provider, and serves that connection
// until its end. It returns how long the connection lasted, and whether the gateway accepted the
// provider at all.
func (r *runner) tryEndpoints(ctx context.Context) (
	lasted time.Duration, accepted bool, err error) {
	found, err := r.p.endpoints()
	if err != nil {
		return 0, false, err
	}
	err = nil
	for _, e := range found {
		if at, ok := r.refused[e]; ok && time.Since(at) < refusedWait {
			err = errors.Join(err, fmt.Errorf("%s: %w before", e.url, errRefused))
			continue
		}
		lasted, accepted, cerr := r.connect(ctx, e)
		if accepted || ctx.Err() != nil {
			return lasted, accepted, cerr
		}
		if _, ok := errors.AsType[fatalError](cerr); ok {
			return 0, false, cerr
		}
		err = errors.Join(err, cerr)
	}
	return 0, false, err
}

// connect connects to e and serves; accepted reports whether the gateway accepted auth. It tries a
// reconnect token first; if the gateway refuses it, the token follows at once.
func (r *runner) connect(ctx context.Context, e endpoint) (
	lasted time.Duration, accepted bool, err error) {
	if t := r.reconnect; t.token != "" && t.to == e && time.Now().Before(t.until) {
		lasted, accepted, err = r.serve(ctx, e, t.token)
		if accepted || !errors.Is(err, errRefused) {
			return lasted, accepted, err
		}
	}
	r.reconnect = reconnect{}
	lasted, accepted, err = r.serve(ctx, e, "")
	if errors.Is(err, errRefused) {
		switch {
		case e.paired():
			return 0, false, fatalError{fmt.Errorf("%w: %w", ErrNotPaired, err)}
		case e.fixedToken:
			return 0, false, fatalError{fmt.Errorf("%w; check Options.Token", err)}
		}
		r.refused[e] = time.Now()
	}
	return lasted, accepted, err
}

// reportFailure reports the end of a connection, or the first of several attempts that fail.
func (r *runner) reportFailure(err error, wait time.Duration) {
	if r.failing {
		r.p.log.Debug("not connected", "error", err, "again", wait)
		return
	}
	r.failing = true
	r.p.log.Warn("not connected; trying again", "error", err)
	r.report(err)
}

// report gives an error to the user's OnError.
func (r *runner) report(err error) {
	if f := r.p.opts.OnError; f != nil {
		r.callback(func() { f(err) })
	}
}

// callback runs f on a goroutine of its own after the earlier callbacks. The channel is closed when
// f has returned.
func (r *runner) callback(f func()) <-chan struct{} {
	done := make(chan struct{})
	r.callbacks.add("", func() {
		defer close(done)
		_ = guard(r.p.log, "callback", f)
	})
	return done
}

// guard runs a function of the user's. It logs a panic with its stack and the function's name in
// what, and returns it as an error "panicked: …". Nothing is returned if the function ends its
// goroutine.
func guard(log *slog.Logger, what string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("the user's function panicked", "function", what, "panic", v, "stack",
				string(debug.Stack()))
			err = fmt.Errorf("panicked: %v", v)
		}
	}()
	f()
	return nil
}

// waitForCallbacks waits for the user's functions that still run. It leaves behind those that
// ignore their context.
func (r *runner) waitForCallbacks() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(stopGrace):
		r.p.log.Warn("a function did not return when its context ended; leaving it behind")
	}
}
