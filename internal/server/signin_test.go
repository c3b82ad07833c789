package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
)

// signinFixture is a server and a browser that keeps no cookie by itself and
// follows no redirect.
type signinFixture struct {
	*restFixture
	page string // the origin of the page
}

// signinFixtureOf makes the browser find the page's host, as browsers do by themselves.
func signinFixtureOf(f *restFixture) signinFixture {
	reached, _ := url.Parse(f.url)
	if transport := f.client.Transport.(*http.Transport); transport.DialContext == nil {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, reached.Host)
		}
	}
	return signinFixture{f, "http://" + f.server.pageHost(reached.Host)}
}

// send makes a request and returns the answer with its body read.
func (f signinFixture) send(
	method, target string, header http.Header, body ...string,
) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, target,
		strings.NewReader(strings.Join(body, "")))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	response, err := f.client.Transport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response, string(data)
}

func (f signinFixture) bearer() http.Header {
	return http.Header{"Authorization": {"Bearer " + f.gateway.AdminToken()}}
}

// link makes a sign-in link.
func (f signinFixture) link() string {
	f.t.Helper()
	response, body := f.send("POST", f.url+"/api/v1/signin-links", f.bearer())
	var link adminapi.SigninLink
	if err := json.Unmarshal([]byte(body), &link); err != nil || response.StatusCode != 201 {
		f.t.Fatalf("%s %s, want no error and StatusCode 201", response.Status, body)
	}
	if life := time.Until(link.ExpiresAt); life <= 0 || life > signinLinkLife ||
		!strings.HasPrefix(link.URL, f.page+"/signin?code=") {
		f.t.Errorf(
			"the link is %+v, want %s and a code, good for at most %v",
			link, f.page+"/signin?code=", signinLinkLife,
		)
	}
	return link.URL
}

// follow opens a link and returns the cookie, as a request sends it.
func (f signinFixture) follow(link string) string {
	f.t.Helper()
	response, body := f.send("GET", link,
		http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"},
			"Sec-Fetch-Dest": {"document"}})
	if response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/" {
		f.t.Fatalf(`the link answers %s %s, want %d to "/"`, response.Status, body,
			http.StatusSeeOther)
	}
	c := response.Cookies()
	u, _ := url.Parse(f.url)
	if len(c) != 1 || c[0].Name != "tapgw-"+u.Port() || !c[0].HttpOnly ||
		c[0].SameSite != http.SameSiteStrictMode || c[0].Path != "/" || c[0].MaxAge != 7*24*3600 ||
		c[0].Secure || len(c[0].Value) != 43 {
		f.t.Fatalf(
			"the cookies are %q, want one, HttpOnly, strict, for a week, with 43 characters",
			response.Header["Set-Cookie"],
		)
	}
	return c[0].Name + "=" + c[0].Value
}

// newSigninFixture makes a server whose session API needs a token too.
func newSigninFixture(t *testing.T) signinFixture {
	t.Helper()
	f := signinFixtureOf(newRESTBubble(t))
	f.server.Configure(nil, false, 0)
	return f
}

// A sign-in link works once and for two minutes. The browser that used it comes to the page by it
// again.
func TestSigninLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSigninFixture(t)
		link := f.link()
		if response, _ := f.send("HEAD", link, nil); response.StatusCode != 200 ||
			len(response.Cookies()) != 0 {
			t.Errorf("looking at the link: %s, want 200 without a cookie", response.Status)
		}
		cookie := f.follow(link)
		late := f.link()
		wait(signinLinkLife)
		synctest.Wait()
		for what, url := range map[string]string{"used": link, "late": late,
			"wrong": f.page + "/signin?code=AAAAAAAAAAAAAAAAAAAAAA",
			"empty": f.page + "/signin?code=", "none": f.page + "/signin"} {
			if response, body := f.send("GET", url, nil); response.StatusCode != 403 ||
				len(response.Cookies()) != 0 || !strings.Contains(body, "tapctl open") {
				t.Errorf("a link that is %s: got %s %s, want 403 that names tapctl open", what,
					response.Status, body)
			}
		}

		again, _ := f.send("GET", link, http.Header{"Cookie": {cookie}})
		if again.StatusCode != 303 || again.Header.Get("Location") != "/" ||
			len(again.Cookies()) != 0 {
			t.Errorf("a used link, signed in: got %s %v, want 303 to / without a cookie",
				again.Status, again.Header)
		}
	})
}

