package gateway

import "testing"

// TestMatrix holds the capability matrix of docs/adr/0002-tokens-and-trust.md against
// [identity.may], row by row, and the grants of provider files.
func TestMatrix(t *testing.T) {
	all := []capability{mayGate, mayCallback, mayTransform, mayContext, mayReadOthers,
		mayHearMessages, mayBindAll}
	tests := []struct {
		name string
		id   PassSpec
		may  []capability
	}{
		{"internal", PassSpec{Trust: TrustInternal}, all},
		{"project", PassSpec{Trust: TrustProject},
			[]capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages}},
		{"external", PassSpec{Trust: TrustExternal}, nil},
		{"external with transforms", PassSpec{Trust: TrustExternal, Grants: []string{"transforms"}},
			[]capability{mayCallback, mayTransform}},
		{"external with gates", PassSpec{Trust: TrustExternal, Grants: []string{"gates"}},
			[]capability{mayGate}},
		{"external with context", PassSpec{Trust: TrustExternal, Grants: []string{"context"}},
			[]capability{mayContext}},
		{"external with all three",
			PassSpec{Trust: TrustExternal, Grants: []string{"transforms", "gates", "context"}},
			[]capability{mayGate, mayCallback, mayTransform, mayContext}},
		{"project for all sessions", PassSpec{Trust: TrustProject, Grants: []string{"all"}},
			[]capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages,
				mayBindAll}},
		{"a word that is none", PassSpec{Trust: TrustExternal, Grants: []string{"everything", ""}},
			nil},
		{"no trust at all", PassSpec{}, nil},
	}
	for _, tt := range tests {
		id := identity{PassSpec: tt.id}
		for _, c := range all {
			want := false
			for _, m := range tt.may {
				want = want || m == c
			}
			if got := id.may(c); got != want {
				t.Errorf("%s: capability %d is %v, want %v", tt.name, c, got, want)
			}
		}
	}
}
