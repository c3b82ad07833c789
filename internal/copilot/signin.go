package copilot

import (
	"strings"

	"github.com/github/copilot-sdk/go/rpc"
)

// HowToSignIn tells a person without a GitHub sign-in the ways to get a model: run copilot login,
// set a token variable, or use a model endpoint of their own. It is part of error messages and of
// tapgw doctor.
const HowToSignIn = "run `copilot login` (it comes with npm install -g @github/copilot), or " +
	"give the gateway " +
	"COPILOT_GITHUB_TOKEN, GH_TOKEN or GITHUB_TOKEN, then restart it: tapgw restart; " +
	"or use a model of your own: provider_url in [copilot] of tapgw.toml, or sessions start " +
	"--provider-url"

const notSignedIn = "not signed in to GitHub Copilot: " + HowToSignIn

// errorText is the message of an error of the runtime. If the sign-in is the reason, the text also
// names the remedy, which the runtime leaves out.
func (s *session) errorText(d *rpc.SessionErrorData) string {
	isSignIn := d.ErrorType == "authentication" ||
		strings.Contains(d.Message, "No GitHub OAuth token") ||
		deref(d.Remediation) == rpc.RemediationActionSignIn
	switch {
	case s.provider != nil || !isSignIn:
		return d.Message
	case s.hasRequestToken:
		return d.Message + "; the session's own GitHub token is not taken: " +
			"start it with another (sessions start --github-token-env NAME)"
	case s.githubToken != "":
		return d.Message +
			"; the GitHub token of the profile or of github_token_env in [copilot] is not taken: " +
			"correct the variable and restart the gateway (tapgw restart)"
	}
	return d.Message + "; " + notSignedIn
}

// signInHint returns the remedy for an error of GitHub that comes from the sign-in, else "".
func signInHint(err error) string {
	text := err.Error()
	for _, sign := range []string{"401", "Unauthorized", "Bad credentials", "uthenticat"} {
		if strings.Contains(text, sign) {
			return "; GitHub does not take the sign-in: " + HowToSignIn
		}
	}
	return ""
}
