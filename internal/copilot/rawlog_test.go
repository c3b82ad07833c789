package copilot

import (
	"slices"
	"testing"

	sdk "github.com/github/copilot-sdk/go"
)

func TestSecrets(t *testing.T) {
	s := &session{githubToken: "gho_0123456789", provider: &sdk.ProviderConfig{
		APIKey: `key-with-"quotes"`, BearerToken: "short",
		Headers: map[string]string{"Authorization": "Bearer 0123456789",
			"Accept": "application/json"},
	}}
	got := s.secrets()
	slices.Sort(got)
	if want := []string{"0123456789", "Bearer 0123456789", "gho_0123456789",
		`key-with-\"quotes\"`}; !slices.Equal(
		got, want,
	) {
		t.Errorf("the secrets are %q, not %q", got, want)
	}
	if got := (&session{}).secrets(); len(got) > 0 {
		t.Errorf("a session without an endpoint of its own has %q, want none", got)
	}
}
