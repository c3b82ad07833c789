package conformance

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Our own gateway keeps every rule, and nothing of the kit stays in it.
func TestGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGatewayRig(t)
		defer rig.stop(t)
		report, err := Gateway(t.Context(), rig.options(rig.pipes), func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Outcome != Passed {
				t.Errorf("rule %s: %s %s%s, want passed", r.ID, r.Outcome, r.Explanation(), r.Reason)
			}
		}
		synctest.Wait()
		if n := len(rig.gateway.Sessions()); n != 0 {
			t.Errorf("%d sessions after the run, want 0", n)
		}
		if all := rig.gateway.Providers(); len(all) != 0 {
			t.Errorf("providers after the run: %v, want none", all)
		}
		left, err := filepath.Glob(filepath.Join(rig.persist, "*"))
		if err != nil || len(left) != 0 {
			t.Errorf("directories after the run: %v, %v, want none", left, err)
		}
	})
}

// A run that is stopped leaves nothing behind.
func TestGatewayStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGatewayRig(t)
		defer rig.stop(t)
		ctx, cancel := context.WithCancel(t.Context())
		results := 0
		report, err := Gateway(ctx, rig.options(rig.pipes), func(Result) {
			if results++; results == 3 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) || report == nil || len(report.Results) != 3 {
			t.Errorf("got %v, %v, want a report of 3 rules and %v", report, err, context.Canceled)
		}
		synctest.Wait()
		if n, all := len(rig.gateway.Sessions()), rig.gateway.Providers(); n != 0 || len(all) != 0 {
			t.Errorf("%d sessions and the providers %v after the run, want none", n, all)
		}
	})
}

// A run that is stopped while a gateway still answers a hello removes the directory of that provider, too.
func TestGatewayStoppedDuringHello(t *testing.T) {
	for _, n := range []int{1, 2, 7, 20} {
		synctest.Test(t, func(t *testing.T) {
			rig := newGatewayRig(t)
			defer rig.stop(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var made atomic.Int32
			making := func() {
				if made.Add(1) == int32(n) {
					cancel()
					<-time.After(10 * time.Millisecond) // the kit has noticed that it is stopped
				}
			}
			rig.making.Store(&making)
			if _, err := Gateway(ctx, rig.options(rig.pipes), func(Result) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("after directory %d: %v, want %v", n, err, context.Canceled)
			}
			synctest.Wait()
			left, err := filepath.Glob(filepath.Join(rig.persist, "*"))
			if err != nil || len(left) != 0 {
				t.Errorf("directories after the run: %v, %v, want none", left, err)
			}
		})
	}
}

// Without session hosts, only the rules that need no session are judged.
func TestGatewayWithoutHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newFaultyGateway(t, &gatewayFault{request: func(r *http.Request) {
			if r.URL.Path == "/host" {
				r.URL.Path = "/no/such"
			}
		}})
		defer g.stop(t)
		report, err := Gateway(t.Context(), g.rig.options(g.pipes), func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		outcomes := map[string]Outcome{}
		for _, r := range report.Results {
			outcomes[r.ID] = r.Outcome
			if r.Outcome == Failed {
				t.Errorf("rule %s: %s, want passed or skipped", r.ID, r.Explanation())
			}
		}
		if outcomes["auth.first"] != Passed || outcomes["call.once"] != Skipped {
			t.Errorf(
				"auth.first %s, call.once %s, want passed and skipped",
				outcomes["auth.first"],
				outcomes["call.once"],
			)
		}
	})
}

// A gateway whose messages have a wrong value here and there fails rules, and nothing else happens.
func TestGatewayNonsense(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			nonsense := func(_ *proxied, m message) []message {
				if rand.IntN(8) == 0 {
					spoil(m)
				}
				return []message{m}
			}
			g := newFaultyGateway(t, &gatewayFault{fromGateway: nonsense})
			defer g.stop(t)
			report, err := Gateway(t.Context(), g.rig.options(g.pipes), func(Result) {})
			if err != nil {
				t.Fatal(err)
			}
			if report.Failed == 0 {
				t.Errorf("%d rules passed and none failed, want some that fail", report.Passed)
			}
		})
	}
}

// spoil puts a wrong value in place of one value of an object, at any depth.
func spoil(object map[string]any) {
	wrong := []any{7, nil, "\x1b[2J", []any{}, []any{[]any{}}, map[string]any{}, map[string]any{"": 1}, false}
	keys := slices.Collect(maps.Keys(object))
	if len(keys) == 0 {
		return
	}
	key := keys[rand.IntN(len(keys))]
	switch v := object[key].(type) {
	case map[string]any:
		if rand.IntN(2) == 0 {
			spoil(v)
			return
		}
	case []any:
		if rand.IntN(2) == 0 && len(v) > 0 {
			v[rand.IntN(len(v))] = wrong[rand.IntN(len(wrong))]
			return
		}
	}
	object[key] = wrong[rand.IntN(len(wrong))]
}
