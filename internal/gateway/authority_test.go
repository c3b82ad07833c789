package gateway

import "testing"

// TestMatrix holds the capability matrix of docs/adr/0002-tokens-and-trust.md against
// [identity.may], row by row, and the grants of provider files.
func TestMatrix(t *testing.T) {
	all := []capability{mayGate, mayCallback, mayTransform, mayContext, mayReadOthers, mayHearMessages, mayBindAll}
	tests := []struct {
		name string
		id   identity
		may  []capability
	}{
		{"internal", identity{trust: TrustInternal}, all},
		{"project", identity{trust: TrustProject},
			[]capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages}},
		{"external", identity{trust: TrustExternal}, nil},
		{"external with transforms", identity{trust: TrustExternal, grants: []string{"transforms"}},
			[]capability{mayCallback, mayTransform}},
		{"external with gates", identity{trust: TrustExternal, grants: []string{"gates"}}, []capability{mayGate}},
		{"external with context", identity{trust: TrustExternal, grants: []string{"context"}},
			[]capability{mayContext}},
		{"external with all three", identity{trust: TrustExternal, grants: []string{"transforms", "gates", "context"}},
			[]capability{mayGate, mayCallback, mayTransform, mayContext}},
		{"project for all sessions", identity{trust: TrustProject, grants: []string{"all"}},
			[]capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages, mayBindAll}},
		{"a word that is none", identity{trust: TrustExternal, grants: []string{"everything", ""}}, nil},
		{"no trust at all", identity{}, nil},
	}
	for _, tt := range tests {
		for _, c := range all {
			want := false
			for _, m := range tt.may {
				want = want || m == c
			}
			if got := tt.id.may(c); got != want {
				t.Errorf("%s: capability %d is %v, want %v", tt.name, c, got, want)
			}
		}
	}
}
