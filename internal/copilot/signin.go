package copilot

import (
	"strings"

	"github.com/github/copilot-sdk/go/rpc"
)

// HowToSignIn is what to do without a GitHub sign-in.
const HowToSignIn = "run `copilot login` (it comes with npm install -g @github/copilot), or give the gateway " +
	"COPILOT_GITHUB_TOKEN, GH_TOKEN or GITHUB_TOKEN, then restart it: tapgw restart; " +
	"or use a model of your own: provider_url in [copilot] of tapgw.toml, or sessions start --provider-url"

const notSignedIn = "not signed in to GitHub Copilot: " + HowToSignIn

// errorText is what a session says of an error of its runtime: with what to do, where
// it is the sign-in, of which the runtime does not say how.
func (s *session) errorText(d *rpc.SessionErrorData) string {
	isSignIn := d.ErrorType == "authentication" || strings.Contains(d.Message, "No GitHub OAuth token") ||
		d.Remediation != nil && *d.Remediation == rpc.RemediationActionSignIn
	switch {
	case s.provider != nil || !isSignIn:
		return d.Message
	case s.hasRequestToken:
		return d.Message + "; the session's own GitHub token is not taken: start it with another (sessions start --github-token-env NAME)"
	case s.githubToken != "":
		return d.Message + "; the GitHub token of the profile or of github_token_env in [copilot] is not taken: correct the variable and restart the gateway (tapgw restart)"
	}
	return d.Message + "; " + notSignedIn
}

// signInHint is what to do about an error of GitHub's that is one of the sign-in, else "".
func signInHint(err error) string {
	text := err.Error()
	for _, sign := range []string{"401", "Unauthorized", "Bad credentials", "uthenticat"} {
		if strings.Contains(text, sign) {
			return "; GitHub does not take the sign-in: " + HowToSignIn
		}
	}
	return ""
}
