package server

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/gateway"
)

// foreignPage is a request that a page of another origin makes.
type foreignPage struct {
	host   string
	header http.Header
	status int // that the guard answers with
}

// foreignPages are the ways in which pages of other origins, or on a name that resolves to this
// machine, reach a server.
func foreignPages(serverURL string) map[string]foreignPage {
	own, _ := strings.CutPrefix(serverURL, "http://")
	fetch := func(mode, destination string) http.Header {
		return http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {mode},
			"Sec-Fetch-Dest": {destination}}
	}
	return map[string]foreignPage{
		"a page's script": {own, http.Header{"Origin": {"https://evil.example"},
			"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}}, 403},
		"an old browser's script": {own, http.Header{"Origin": {"https://evil.example"}}, 403},
		"a page's image":          {own, fetch("no-cors", "image"), 403},
		"a page's event stream": {own, http.Header{"Origin": {"https://evil.example"},
			"Sec-Fetch-Site": {"cross-site"}, "Accept": {"text/event-stream"}}, 403},
		"a page's frame": {own, fetch("navigate", "iframe"), 403},
		"another port's script": {own, http.Header{"Origin": {"http://127.0.0.1:3000"},
			"Sec-Fetch-Site": {"same-site"}}, 403},
		"a file's script": {own, http.Header{"Origin": {"null"}}, 403},
		"two origins":     {own, http.Header{"Origin": {serverURL, "https://evil.example"}}, 403},
		"a rebound name":  {"rebound.example:9400", http.Header{}, 421},
		"a rebound name's page": {"rebound.example",
			http.Header{"Origin": {"http://rebound.example"},
				"Sec-Fetch-Site": {"same-origin"}}, 421},
		"no name": {"0.0.0.0:9400", http.Header{}, 421},
	}
}

// send makes a request as the page's browser does and returns the status and UNAUTHORIZED, or what
// is wrong with the answer: its body, a cookie, or a header that lets the page read it.
func (p foreignPage) send(t *testing.T, f *openAPIFixture, r *http.Request) string {
	t.Helper()
	r.Host = p.host
	maps.Copy(r.Header, p.header)
	response, err := f.client.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	switch {
	case r.Method != http.MethodHead && !strings.Contains(string(body), "UNAUTHORIZED"):
		return fmt.Sprintf("%s %.100s", response.Status, body)
	case len(response.Cookies()) > 0 || response.Header.Get("Access-Control-Allow-Origin") != "":
		return fmt.Sprintf("%s %v", response.Status, response.Header)
	}
	return fmt.Sprintf("%d UNAUTHORIZED", response.StatusCode)
}

// No page of another origin, and none on a name that resolves to this machine, gets anything from
// any route: although the browser sends the cookie of a person who is signed in, although the page
// knows the token, and although the session API needs none.
func TestGuardAll(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open %v", open), func(t *testing.T) {
			f := newOpenAPIFixture(t)
			f.server.Configure(nil, open, 0)
			browser := signinFixtureOf(f.restFixture)
			cookie := browser.follow(browser.link())
			link, err := url.Parse(browser.link())
			if err != nil {
				t.Fatal(err)
			}
			s, err := f.gateway.Start(t.Context(),
				gateway.StartRequest{Host: gateway.HostLocal, CWD: f.dir, Label: "mine"})
			if err != nil {
				t.Fatal(err)
			}
			type target struct{ method, path string }
			targets := []target{{"GET", "/"}, {"POST", "/"}, {"GET", link.RequestURI()},
				{"POST", link.RequestURI()},
				{"GET", "/metrics"}, {"GET", "/healthz"}, {"GET", "/host"}, {"GET", "/page/"},
				{"GET", "/nothing"},
				{"GET", "/api/v1/nothing"}, {"OPTIONS", "/api/v1/sessions"},
				{"HEAD", "/api/v1/sessions"}}
			for pattern := range (&api{}).routes() {
				method, path, _ := strings.Cut(pattern, " ")
				targets = append(targets, target{method, apiPrefix + path})
			}
			for _, o := range f.doc.operations(t) {
				targets = append(targets, target{o.method, o.path})
			}
			pages := foreignPages(browser.page)
			ids := strings.NewReplacer("{id}", s.ID(), "{session-id}", s.ID(), "{name}", "x",
				"{model-id}", "local")
			secrets := []http.Header{{"Cookie": {cookie}},
				{"Authorization": {"Bearer " + f.gateway.AdminToken()}}}
			for _, at := range targets {
				path := ids.Replace(at.path)
				for what, page := range pages {
					for _, secret := range secrets {
						r, err := http.NewRequestWithContext(t.Context(), at.method,
							browser.page+path, strings.NewReader(f.dir))
						if err != nil {
							t.Fatal(err)
						}
						maps.Copy(r.Header, secret)
						got := page.send(t, f, r)
						if want := fmt.Sprintf("%d UNAUTHORIZED", page.status); got != want {
							t.Errorf("%s, %s %s %v: got %s, want %s", what, at.method, at.path,
								slices.Collect(maps.Keys(secret)), got, want)
						}
					}
				}
			}
			if list := f.gateway.Sessions(); len(list) != 1 || list[0].ID != s.ID() {
				t.Errorf("got the sessions %+v, want %s alone", list, s.ID())
			}
			browser.follow(link.String()) // the link is still good
		})
	}
}