// With the cookie the gateway's own page may do what the admin token may; other pages, links and
// images may not.
func TestSignin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSigninFixture(t)
		cookie := f.follow(f.link())
		status, metrics, sessionAPI := f.page+"/api/v1/status", f.page+"/metrics",
			f.page+"/api/test"
		page := http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"same-origin"}}
		for what, tc := range map[string]struct {
			method, url string
			header      http.Header
			status      int
		}{
			"nobody":         {"GET", status, nil, 401},
			"the page reads": {"GET", status, page, 200},
			"a person reads": {"GET", metrics,
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"none"}},
				200},
			"an old browser reads": {"GET", status, http.Header{"Cookie": {cookie}}, 200},
			"the page writes":      {"POST", f.page + "/api/v1/reload", page, 200},
			"an old page writes": {"POST", f.page + "/api/v1/reload",
				http.Header{"Cookie": {cookie}, "Origin": {f.page}}, 200},
			"nobody knows who writes": {"POST", f.page + "/api/v1/reload",
				http.Header{"Cookie": {cookie}}, 403},
			"a person writes": {"POST", f.page + "/api/v1/reload",
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"none"}}, 403},
			"nobody knows who deletes": {"DELETE", f.page + "/api/v1/sessions/x",
				http.Header{"Cookie": {cookie}},
				403},
			"another page reads": {"GET", status,
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"cross-site"}}, 403},
			"another port reads": {"GET", status,
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"same-site"}}, 403},
			"another port writes": {"POST", f.page + "/api/v1/reload",
				http.Header{"Cookie": {cookie}, "Origin": {"http://127.0.0.1:1"}}, 403},
			"a rebound name": {"GET", status,
				http.Header{"Cookie": {cookie}, "Host": {"rebound.example:9400"}}, 421},
			"the session API from the page": {"POST", sessionAPI, page, 200},
			"the session API from nobody": {"GET", sessionAPI, http.Header{"Cookie": {cookie}},
				403},
			"a link of the page": {"GET", f.page + "/api/copilot/session/x/stop",
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"same-origin"},
					"Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, 403},
			"an image of the page": {"GET", f.page + "/api/stop",
				http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"same-origin"},
					"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}}, 403},
			"another port's cookie": {"GET", status,
				http.Header{"Cookie": {"tapgw-1=" + strings.SplitN(cookie, "=", 2)[1]}}, 401},
			"a cookie beside another": {"GET", status,
				http.Header{"Cookie": {strings.SplitN(cookie, "=", 2)[0] + "=x; " + cookie}}, 200},
			"a wrong cookie": {"GET", status, http.Header{"Cookie": {cookie + "x"}}, 401},
			"a wrong token beside it": {"GET", status,
				http.Header{"Cookie": {cookie}, "Authorization": {"Bearer x"}}, 401},
		} {
			if response, body := f.send(tc.method, tc.url,
				tc.header); response.StatusCode != tc.status {
				t.Errorf("%s: got %s %s, want %d", what, response.Status, body, tc.status)
			}
		}
	})
}

