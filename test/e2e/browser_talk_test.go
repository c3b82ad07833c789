//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
)

// talk is a connection of a page that says what the test wants.
type talk struct {
	b    *tab
	name string // of a variable of the page
}

// talker opens a page with connections of its own making.
func (s *pageStage) talker() *tab {
	s.t.Helper()
	return s.profile.open(s.pages + "/talk.html")
}

// talk opens a connection.
func (b *tab) talk(name, address string) *talk {
	b.t.Helper()
	eval[any](b, "void (window[%s] = new Talk(%s))", name, address)
	return &talk{b, name}
}

// ask sends a message and returns the next one of the types.
func (c *talk) ask(m message, types ...string) message {
	c.b.t.Helper()
	return eval[message](c.b, "window[%s].ask(%s, ...%s)", c.name, m, types)
}

// checkRefused sends a message that must be answered with an error of that code.
func (c *talk) checkRefused(m message, code string) message {
	c.b.t.Helper()
	e := c.ask(m, "error", "sessions", "auth.pairing", "hello.ack", "ack", "stream.history")
	if e["code"] != code || e["replyTo"] != m["type"] {
		c.b.t.Errorf("%v gets %v, want %s", m, e, code)
	}
	return e
}

// isOpen reports whether the connection came about.
func (c *talk) isOpen() bool {
	c.b.t.Helper()
	return eval[bool](c.b, "window[%s].opened", c.name)
}

// waitClosed waits for the end of the connection and returns its code.
func (c *talk) waitClosed() int {
	c.b.t.Helper()
	return eval[int](c.b, "window[%s].closed", c.name)
}

// checkOpen checks that the connection is open.
func (c *talk) checkOpen(what string) {
	c.b.t.Helper()
	if state := eval[int](c.b, "window[%s].ws.readyState", c.name); state != 1 {
		c.b.t.Errorf("%s: the connection is in state %d, want 1", what, state)
	}
}

// pairs pairs a connection and returns the answer to the right code.
func (s *pageStage) pairTalk(c *talk) message {
	s.t.Helper()
	c.ask(message{"type": "auth", "mode": "pair", "name": "page"}, "auth.pairing")
	return c.ask(message{"type": "auth.confirm", "code": s.pairing().Code}, "sessions", "error")
}

func pairingIsGuarded(t *testing.T, s *pageStage) {
	// A user who mistypes is asked again, over a new connection.
	b := s.provider("Page")
	b.waitPrompt()
	code := s.pairing().Code
	b.answer(otherCode(code))
	if again := s.pairAndBind(b).Code; again == code {
		t.Log("the same code twice: one chance in a million")
	}
	if codes := eval[[]string](b, "codes"); len(codes) != 1 || codes[0] != "AUTH_FAILED" {
		t.Errorf(`a wrong code gets %q, want 1 of them and "AUTH_FAILED"`, codes)
	}
	b.shut()

	// The page is not told the code, and has one try.
	b = s.talker()
	auth := message{"type": "auth", "mode": "pair", "name": "page"}
	k := b.talk("third", s.g.url)
	asked := k.ask(auth, "auth.pairing")
	pending := s.pairing()
	if pending.Provider != "page" || len(pending.Code) != 6 {
		t.Errorf(`the pairing is %+v, want "page" with a code of 6 letters`, pending)
	}
	if text, _ := json.Marshal(asked); strings.Contains(string(text), pending.Code) {
		t.Errorf("the page is told its code: %s, want no code in it", text)
	}
	k.checkRefused(message{"type": "auth.confirm", "code": otherCode(pending.Code)}, "AUTH_FAILED")
	if code := k.waitClosed(); code != 1008 {
		t.Errorf("a wrong code is closed with %d, want 1008", code)
	}
	if list := s.tapctl("pair", "--json"); list != "[]" {
		t.Errorf("after a wrong code these wait: %s, want %q", list, "[]")
	}

	// A code is its own connection's.
	k = b.talk("fourth", s.g.url)
	k.ask(auth, "auth.pairing")
	fourth := s.pairing().Code
	k = b.talk("fifth", s.g.url)
	k.ask(auth, "auth.pairing")
	fifth := ""
	for _, p := range decode[[]adminapi.Pairing](t, s.tapctl("pair", "--json")) {
		if p.Code != fourth {
			fifth = p.Code
		}
	}
	k.checkRefused(message{"type": "auth.confirm", "code": fourth}, "AUTH_FAILED")
	if code := k.waitClosed(); code != 1008 {
		t.Errorf("another connection's code is closed with %d, want 1008", code)
	}
	if (&talk{b, "fourth"}).checkRefused(message{"type": "auth.confirm", "code": fifth},
		"AUTH_FAILED"); fifth == "" {
		t.Error("the fifth pairing had no code, want one")
	}

	// The minute's five are used up: the page may stay, but has to wait.
	k = b.talk("sixth", s.g.url)
	for range 2 {
		k.checkRefused(auth, "RATE_LIMITED")
		k.checkOpen("a page that pairs too often")
	}
}

