package conformance

import (
	"path/filepath"
	"testing"
	"testing/synctest"
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