// A browser signs itself out, and the admin token all browsers. The streams that a browser reads
// end.
func TestSignout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSigninFixture(t)
		cookie := f.follow(f.link())
		status := f.page + "/api/v1/status"
		page := http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {"same-origin"}}
		r, err := http.NewRequestWithContext(t.Context(), "GET", f.page+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = page
		following, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = following.Body.Close() }()
		second, third := f.follow(f.link()), f.follow(f.link())
		response, _ := f.send("POST", f.page+"/api/v1/signout", page)
		if c := response.Cookies(); response.StatusCode != 200 || len(c) != 1 || c[0].MaxAge >= 0 ||
			c[0].Value != "" {
			t.Errorf("signing out: %s %v, want 200 and the cookie's end", response.Status,
				response.Header)
		}
		checkStatus := func(what, cookie string, want int) {
			t.Helper()
			if response, _ := f.send("GET", status,
				http.Header{"Cookie": {cookie}}); response.StatusCode != want {
				t.Errorf("%s: %s, want %d", what, response.Status, want)
			}
		}
		checkStatus("the one who signed out", cookie, 401)
		checkStatus("another", second, 200)
		if _, err := io.Copy(io.Discard, following.Body); err != nil {
			t.Errorf("what was followed ends with %v", err)
		}
		if response, _ := f.send("POST", f.page+"/api/v1/signout",
			f.bearer()); response.StatusCode != 200 ||
			len(response.Cookies()) != 0 {
			t.Errorf("signing all out: %s, want 200 and nobody signed in", response.Status)
		}
		checkStatus("another after all were", second, 401)
		checkStatus("a third", third, 401)

		// It ends after a week, and the oldest give way to new ones.
		cookie = f.follow(f.link())
		wait(signinLife - time.Second)
		checkStatus("within the week", cookie, 200)
		wait(time.Second)
		synctest.Wait()
		checkStatus("after a week", cookie, 401)
		cookie = f.follow(f.link())
		for range maxSignins - 1 {
			f.follow(f.link())
		}
		checkStatus("the oldest of a hundred", cookie, 200)
		second = f.follow(f.link())
		checkStatus("the oldest of more", cookie, 401)
		checkStatus("the newest", second, 200)
	})
}

// A link that somebody else followed does not look like one's own fault: who comes
// second is told when and by whom, and the log says so.
func TestSigninLinkThatAnotherFollowed(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	var log bytes.Buffer
	f.server.log = slog.New(slog.NewTextHandler(&log, nil))
	peer := proc.Owner{UID: -1}
	f.server.ownerOf = func(_, _ netip.AddrPort) (proc.Owner, bool) { return peer, true }

	link := f.link()
	peer = proc.Owner{PID: 812, Command: "curl <b>", UID: 1234567}
	cookie := f.follow(link)
	peer = proc.Owner{UID: -1}
	response, body := f.send("GET", link, nil)
	for _, want := range []string{"This sign-in link was used before: at ",
		", by process 812 (curl <b>) of user 1234567.", "tapctl open --sign-out"} {
		if response.StatusCode != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("the second is answered %s %q, want …%s…", response.Status, body, want)
		}
	}
	if !strings.Contains(log.String(),
		`level=WARN msg="a sign-in link was followed a second time`) ||
		!strings.Contains(log.String(), "process 812 (curl <b>)") {
		t.Errorf("the log is %s, want a warning of the second use by process 812 (curl)",
			log.String())
	}
	// A browser shows it as a page, which leads to where a new link may be put in.
	response, body = f.send("GET", link, http.Header{"Accept": {"text/html,*/*;q=0.8"}})
	for _, want := range []string{"<p>This sign-in link was used before: at ", "(curl &lt;b&gt;)",
		`<a href="./">`,
		`<link rel="stylesheet" href="page/style.css">`} {
		if response.StatusCode != http.StatusForbidden || !strings.Contains(body, want) ||
			response.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("a browser is answered %s %v %q, want a page with …%s…", response.Status,
				response.Header, body, want)
		}
	}
	// Also where the second is signed in by another link.
	if response, _ := f.send("GET", link,
		http.Header{"Cookie": {f.follow(f.link())}}); response.StatusCode != http.StatusForbidden {
		t.Errorf("a browser that is signed in by another link: %s, want %v", response.Status,
			http.StatusForbidden)
	}
	peer = proc.Owner{UID: 1234567}
	f.client.CloseIdleConnections()
	if response, _ := f.send("GET", link,
		http.Header{"Cookie": {cookie}}); response.StatusCode != http.StatusSeeOther {
		t.Errorf("the browser that followed it: %s, want %v", response.Status, http.StatusSeeOther)
	}
}

// Where the system tells users apart, a link is for the one who asked for it, and a
// stranger does not use it up.
func TestSigninLinkOfAnotherUser(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	uid := 0
	f.server.ownerOf = func(_, _ netip.AddrPort) (proc.Owner, bool) {
		return proc.Owner{UID: uid}, true
	}
	for _, tc := range []struct {
		asks, follows int
		ok            bool
	}{{1000, 1000, true}, {1000, 1001, false}, {1000, -1, true}, {1000, 0, true}, {0, 1001, true},
		{-1, 1001, true}} {
		uid = tc.asks
		link := f.link()
		if uid = tc.follows; tc.ok {
			f.follow(link)
			continue
		}
		if response, body := f.send("GET", link, nil); response.StatusCode != 403 ||
			!strings.Contains(body, "for another user of this machine") {
			t.Errorf(
				`user %d follows a link of user %d: %s %s, want 403 "for another user of this machine"`,
				tc.follows, tc.asks, response.Status, body,
			)
		}
		uid = tc.asks
		f.follow(link)
	}
}

