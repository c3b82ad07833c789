package copilot

import (
	"errors"
	"strings"
	"testing"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"
)

// TestErrorOfTheSignInSaysWhatToDo, and no other error does.
func TestErrorOfTheSignInSaysWhatToDo(t *testing.T) {
	const none = "No GitHub OAuth token or Copilot HMAC key provided"
	for name, tt := range map[string]struct {
		s    *session
		d    rpc.SessionErrorData
		want string // behind the message
	}{
		"nobody": {&session{}, rpc.SessionErrorData{ErrorType: "query", Message: none},
			"copilot login"},
		"no more": {&session{}, rpc.SessionErrorData{
			ErrorType: "authentication", Message: "expired",
		}, "copilot login"},
		"a token of its own": {
			&session{hasRequestToken: true, githubToken: "x"},
			rpc.SessionErrorData{ErrorType: "authentication", Message: "no"}, "--github-token-env",
		},
		"of the config": {&session{githubToken: "x"}, rpc.SessionErrorData{
			ErrorType: "authentication", Message: "no",
		}, "github_token_env in [copilot]"},
		"something else": {&session{}, rpc.SessionErrorData{ErrorType: "quota", Message: "used up"},
			""},
		"an endpoint": {&session{provider: &sdk.ProviderConfig{}}, rpc.SessionErrorData{
			ErrorType: "authentication", Message: "401",
		}, ""},
	} {
		got := tt.s.errorText(&tt.d)
		if rest, ok := strings.CutPrefix(got, tt.d.Message); !ok ||
			!strings.Contains(rest, tt.want) || tt.want == "" && rest != "" {
			t.Errorf("%s: %q, want %q and then %q", name, got, tt.d.Message, tt.want)
		}
	}
	for text, want := range map[string]bool{
		"GET /models: 401 Unauthorized": true, "Not authenticated": true,
		"connection refused": false,
	} {
		if got := signInHint(errors.New(text)); strings.Contains(got, "copilot login") != want {
			t.Errorf("%q: %q, want a hint: %v", text, got, want)
		}
	}
}
