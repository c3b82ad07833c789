//go:build runtime

package langserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/taptest/cloud"
)

// signedOut takes the sign-in away from a server and leads it to the stand-in
// through its proxy.
func signedOut(o *Options, c *cloud.Cloud) {
	for name := range c.Env() {
		delete(o.Env, name)
	}
	o.Proxy = Proxy{URL: c.Proxy, Auth: "user:pass", Insecure: true}
}

func TestSignIn(t *testing.T) {
	var shown []string
	r := newRig(t, signedOut, func(o *Options, _ *cloud.Cloud) {
		o.Open = func(url string) { shown = append(shown, url) }
	})
	if s, err := r.Status(within(t)); err != nil || s.OK || s.State != "NotSignedIn" {
		t.Fatalf(`at first: %+v %v, want "NotSignedIn"`, s, err)
	}
	_, err := r.NewConversation(ConversationOptions{Model: "scripted"}).Turn(within(t), "hello",
		nil)
	if !errors.Is(err, ErrNotSignedIn) {
		t.Errorf("a turn: %v, want %v", err, ErrNotSignedIn)
	}

	// Denied, given up, and done.
	r.cloud.Deny()
	if _, err := r.Login(within(t), func(Device) {}); err == nil ||
		!strings.HasPrefix(err.Error(), "signing in: ") ||
		!strings.Contains(err.Error(), "denied") || strings.Contains(err.Error(), "\n") {
		t.Errorf(`denied: %v, want "signing in: " and "denied" in one line`, err)
	}
	r.cloud.Pend()
	ctx, cancel := context.WithCancel(within(t))
	if _, err := r.Login(ctx, func(Device) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v, want %v", err, context.Canceled)
	}
	var device Device
	user, err := r.Login(within(t), func(d Device) {
		device = d
		r.cloud.Approve()
	})
	if err != nil || user != cloud.User {
		t.Fatalf("signing in: %q %v, want %q", user, err, cloud.User)
	}
	if device.Code != cloud.UserCode || !strings.HasPrefix(device.URL, "https://github.com/") ||
		device.Expires <= 0 {
		t.Errorf(
			"the person is shown %+v, want the code %v and an address of GitHub, for a time",
			device, cloud.UserCode,
		)
	}
	if !slices.Contains(shown, device.URL) {
		t.Errorf("opened %q, want %q", shown, device.URL)
	}
	if s, err := r.Status(within(t)); err != nil || !s.OK || s.User != cloud.User {
		t.Errorf("after: %+v %v, want %s signed in", s, err, cloud.User)
	}
	again, err := r.Login(within(t), func(Device) { t.Error("asked again, want no question") })
	if err != nil || again != user {
		t.Errorf("a second time: %q %v, want %q", again, err, user)
	}
	if result, _ := r.mustTurn(t, "hello"); result.Text != "You said: hello" {
		t.Errorf(`a turn: %+v, want "You said: hello"`, result)
	}
	tunnels := r.cloud.Tunnels()
	if !slices.Contains(tunnels, cloud.Tunnel{Host: "github.com:443", Auth: "user:pass"}) {
		t.Errorf("through the proxy came %v, want a tunnel to github.com:443 of user:pass", tunnels)
	}
	if err := r.Logout(within(t)); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Status(within(t)); err != nil || s.OK {
		t.Errorf("signed out: %+v %v, want nobody signed in", s, err)
	}
}

// With an enterprise server all requests go there.
func TestEnterprise(t *testing.T) {
	r := newRig(t, signedOut, func(o *Options, _ *cloud.Cloud) {
		o.Enterprise = "https://ghe.example"
	})
	r.cloud.Approve()
	user, err := r.Login(within(t), func(Device) {})
	if err != nil || user != cloud.User {
		t.Fatalf("signing in: %q %v, want %q", user, err, cloud.User)
	}
	r.mustTurn(t, "hello")
	enterprise := false
	for _, tunnel := range r.cloud.Tunnels() {
		enterprise = enterprise || tunnel.Host == "ghe.example:443"
		if tunnel.Host == "github.com:443" {
			t.Error("github.com was asked, want only the enterprise's host")
		}
	}
	if !enterprise {
		t.Errorf("through the proxy came %v, want one to the enterprise's host", r.cloud.Tunnels())
	}
}

// A user without a subscription gets that reason, not "not signed in".
func TestNotAuthorized(t *testing.T) {
	r := newRig(t, func(_ *Options, c *cloud.Cloud) { c.Refuse(http.StatusForbidden) })
	if s, err := r.Status(within(t)); err != nil || s.OK || s.State != "NotAuthorized" ||
		s.User != cloud.User {
		t.Errorf(`%+v %v, want "NotAuthorized" for %s`, s, err, cloud.User)
	}
	if _, _, err := r.turn(t, "hello"); !errors.Is(err, ErrNotSignedIn) {
		t.Errorf("a turn: %v, want %v", err, ErrNotSignedIn)
	}
}

func TestComplete(t *testing.T) {
	r := shared(t)
	r.cloud.SetCompletion(`return "hello"`)
	const text = "package x\n\nfunc greeting() string {\n\t\n}\n"
	list, err := r.Complete(within(t), r.workspace+"/x.go", "go", text,
		Position{Line: 3, Character: 1})
	if err != nil || len(list) == 0 || !strings.Contains(list[0].Text, `return "hello"`) ||
		list[0].Start.Line != 3 {
		t.Errorf(`%+v %v, want one in line 3 with return "hello"`, list, err)
	}
	if len(r.docs.open) != 0 {
		t.Errorf("still open: %v, want none", r.docs.open)
	}
}
