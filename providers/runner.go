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

	"tapgw/internal/protocol"
)

const (
	firstWait = 200 * time.Millisecond
	maxWait   = 5 * time.Second
	// refusedWait is how long a refused token is not shown again: the gateway
	// locks out an address that shows too many wrong ones, and all providers
	// of a machine share theirs.
	refusedWait = 30 * time.Second
	// stopGrace is how long Run waits for functions of the user's that run
	// when its context ends.
	stopGrace = 5 * time.Second
)

// errRefused: the gateway does not know the token.
var errRefused = errors.New("the gateway refused the token")

// runner is one run of a provider. All but wg, calls and events belongs to the
// goroutine that called Run.
type runner struct {
	p        *Provider
	metadata protocol.Raw
	calls    *dispatcher
	events   *sequences
	wg       sync.WaitGroup // every goroutine of the run

	reconnect reconnect
	session   string                 // the last bound session, while it lives
	prepared  map[string]bool        // sessions that PrepareSession has run for
	refused   map[endpoint]time.Time // when a token was refused
	failing   bool                   // no connection came about since this was last said
	last      chan struct{}          // the latest callback has returned
}

// reconnect restores a binding after its connection was lost.
type reconnect struct {
	token string
	to    endpoint
	until time.Time // zero while the connection is up
}

func newRunner(p *Provider, metadata protocol.Raw) *runner {
	r := &runner{p: p, metadata: metadata, refused: map[endpoint]time.Time{}, prepared: map[string]bool{}}
	spawn := func(f func()) { r.wg.Go(f) }
	r.calls = &dispatcher{limit: p.opts.MaxCalls, spawn: spawn}
	r.events = &sequences{spawn: spawn, next: map[string][]func(){}}
	return r
}

// run connects again and again.
func (r *runner) run(ctx context.Context) error {
	defer r.settle()
	for attempt := 0; ; attempt++ {
		lasted, err := r.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if fatal, ok := errors.AsType[fatalError](err); ok {
			return fatal.error
		}
		if lasted >= maxWait {
			attempt = 0
		}
		wait := backoff(attempt)
		r.failed(err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// backoff grows from 0.2 s by half each time, to 5 s; the jitter only shortens
// it, so that a new gateway is found within 5 s.
func backoff(attempt int) time.Duration {
	d := firstWait
	for range attempt {
		if d = d * 3 / 2; d > maxWait {
			d = maxWait
			break
		}
	}
	return d/2 + rand.N(d/2) //nolint:gosec // nobody gains by guessing it
}

// round tries every endpoint once, until one lets the provider in; that
// connection lasts as long as it can. It returns how long it did.
func (r *runner) round(ctx context.Context) (lasted time.Duration, err error) {
	found, err := r.p.endpoints()
	if err != nil {
		return 0, err
	}
	err = nil
	for _, e := range found {
		if at, ok := r.refused[e]; ok && time.Since(at) < refusedWait {
			err = errors.Join(err, fmt.Errorf("%s: %w before", e.url, errRefused))
			continue
		}
		lasted, in, cerr := r.connect(ctx, e)
		if in || ctx.Err() != nil {
			return lasted, cerr
		}
		if _, ok := errors.AsType[fatalError](cerr); ok {
			return 0, cerr
		}
		err = errors.Join(err, cerr)
	}
	return 0, err
}

// connect connects to e and serves; in says whether the gateway let it in. A
// reconnect token is tried first; when it is refused, the token follows at once.
func (r *runner) connect(ctx context.Context, e endpoint) (lasted time.Duration, in bool, err error) {
	if t := r.reconnect; t.token != "" && t.to == e && time.Now().Before(t.until) {
		lasted, in, err = r.serve(ctx, e, t.token)
		if in || !errors.Is(err, errRefused) {
			return lasted, in, err
		}
	}
	r.reconnect = reconnect{}
	lasted, in, err = r.serve(ctx, e, "")
	if errors.Is(err, errRefused) {
		switch {
		case e.paired():
			return 0, false, fatalError{fmt.Errorf("%w: %w", ErrNotPaired, err)}
		case e.given:
			return 0, false, fatalError{fmt.Errorf("%w; check Options.Token", err)}
		}
		r.refused[e] = time.Now()
	}
	return lasted, in, err
}

// failed tells of the end of a connection, or that none comes about: once, not
// at every attempt.
func (r *runner) failed(err error, wait time.Duration) {
	if r.failing {
		r.p.log.Debug("not connected", "error", err, "again", wait)
		return
	}
	r.failing = true
	r.p.log.Warn("not connected; trying again", "error", err)
	r.report(err)
}

// report tells the user's OnError.
func (r *runner) report(err error) {
	if f := r.p.opts.OnError; f != nil {
		r.callback(func() { f(err) })
	}
}

// callback runs f on a goroutine of its own after the callbacks before it, and
// returns a channel that is closed when it has returned.
func (r *runner) callback(f func()) <-chan struct{} {
	before, done := r.last, make(chan struct{})
	r.last = done
	r.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		guard(r.p.log, f)
	})
	return done
}

// guard runs a function of the user's; its panic ends nothing else.
func guard(log *slog.Logger, f func()) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("callback panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// settle waits for the user's functions that still run; those that don't heed
// their context are left behind.
func (r *runner) settle() {
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