// otherCode is a code that is not the right one.
func otherCode(code string) string {
	if code == "000000" {
		return "000001"
	}
	return "000000"
}

func stolenTokens(t *testing.T, s *pageStage) {
	b := s.talker()
	for _, file := range []string{".provider-token", ".admin-token"} {
		k := b.talk(file, s.g.url)
		k.checkRefused(message{"type": "auth", "token": s.read(file)}, "AUTH_FAILED")
		if code := k.waitClosed(); code != 1008 {
			t.Errorf("a page with the %s is closed with %d, want 1008", file, code)
		}
	}

	guess := func(prefix string, times int) {
		for n := range times {
			k := b.talk("guess", s.g.url)
			k.checkRefused(message{"type": "auth", "token": fmt.Sprintf("%s%032x", prefix, n)},
				"AUTH_FAILED")
			k.waitClosed()
		}
	}
	// Pages outlive their tokens, and try them again and again.
	guess("ext-tok-", 21)
	if !b.talk("stale", s.g.url).isOpen() {
		t.Error("after 21 tokens of other sessions the page may not connect, want it let in")
	}
	// One that guesses locks out nobody, no other page either.
	guess("ptk-", 30)
	if !b.talk("another page", s.g.url).isOpen() {
		t.Error("after 31 wrong tokens of a page no page may connect, want another one let in")
	}
	if r := s.run(tapctl, "status"); r.code != 0 {
		t.Errorf("after 21 wrong tokens of a page its user is told: %s, want success", r.stderr)
	}
	s.g.peer(s.session, "neighbour", message{"name": "tool"})
}

// pageRequests: from its own origin a page gets nowhere but to the providers'
// endpoint, whatever it knows.
func pageRequests(t *testing.T, s *pageStage) {
	b := s.talker()
	at := "http" + strings.TrimPrefix(s.g.url, "ws")
	admin := s.read(".admin-token")
	for _, path := range []string{"/api/v1/status", "/api/v1/pairings", "/metrics", "/host",
		"/nowhere", "/healthz",
		"/"} {
		for _, c := range []struct {
			what    string
			options message
		}{
			{"plain", message{}},
			{"with the admin token",
				message{"headers": message{"Authorization": "Bearer " + admin}}},
			{"post", message{"method": "POST", "body": "{}"}},
			{"delete", message{"method": "DELETE"}},
			{"post that is not read", message{"method": "POST", "body": "{}", "mode": "no-cors",
				"headers": message{"Authorization": "Bearer " + admin}}},
		} {
			before := len(b.answers())
			got := eval[reading](b, "read(%s, %s)", at+path, c.options)
			if got.Status != 0 || got.Text != "" || len(got.Headers) != 0 {
				t.Errorf("%s, %s: the page learns %+v, want no status, text or header", path,
					c.what, got)
			}
			for _, status := range b.statuses(before) {
				if status != 403 {
					t.Errorf("%s, %s: the gateway answers %d, want 403", path, c.what, status)
				}
			}
		}

		// A request that the browser gives no Origin, but Sec-Fetch-Site.
		before := len(b.answers())
		got := eval[reading](b, "read(%s, %s)", at+path,
			message{"mode": "no-cors", "headers": message{"Authorization": "Bearer " + admin}})
		if (got.Type != "opaque" && got.Type != "refused") || got.Status != 0 || got.Text != "" ||
			len(got.Headers) != 0 {
			t.Errorf(
				`%s, not read: the page learns %+v, want "opaque" or "refused" without status, text or header`,
				path, got,
			)
		}
		for _, status := range b.statuses(before) {
			if status != 403 {
				t.Errorf("%s, not read: the gateway answers %d, want 403", path, status)
			}
		}
	}
	for _, r := range b.answers() {
		for name := range r.Headers {
			if strings.HasPrefix(strings.ToLower(name), "access-control-") {
				t.Errorf(
					"an answer of status %d has the header %s, want none that lets pages read it",
					r.StatusCode, name,
				)
			}
		}
	}

	for _, path := range []string{"/host", "/nowhere", "/api/v1/status"} {
		k := b.talk(path, s.g.url+path)
		if k.isOpen() {
			t.Errorf("a page may connect to %s, want a refusal", path)
		}
		k.waitClosed()
	}
	if k := b.talk("provider", s.g.url); !k.isOpen() {
		t.Error("a page may not connect as a provider, want it let in")
	}
}
