package main

import (
	"context"
	"fmt"
	"time"

	"tapgw/providers"
)

// gate decides about git push.
func (w *watcher) gate(ctx context.Context, _ providers.GateCall) (providers.Decision, error) {
	r, age, err := w.now(ctx)
	isFix := false
	if w.opts.fixes && r.state() == failed {
		if err := w.acquire(ctx); err != nil {
			return providers.Decision{}, err
		}
		defer w.release()
		if g, is := w.source.(*github); is {
			isFix = g.isNewer(ctx, r.Commit)
		}
	}
	return decide(r, err, age, isFix, w.opts), nil
}

// decide denies while CI is red. An old report counts as unknown: closed then denies, and open
// allows.
func decide(r report, err error, age time.Duration, isFix bool, o options) providers.Decision {
	red := r.failed()
	switch {
	case len(red) > 0 && isFix:
		return providers.AllowWith(fmt.Sprintf("CI is red on %s. This push must repair: %s.",
			r.where(), names(red)))
	case len(red) > 0:
		return providers.Deny(
			fmt.Sprintf("CI is red on %s. Failed: %s. Read ci_log and repair that first.",
				r.where(), names(red)))
	case err != nil && age > max(2*time.Minute, 3*o.interval) || err != nil && age == 0:
		if o.gate == gateOpen {
			return providers.AllowWith("The state of CI is unknown: " + clean(err.Error()))
		}
		return providers.Deny("The state of CI is unknown, so nothing is pushed: " +
			clean(err.Error()))
	case r.state() == running:
		return providers.AllowWith("CI is still running on " + r.where() + ".")
	}
	return providers.Allow()
}