// A browser shows the cookie to the servers on all ports of the host, which are other
// users' too: it lets in nobody but the user who followed the link.
func TestSigninCookieOfAnotherUser(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	var log bytes.Buffer
	f.server.log = slog.New(slog.NewTextHandler(&log, nil))
	uid := 0
	f.server.ownerOf = func(_, _ netip.AddrPort) (proc.Owner, bool) {
		return proc.Owner{UID: uid}, true
	}
	as := func(user int) { // on a connection of its own
		uid = user
		f.client.CloseIdleConnections()
	}
	for _, tc := range []struct {
		follows, asks int
		ok            bool
	}{{1000, 1000, true}, {1000, 1001, false}, {1000, -1, false}, {1000, 0, true}, {0, 1001, false},
		{-1, 1001, true}} {
		as(tc.follows)
		link := f.link()
		header := http.Header{"Cookie": {f.follow(link)}, "Sec-Fetch-Site": {"same-origin"}}
		as(tc.asks)
		for _, ask := range []struct{ method, target string }{
			{"GET", f.page + "/api/v1/status"}, {"POST", f.page + "/api/v1/signout"},
			{"GET", f.page + "/metrics"}, {"GET", link},
		} {
			response, body := f.send(ask.method, ask.target, header)
			if in := response.StatusCode < 400; in != tc.ok {
				t.Errorf(
					"user %d with the cookie of user %d: %s %s %s, want success: %v",
					tc.asks, tc.follows, ask.method, response.Status, body, tc.ok,
				)
			}
			if tc.ok {
				break
			}
		}
	}
	if !strings.Contains(log.String(), "cookie of a browser of another user") {
		t.Errorf(`the log is %s, want "cookie of a browser of another user" in it`, log.String())
	}
}

// Browsers stay signed in when a server takes over from another, until they sign out or their week
// is over.
func TestSigninsAreInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := func(before *Server) *Server {
			s := New(Options{Gateway: gateway.New(gateway.Options{})})
			s.inherit(before.Heritage())
			return s
		}
		signIn := func(s *Server, uid int) (secret string) {
			code, _ := s.signins.newLink(proc.Owner{UID: uid})
			secret, _ = s.signins.redeem(code, proc.Owner{UID: uid})
			return secret
		}
		isSignedIn := func(s *Server, secret string, uid int) bool {
			valid, user := s.signins.browser(secret)
			return valid != nil && valid.Err() == nil && user == uid
		}

		first := New(Options{Gateway: gateway.New(gateway.Options{})})
		ann := signIn(first, 1000)
		wait(24 * time.Hour)
		bob, eve, joe := signIn(first, 1001), signIn(first, 1000), signIn(first, -1)
		first.signins.signOut([]*http.Cookie{{Value: eve}})
		if text := string(first.Heritage()); strings.Contains(text, ann) {
			t.Errorf("the heritage is %s, want hashes in it and no secret", text)
		}

		second := next(first)
		if second.pageName != first.pageName || !bytes.Equal(second.pageKey, first.pageKey) {
			t.Errorf("the page is at %s, want it at %s as before, with its key", second.pageName,
				first.pageName)
		}
		if !isSignedIn(second, ann, 1000) || !isSignedIn(second, bob, 1001) ||
			!isSignedIn(second, joe, -1) || isSignedIn(second, eve, 1000) {
			t.Error("after a restart, want the three signed in that have not signed out")
		}
		wait(6*24*time.Hour + time.Minute)
		if third := next(second); isSignedIn(third, ann, 1000) || !isSignedIn(third, bob, 1001) {
			t.Error("after a restart a week later, want the one signed in that came a day later")
		}

		// What is damaged signs nobody in, and nobody for longer than a week.
		key := `"pageName":"tapgw-x.localhost","pageKey":"` + strings.Repeat("A", 43) + `="`
		for _, text := range []string{"", "[", "{}", `{"pageName":"tapgw-x.localhost"}`,
			"{" + key + `,"signins":[{"sum":"AAAA","until":"2000-01-02T00:00:00Z","uid":7}]}`,
			"{" + key + `,"signins":[{"sum":"` + strings.Repeat("A", 43) +
				`=","until":"2099-01-01T00:00:00Z"}]}`} {
			s := New(Options{Gateway: gateway.New(gateway.Options{})})
			s.inherit([]byte(text))
			if len(s.signins.browsers) != 0 {
				t.Errorf("%s: %d browsers are signed in, want none", text, len(s.signins.browsers))
			}
		}
	})
}

