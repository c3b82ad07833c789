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

// Nothing that the server has can be used by a page of another origin, or by one
// on a name that was made to point here, although the browser sends the cookie of
// somebody who is signed in, although the page knows the token, and although the
// session contract needs none. Every route is tried.
func TestGuardAll(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open %v", open), func(t *testing.T) {
			f := newOpenAPIFixture(t)
			f.server.Configure(nil, open, 0)
			browser := signinFixture{f.restFixture}
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
			targets := []target{{"GET", "/"}, {"POST", "/"}, {"GET", link.RequestURI()}, {"POST", link.RequestURI()},
				{"GET", "/metrics"}, {"GET", "/healthz"}, {"GET", "/host"}, {"GET", "/page/"}, {"GET", "/nothing"},
				{"GET", "/api/v1/nothing"}, {"OPTIONS", "/api/v1/sessions"}, {"HEAD", "/api/v1/sessions"}}
			for pattern := range (&api{}).routes() {
				method, path, _ := strings.Cut(pattern, " ")
				targets = append(targets, target{method, apiPrefix + path})
			}
			for _, o := range f.doc.operations(t) {
				targets = append(targets, target{o.method, o.path})
			}
			own, _ := strings.CutPrefix(f.url, "http://")
			pages := map[string]struct {
				host   string
				header http.Header
				status int
			}{
				"a page's script": {
					own,
					http.Header{
						"Origin":         {"https://evil.example"},
						"Sec-Fetch-Site": {"cross-site"},
						"Sec-Fetch-Mode": {"cors"},
					},
					403,
				},
				"an old browser's script": {own, http.Header{"Origin": {"https://evil.example"}}, 403},
				"a page's image": {
					own,
					http.Header{
						"Sec-Fetch-Site": {"cross-site"},
						"Sec-Fetch-Mode": {"no-cors"},
						"Sec-Fetch-Dest": {"image"},
					},
					403,
				},
				"a page's event stream": {
					own,
					http.Header{
						"Origin":         {"https://evil.example"},
						"Sec-Fetch-Site": {"cross-site"},
						"Accept":         {"text/event-stream"},
					},
					403,
				},
				"a page's frame": {
					own,
					http.Header{
						"Sec-Fetch-Site": {"cross-site"},
						"Sec-Fetch-Mode": {"navigate"},
						"Sec-Fetch-Dest": {"iframe"},
					},
					403,
				},
				"another port's script": {own,
					http.Header{"Origin": {"http://127.0.0.1:3000"}, "Sec-Fetch-Site": {"same-site"}}, 403},
				"a file's script": {own, http.Header{"Origin": {"null"}}, 403},
				"two origins":     {own, http.Header{"Origin": {f.url, "https://evil.example"}}, 403},
				"a rebound name":  {"rebound.example:9400", http.Header{}, 421},
				"a rebound name's page": {"rebound.example",
					http.Header{"Origin": {"http://rebound.example"}, "Sec-Fetch-Site": {"same-origin"}}, 421},
				"no name": {"0.0.0.0:9400", http.Header{}, 421},
			}
			for _, at := range targets {
				path := strings.NewReplacer("{id}", s.ID(), "{session-id}", s.ID(), "{name}", "x", "{model-id}",
					"local").
					Replace(at.path)
				for what, page := range pages {
					for _, secret := range []http.Header{{"Cookie": {cookie}},
						{"Authorization": {"Bearer " + f.gateway.AdminToken()}}} {
						r, err := http.NewRequestWithContext(t.Context(), at.method, f.url+path,
							strings.NewReader(f.dir))
						if err != nil {
							t.Fatal(err)
						}
						r.Host, r.Header = page.host, page.header.Clone()
						maps.Copy(r.Header, secret)
						response, err := f.client.Transport.RoundTrip(r)
						if err != nil {
							t.Fatal(err)
						}
						body, _ := io.ReadAll(response.Body)
						_ = response.Body.Close()
						if response.StatusCode != page.status ||
							at.method != "HEAD" && !strings.Contains(string(body), "UNAUTHORIZED") ||
							len(response.Cookies()) > 0 || response.Header.Get("Access-Control-Allow-Origin") != "" {
							t.Errorf("%s, %s %s %v: %s %.100s", what, at.method, at.path,
								slices.Collect(maps.Keys(secret)), response.Status, body)
						}
					}
				}
			}
			if list := f.gateway.Sessions(); len(list) != 1 || list[0].ID != s.ID() {
				t.Errorf("the sessions are %+v", list)
			}
			browser.follow(link.String()) // nobody has used it up
		})
	}
}
