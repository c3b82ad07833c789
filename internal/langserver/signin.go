package langserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tapgw/internal/jsonrpc"
)

// SignIn says whether a user is signed in who may use Copilot. User is the GitHub login, "" without
// a signed-in user. If OK is false, State says why.
type SignIn struct {
	OK    bool
	User  string
	State string // the server's word: OK, NotSignedIn, NotAuthorized, …
}

// Status asks the server who is signed in. The first call after [Start] waits for GitHub's answer.
// A user who is not signed in is no error: SignIn.OK is false.
func (c *Client) Status(ctx context.Context) (SignIn, error) {
	var s struct{ Status, User string }
	if err := c.call(ctx, "checkStatus", nil, &s); err != nil {
		return SignIn{}, err
	}
	return SignIn{OK: signedIn(s.Status), User: s.User, State: s.Status}, nil
}

func signedIn(state string) bool { return state == "OK" || state == "MaybeOK" }

// Device says how a person signs in: by typing Code into the page URL before Expires, a time from
// now, has passed.
type Device struct {
	Code    string
	URL     string
	Expires time.Duration
}

// Login signs a user in with GitHub's device flow and returns the GitHub login. It calls show once
// with the code and the page for the person, but not if a user is signed in already, and waits
// until the person has signed in, the server gives up or ctx ends. The server stores the sign-in,
// and editors on this machine share it.
func (c *Client) Login(ctx context.Context, show func(Device)) (user string, err error) {
	var in struct {
		Status, User              string
		UserCode, VerificationURI string
		ExpiresIn                 int
		Command                   struct {
			Command   string `json:"command"`
			Arguments []any  `json:"arguments"`
		}
	}
	if err := c.call(ctx, "signIn", nil, &in); err != nil {
		return "", deviceFlowError(err)
	}
	if in.Status == "AlreadySignedIn" {
		return in.User, nil
	}
	if in.UserCode == "" {
		return "", fmt.Errorf("signing in: the language server gave no code (%s)", in.Status)
	}
	show(Device{Code: in.UserCode, URL: in.VerificationURI,
		Expires: time.Duration(in.ExpiresIn) * time.Second})
	var done struct{ Status, User string }
	if err := c.call(ctx, "workspace/executeCommand", in.Command, &done); err != nil {
		return "", deviceFlowError(err)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("signing in: %w", context.Cause(ctx))
	}
	if !signedIn(done.Status) {
		return "", fmt.Errorf("signing in: GitHub says %s", done.Status)
	}
	return done.User, nil
}

// deviceFlowError adds advice to an error of the device flow.
func deviceFlowError(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == codeDeviceFlow {
		return fmt.Errorf("signing in: %w; check network and proxy (HTTPS_PROXY)", e)
	}
	return err
}

// Logout signs the user out, also for editors on this machine. A sign-in by an environment variable
// such as GH_COPILOT_TOKEN stays.
func (c *Client) Logout(ctx context.Context) error {
	return c.call(ctx, "signOut", nil, nil)
}