// The browser is led to a link by a file that only its user can read, and that does
// not outlive the link.
func TestSigninFile(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	if response, body := f.send("POST", f.url+"/api/v1/signin-links", f.bearer(),
		`{"file":true}`); response.StatusCode != 400 {
		t.Errorf("without a directory: %s %s, want 400", response.Status, body)
	}
	dir := t.TempDir()
	f.server.api = newAPI(f.server, Options{Gateway: f.gateway, SigninDir: dir})
	issue := func() adminapi.SigninLink {
		t.Helper()
		response := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/api/v1/signin-links", strings.NewReader(`{"file":true}`))
		r.Host = strings.TrimPrefix(f.url, "http://")
		f.server.api.ServeHTTP(response, r)
		var link adminapi.SigninLink
		if err := json.Unmarshal(response.Body.Bytes(), &link); err != nil ||
			filepath.Dir(link.File) != dir {
			t.Fatalf("got %d %s, want a link in %v", response.Code, response.Body, dir)
		}
		return link
	}
	link := issue()
	info, err := os.Stat(link.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v, want no error and 0o600", info, err)
	}
	page, err := os.ReadFile(link.File)
	if err != nil || !strings.Contains(string(page), `content="0; url=`+link.URL+`"`) {
		t.Errorf("the file has %q, %v, want the link in it", page, err)
	}
	f.follow(link.URL)
	gone := func(file string) {
		f.waitUntil(func() bool { _, err := os.Stat(file); return errors.Is(err, os.ErrNotExist) })
	}
	gone(link.File)
	void := issue()
	f.server.signins.signOutAll()
	gone(void.File)
	left := issue()
	if err := RemoveSigninFiles(dir); err != nil {
		t.Error(err)
	}
	gone(left.File)
}

// Whoever guesses codes is locked out like one who guesses tokens, a page of
// another origin by itself.
func TestSigninGuesses(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	link := f.link()
	for range maxAuthFailures {
		if response, _ := f.send("GET", f.page+"/signin?code=guess",
			http.Header{"Sec-Fetch-Site": {"cross-site"}}); response.StatusCode != 403 {
			t.Errorf("another site's guess: %s, want 403", response.Status)
		}
	}
	for i := range maxAuthFailures + 1 {
		if response, _ := f.send("GET", fmt.Sprintf("%s/signin?code=guess%d", f.page, i),
			nil); response.StatusCode != 403 {
			t.Errorf("guess %d: %s, want 403", i, response.Status)
		}
	}
	if response, _ := f.send("GET", f.page+"/signin?code=guess", nil); response.StatusCode != 429 {
		t.Errorf("after too many guesses: %s, want 429", response.Status)
	}
	if response, _ := f.send("GET", link, nil); response.StatusCode != 303 {
		t.Errorf("the right link after others' guesses: %s, want 303", response.Status)
	}
}

// The cookie is the gateway's own on a host with several, and with TLS it is for
// nothing else.
func TestSigninCookie(t *testing.T) {
	for host, want := range map[string]string{"localhost:9400": "tapgw-9400", "[::1]:1": "tapgw-1",
		"box.example": "tapgw", "box.example:": "tapgw"} {
		for _, config := range []*tls.Config{nil, {}} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			(&Server{o: Options{TLS: config}}).setSigninCookie(w, r, "x", time.Hour)
			if c := w.Result().Cookies(); len(c) != 1 || c[0].Name != want ||
				c[0].Secure != (config != nil) || c[0].MaxAge != 3600 {
				t.Errorf("%s: %v, want one named %s, for an hour, secure with TLS", host,
					w.Header(), want)
			}
		}
	}
}
