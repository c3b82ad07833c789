package langserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tapgw/internal/jsonrpc"
)

// SignIn is whether somebody is signed in.
type SignIn struct {
	OK    bool
	User  string
	State string // in the server's words: OK, NotSignedIn, NotAuthorized, …
}

// Status asks the server who is signed in. The first time it waits for GitHub's
// answer.
func (c *Client) Status(ctx context.Context) (SignIn, error) {
	var s struct{ Status, User string }
	if err := c.call(ctx, "checkStatus", nil, &s); err != nil {
		return SignIn{}, err
	}
	return SignIn{OK: signedIn(s.Status), User: s.User, State: s.Status}, nil
}

func signedIn(state string) bool { return state == "OK" || state == "MaybeOK" }

// Device is how a person signs in: with this code on that page.
type Device struct {
	Code    string
	URL     string
	Expires time.Duration
}

// Login signs in by the device flow. show tells the person what to do; it is not
// called when somebody is signed in already. The sign-in is the server's to keep,
// for other editors, too.
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
		return "", flow(err)
	}
	if in.Status == "AlreadySignedIn" {
		return in.User, nil
	}
	if in.UserCode == "" {
		return "", fmt.Errorf("signing in: the language server gave no code (%s)", in.Status)
	}
	show(Device{Code: in.UserCode, URL: in.VerificationURI, Expires: time.Duration(in.ExpiresIn) * time.Second})
	var done struct{ Status, User string }
	if err := c.call(ctx, "workspace/executeCommand", in.Command, &done); err != nil {
		return "", flow(err)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("signing in: %w", context.Cause(ctx))
	}
	if !signedIn(done.Status) {
		return "", fmt.Errorf("signing in: GitHub says %s", done.Status)
	}
	return done.User, nil
}

// flow words an error of the device flow.
func flow(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == codeDeviceFlow {
		return fmt.Errorf("signing in: %w; check network and proxy (HTTPS_PROXY)", e)
	}
	return err
}

// Logout signs out, for other editors, too. A sign-in by a variable of the
// environment stays.
func (c *Client) Logout(ctx context.Context) error {
	return c.call(ctx, "signOut", nil, nil)
}
