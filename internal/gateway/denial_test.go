package gateway

import "testing"

// A denial names who denies, once, and no provider passes for another.
func TestDenialNamesItsProvider(t *testing.T) {
	for _, tt := range []struct {
		by, reason, want string
	}{
		{"provider ci", "the build is red", "provider ci: the build is red"},
		{"provider ci", "provider ci-admin: no", "provider ci: provider ci-admin: no"},
		{"provider ci", "Denied by a rule of provider 'ci'.", "Denied by a rule of provider 'ci'."},
		{"provider ci", "Gate provider 'ci' did not respond in time.",
			"Gate provider 'ci' did not respond in time."},
		{"provider c", "Denied by gate provider 'ci'.",
			"provider c: Denied by gate provider 'ci'."},
		{"hook hooks[0] (x.sh)", "no", "hook hooks[0] (x.sh): no"},
		{"hook hooks[0] (x.sh)", "Denied by hook hooks[0] (x.sh).",
			"Denied by hook hooks[0] (x.sh)."},
		{"hook hooks[0] (x.sh)", "Hook hooks[0] (x.sh) did not answer in time.",
			"Hook hooks[0] (x.sh) did not answer in time."},
		{"the gateway", rulesTooFast, rulesTooFast},
		{"provider ci", "", "provider ci: denied"},
	} {
		if got := (Decision{Deny: true, By: tt.by, Reason: tt.reason}).Denial(); got != tt.want {
			t.Errorf("%s, %q: %q, want %q", tt.by, tt.reason, got, tt.want)
		}
	}
}
