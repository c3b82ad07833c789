package server

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
)

// The page, the sign-in link and the cookie are at the page's own host alone, and at a name that
// the user listed; a loopback name has the API, and says how to get to the page. No other name
// below localhost is known.
func TestPageOrigin(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	f.server.http.Handler = f.server.guard(f.server.routes(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) }), nil))
	f.server.Configure([]string{"box.example"}, false, 0)
	u, err := url.Parse(f.page)
	if err != nil || !strings.HasSuffix(u.Hostname(), ".localhost") || len(u.Hostname()) < 32 {
		t.Fatalf("the page is at %s, %v, want a random name below localhost", f.page, err)
	}
	link, port := f.link(), ":"+u.Port()
	cookie := f.follow(link)
	for _, tc := range []struct {
		host              string
		page, files, api  int // statuses
		withToken, follow int
		says              string
	}{
		{u.Host, 200, 200, 200, 200, 303, "the page"},
		{"127.0.0.1" + port, 200, 404, 401, 200, 404, "tapctl open"},
		{"localhost" + port, 200, 404, 401, 200, 404, "tapctl open"},
		{"[::1]" + port, 200, 404, 401, 200, 404, "tapctl open"},
		{"tapgw-aaaaaaaaaaaaaaaaaaaaaaaaaa.localhost" + port, 421, 421, 421, 421, 421, "has ended"},
		{"x." + u.Host, 421, 421, 421, 421, 421, "has ended"},
		{"box.example" + port, 200, 200, 200, 200, 303, "the page"},
		{"evil.example" + port, 421, 421, 421, 421, 421, "hosts in tapgw.toml"},
	} {
		header := http.Header{"Host": {tc.host}, "Cookie": {cookie},
			"Sec-Fetch-Site": {"same-origin"}, "Accept": {"text/html"}}
		token := http.Header{"Host": {tc.host}, "Authorization": f.bearer()["Authorization"]}
		page, text := f.send("GET", f.url+"/", header)
		if page.StatusCode != tc.page || !strings.Contains(text, tc.says) ||
			tc.says == "tapctl open" &&
				(strings.Contains(text, "href") || strings.Contains(text, u.Hostname())) {
			t.Errorf("/ at %s: got %s %s, want %d that says %q and leads nowhere", tc.host,
				page.Status, text, tc.page, tc.says)
		}
		if _, text := f.send("GET", f.url+"/api/v1/status", token); tc.says == "has ended" &&
			(!strings.Contains(text, "tapctl open") || strings.Contains(text, "tapgw.toml")) {
			t.Errorf("the API at %s says %s, want tapctl open and no advice to list the name",
				tc.host, text)
		}
		for _, ask := range []struct {
			what   string
			target string
			header http.Header
			want   int
		}{
			{"a file of the page", "/page/main.js", header, tc.files},
			{"the API with the cookie", "/api/v1/status", header, tc.api},
			{"metrics with the cookie", "/metrics", header, tc.api},
			{"the API with the token", "/api/v1/status", token, tc.withToken},
			{"a link", mustRequestURI(t, f.link()), http.Header{"Host": {tc.host}}, tc.follow},
		} {
			if response, body := f.send("GET", f.url+ask.target,
				ask.header); response.StatusCode != ask.want {
				t.Errorf("%s at %s: got %s %s, want %d", ask.what, tc.host, response.Status, body,
					ask.want)
			}
		}
		_, response, err := websocket.Dial(t.Context(), "ws://"+tc.host+pageStreamsPath,
			&websocket.DialOptions{HTTPClient: f.client, HTTPHeader: http.Header{"Cookie": {cookie},
				"Origin": {"http://" + tc.host}}})
		if (err == nil) != (tc.api == 200) {
			t.Errorf("the page's streams at %s: got %v, %v, want success: %v", tc.host, response,
				err, tc.api == 200)
		}
	}
	if other := New(
		Options{Gateway: gateway.New(gateway.Options{})}); other.pageName == f.server.pageName {
		t.Errorf("two servers have the page at %s, want a name of its own for each", other.pageName)
	}
}

func mustRequestURI(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return u.RequestURI()
}

// No script for a service worker comes from here, at no name and with no secret, and what a browser
// has stored for the origin goes with a sign-in and a sign-out.
func TestServiceWorkers(t *testing.T) {
	f := signinFixtureOf(newRESTFixture(t))
	first, _ := f.send("GET", f.link(), nil)
	cookie := first.Cookies()[0]
	page := http.Header{"Cookie": {cookie.Name + "=" + cookie.Value},
		"Sec-Fetch-Site": {"same-origin"}}
	for _, at := range []string{f.page, f.url} {
		for _, path := range []string{
			"/", "/page/main.js", "/signin?code=x", "/api/v1/status", "/healthz", "/hooks/x",
		} {
			header := page.Clone()
			header.Set("Service-Worker", "script")
			response, body := f.send("GET", at+path, header)
			if response.StatusCode != http.StatusNotFound ||
				response.Header.Get("Service-Worker-Allowed") != "" ||
				!strings.Contains(response.Header.Get("Content-Security-Policy"),
					"worker-src 'none'") {
				t.Errorf("a worker from %s%s: got %s %v %s, want 404", at, path, response.Status,
					response.Header, body)
			}
		}
	}
	last, _ := f.send("POST", f.page+"/api/v1/signout", page)
	for what, response := range map[string]*http.Response{"in": first, "out": last} {
		if got := response.Header.Get("Clear-Site-Data"); got != `"storage"` ||
			response.StatusCode >= 400 {
			t.Errorf("signing %s: got %s and Clear-Site-Data %s, want \"storage\"", what,
				response.Status, got)
		}
	}
}

// A link leads to the page's host at the port by which the request came, through a tunnel too.
// Without a page at this machine's 127.0.0.1 it needs a name of the user's.
func TestPageHost(t *testing.T) {
	s := New(Options{Gateway: gateway.New(gateway.Options{}),
		Hosts: []string{"box.example", "127.0.0.9"}})
	s.pageName = "tapgw-x.localhost"
	for reached, want := range map[string]string{"127.0.0.1:9400": "tapgw-x.localhost:9400",
		"[::1]:1": "tapgw-x.localhost:1", "localhost": "tapgw-x.localhost",
		"box.example:9400": "box.example:9400",
		"127.0.0.9:9400":   "127.0.0.9:9400", "TAPGW-X.localhost:2": "TAPGW-X.localhost:2"} {
		if got := s.pageHost(reached); got != want {
			t.Errorf("a link for who reached %s is at %s, want %s", reached, got, want)
		}
	}
	s = New(Options{Gateway: gateway.New(gateway.Options{})})
	if err := s.Listen("127.0.0.5:0"); err != nil {
		t.Fatal(err)
	}
	defer closeAll(s.listeners)
	if got := s.pageHost("127.0.0.5:9400"); got != "" {
		t.Errorf("the page of a gateway that is not on 127.0.0.1 is at %s, want it nowhere", got)
	}
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		_ = l.Close()
	}
}

// A server that gets all listeners of the one before goes on at its origin; one that had to bind an
// address anew, or another, does not. Listeners that it does not use are closed.
func TestListenWith(t *testing.T) {
	for name, tc := range map[string]struct {
		addr   string // after the first server's own, with its port for PORT
		keep   int    // how many listeners are handed over
		isKept bool
	}{
		"all":             {"127.0.0.1:PORT", 2, true},
		"any port":        {"127.0.0.1:0", 2, true},
		"the name":        {"localhost:PORT", 2, true},
		"the other one":   {"[::1]:PORT", 2, true},
		"one of two":      {"127.0.0.1:PORT", 1, false},
		"none":            {"127.0.0.1:PORT", 0, false},
		"another address": {"127.0.0.7:0", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := New(Options{Gateway: gateway.New(gateway.Options{})})
			if err := before.Listen("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			_, port, err := net.SplitHostPort(before.listeners[0].Addr().String())
			if err != nil || len(before.listeners) != 2 {
				t.Fatalf("got %d listeners, %v, want two", len(before.listeners), err)
			}
			closeAll(before.listeners[tc.keep:])
			code, _ := before.signins.newLink(before.requestOwner(&http.Request{}))
			secret, _ := before.signins.redeem(code, before.requestOwner(&http.Request{}))
			next := New(Options{Gateway: gateway.New(gateway.Options{})})
			addr := strings.ReplaceAll(tc.addr, "PORT", port)
			if err := next.ListenWith(addr, before.listeners[:tc.keep],
				before.Heritage()); err != nil {
				t.Fatal(err)
			}
			defer closeAll(next.listeners)
			signedIn, _ := next.signins.browser(secret)
			if is := next.pageName == before.pageName; is != tc.isKept ||
				(signedIn != nil) != tc.isKept {
				t.Errorf("the origin is kept: %v, the browser signed in: %v, want both %v", is,
					signedIn != nil, tc.isKept)
			}
			for _, l := range before.listeners[:tc.keep] {
				if slices.Contains(next.listeners, l) {
					continue
				}
				if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
					_ = c.Close()
					t.Errorf("%s is not used and still open, want it closed", l.Addr())
				}
			}
		})
	}
}

// An open page knows the gateway by the key that it got at first. A server that took over has the
// same key.
func TestProvePage(t *testing.T) {
	s := New(Options{Gateway: gateway.New(gateway.Options{})})
	key := s.provePage("")
	if len(key.Key) != 64 || key.Proof != "" {
		t.Fatalf("the first answer is %+v, want a key of 32 bytes", key)
	}
	next := New(Options{Gateway: gateway.New(gateway.Options{})})
	other := New(Options{Gateway: gateway.New(gateway.Options{})})
	next.inherit(s.Heritage())
	if a, b := s.provePage("x"), next.provePage("x"); a != b || a.Proof == "" || a.Key != "" {
		t.Errorf("the proofs are %+v and %+v, want the same after a handover", a, b)
	}
	if a, b := s.provePage("x"), other.provePage("x"); a == b {
		t.Error("another gateway has the same proof, want one of its own")
	}
}
