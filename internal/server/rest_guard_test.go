package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/gateway"
)

// Only what the contract has is there, and only GET and POST.
func TestRESTElsewhere(t *testing.T) {
	f := newRESTFixture(t)
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/api/", 404}, {"GET", "/api/copilot/session/x", 404},
		{"GET", "/api/copilot/session/x/log", 404}, {"GET", "/api/copilot/session/start", 404},
		{"POST", "/api/copilot/job", 404}, {"HEAD", "/api/copilot/session/x/live", 405},
		{"PUT", "/api/stop", 405}, {"DELETE",
			"/api/copilot/session/x/stop", 405}, {"OPTIONS", "/api/stop", 405},
		{"GET", "/api/v1/sessions", 401}, {"POST", "/api/v1/sessions", 401},
		{"GET", "/api/v1/", 401},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, f.url+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := f.client.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != tc.status || tc.method != http.MethodHead && !json.Valid(data) {
			t.Errorf("%s %s: %s %s, want %d", tc.method, tc.path, response.Status, data, tc.status)
		}
	}
}

// Web pages of other origins, and those on a name that was made to point here,
// get nowhere, although nobody else needs a token.
func TestRESTGuards(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("local")
	host := strings.TrimPrefix(f.url, "http://")
	paths := []string{"config", "stop", "test", "token", "copilot/models",
		"copilot/session/start/local", "v1/status",
		"copilot/session/" + id + "/query", "copilot/session/" + id + "/live", "copilot/session/" +
			id + "/stop"}
	for name, tc := range map[string]struct {
		header http.Header
		host   string
		status int
	}{
		"another site's script": {http.Header{"Origin": {"https://evil.example"}}, host, 403},
		"another site's form": {http.Header{"Origin": {"https://evil.example"},
			"Content-Type": {"text/plain"}, "Sec-Fetch-Site": {"cross-site"}}, host, 403},
		"another site's image": {http.Header{"Sec-Fetch-Site": {"cross-site"},
			"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}}, host, 403},
		"another site's link": {http.Header{"Sec-Fetch-Site": {"cross-site"},
			"Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, host, 403},
		"another port's image": {http.Header{"Sec-Fetch-Site": {"same-site"},
			"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}}, host, 403},
		"a file on the disk": {http.Header{"Origin": {"null"}}, host, 403},
		"a rebound name":     {http.Header{}, "rebound.example:9400", 421},
		"a rebound name's script": {http.Header{"Origin": {"http://rebound.example:9400"},
			"Sec-Fetch-Site": {"same-origin"}}, "rebound.example:9400", 421},
		"a name that looks like us": {http.Header{}, "127.0.0.1.nip.example", 421},
	} {
		for _, path := range paths {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				r, err := http.NewRequestWithContext(t.Context(), method, f.url+"/api/"+path,
					strings.NewReader(f.dir))
				if err != nil {
					t.Fatal(err)
				}
				r.Header, r.Host = tc.header.Clone(), tc.host
				response, err := f.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				data, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != tc.status ||
					!strings.Contains(string(data), "UNAUTHORIZED") {
					t.Errorf(
						`%s: %s %s: %s %s, want StatusCode %v and "UNAUTHORIZED" in it`,
						name, method, path, response.Status, data, tc.status,
					)
				}
			}
		}
	}
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].ID != id {
		t.Errorf("the sessions are %+v, want only %v", v, id)
	}
	// A page of our own origin may, as may what is no page at all.
	for _, header := range []http.Header{{"Origin": {f.url}, "Sec-Fetch-Site": {"same-origin"}},
		{"Sec-Fetch-Site": {"none"}}, {"Sec-Fetch-Mode": {"cors"}}} {
		if got := f.status(http.MethodGet, "/api/test", "", header); got != http.StatusOK {
			t.Errorf("%v: got %d, want 200", header, got)
		}
	}
}

// A link to the gateway itself, which a model may write, changes nothing, and neither does an image
// or a form, with a token or without. Requests that no browser sends do.
func TestRESTLinksChangeNothing(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("local")
	at := "/api/copilot/session/" + id
	for name, header := range map[string]http.Header{
		"a link of the page": {"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"navigate"},
			"Sec-Fetch-Dest": {"document"}},
		"a link of another app": {"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"},
			"Sec-Fetch-Dest": {"document"}},
		"a frame of the page": {"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"navigate"},
			"Sec-Fetch-Dest": {"iframe"}},
		"an image of the page": {"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"no-cors"},
			"Sec-Fetch-Dest": {"image"}},
		"a form of the page": {"Origin": {f.url}, "Sec-Fetch-Site": {"same-origin"},
			"Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}},
		"a script tag of the page": {"Sec-Fetch-Site": {"same-origin"},
			"Sec-Fetch-Mode": {"no-cors"},
			"Sec-Fetch-Dest": {"script"}},
	} {
		for _, path := range []string{at + "/stop", at + "/query", at + "/live", "/api/stop",
			"/api/copilot/session/start/local",
			"/api/copilot/session/%2e%2e/stop", "/api/v1/reload"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if strings.HasPrefix(path, "/api/v1/") && method == http.MethodGet {
					continue // there is nothing to read
				}
				if status := f.status(method, path, "", header); status != http.StatusForbidden {
					t.Errorf("%s: %s %s: %d, want %v", name, method, path, status,
						http.StatusForbidden)
				}
			}
		}
		if status := f.status(http.MethodGet, "/api/test", "", header); status != http.StatusOK {
			t.Errorf("%s reads: %d, want %v", name, status, http.StatusOK)
		}
	}
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].ID != id {
		t.Errorf("the sessions are %+v, want only %v", v, id)
	}
	for name, header := range map[string]http.Header{
		"a program":    {},
		"Node's fetch": {"Sec-Fetch-Mode": {"cors"}},
		"a script of our own origin": {"Origin": {f.url}, "Sec-Fetch-Site": {"same-origin"},
			"Sec-Fetch-Mode": {"cors"},
			"Sec-Fetch-Dest": {"empty"}},
	} {
		if status := f.status(http.MethodGet, "/api/copilot/session/none/stop", "",
			header); status != http.StatusOK {
			t.Errorf("%s: %d, want %v", name, status, http.StatusOK)
		}
	}
}

// At some addresses of this machine browsers send no Sec-Fetch headers, for example with an image
// of any site's page. A GET without them changes nothing there.
func TestRESTImagesWithoutFetchMetadata(t *testing.T) {
	f := newRESTFixture(t)
	f.server.Configure([]string{"box.example"}, true, 0)
	id := f.mustStart("local")
	bearer := http.Header{"Authorization": {"Bearer " + f.gateway.AdminToken()}}
	for host, marked := range map[string]bool{
		"[::ffff:7f00:1]:9400": false, "[::ffff:127.0.0.1]": false, "box.example": false,
		"BOX.example:9400": false, "127.0.0.1:9400": true, "127.0.0.2": true, "[::1]:9400": true,
		"LOCALHOST:9400": true,
	} {
		for _, path := range []string{"/api/stop", "/api/copilot/session/none/stop",
			"/api/copilot/session/none/query",
			"/api/copilot/session/start/none"} {
			if status := f.status(http.MethodGet, path, host,
				http.Header{}); (status == http.StatusOK) != marked ||
				!marked && status != http.StatusForbidden {
				t.Errorf(
					"%s: GET %s: %d, want %d if it is marked as of a program, else %d",
					host, path, status, http.StatusOK, http.StatusForbidden,
				)
			}
			if path == "/api/stop" && !marked {
				if v := f.gateway.Sessions(); len(v) != 1 || v[0].ID != id {
					t.Errorf("%s: the sessions are %+v, want only %v", host, v, id)
				}
			}
			for method, header := range map[string]http.Header{http.MethodPost: {},
				http.MethodGet: bearer} {
				if path != "/api/stop" && f.status(method, path, host, header) != http.StatusOK {
					t.Errorf("%s: %s %s by a program is refused, want %d", host, method, path,
						http.StatusOK)
				}
			}
		}
		if status := f.status(http.MethodGet, "/api/test", host,
			http.Header{}); status != http.StatusOK {
			t.Errorf("%s: reading: %d, want %v", host, status, http.StatusOK)
		}
		if marked && len(f.gateway.Sessions()) == 0 {
			id = f.mustStart("local")
		}
	}
}

// Without OpenREST the contract needs the admin token like everything else.
func TestRESTToken(t *testing.T) {
	g := gateway.New(gateway.Options{})
	s := New(Options{Gateway: g})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve() }()
	client := &http.Client{Transport: &http.Transport{}}
	for _, path := range []string{"config", "stop", "test", "token", "copilot/models",
		"copilot/session/start/local",
		"copilot/session/x/stop", "copilot/session/x/query", "copilot/session/x/live"} {
		for token, want := range map[string]int{"": 401, g.InstanceToken(): 401,
			g.AdminToken(): 200} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"http"+strings.TrimPrefix(s.URL(), "ws")+"/api/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s with a token of %d letters: %s, want %v", path, len(token),
					response.Status, want)
			}
		}
	}
	client.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestRESTRoute(t *testing.T) {
	for path, want := range map[string]restCall{
		"/api/config":                                   {restConfig, ""},
		"/api/stop":                                     {restStop, ""},
		"/api/copilot/models":                           {restModels, ""},
		"/api/copilot/session/start/gpt-4.1":            {restSessionStart, "gpt-4.1"},
		"/api/copilot/session/start/org/model":          {restSessionStart, "org/model"},
		"/api/copilot/session/start/org%2Fmodel%3Afree": {restSessionStart, "org/model:free"},
		"/api/copilot/session/start/a%252Fb":            {restSessionStart, "a%2Fb"},
		"/api/copilot/session/start/stop":               {restSessionStart, "stop"},
		"/api/copilot/session/start/a/live":             {restSessionStart, "a/live"},
		"/api/copilot/session/start/..":                 {restSessionStart, ".."},
		"/api/copilot/session/x%2Fy/live":               {restSessionLive, "x/y"},
		"/api/copilot/session/stop/stop":                {restSessionStop, "stop"},
		"/api/copilot/session/%20/query":                {restSessionQuery, " "},
		"/api/config/":                                  {},
		"/api/copilot/session/start/":                   {restSessionStart, ""},
		"/api/copilot/session/start":                    {},
		"/api/copilot/session/x/live/token":             {},
		"/api/copilot/session/x/start":                  {},
		"/api/copilot/session//live":                    {},
		"/api/copilot/session/%zz/live":                 {},
		"/api":                                          {},
		"/":                                             {},
	} {
		if got, ok := restRoute(path); got != want || ok != (want != restCall{}) {
			t.Errorf("%s is %+v %v, want %+v", path, got, ok, want)
		}
	}
}

// FuzzRESTRoute: whatever a path says, it names something of the contract or
// nothing, and an id that was escaped comes back as it was.
func FuzzRESTRoute(f *testing.F) {
	for _, seed := range []string{"/api/config", "/api/copilot/session/start/a/b", "a b/é%",
		"/api/copilot/session/x/live", "", "start/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := restRoute(text)
		if known := slices.Contains([]string{restConfig, restStop, restTest, restToken, restModels},
			c.name); ok &&
			(known && c.id != "" || !known && c.id == "" && c.name != restSessionStart) || !ok &&
			c != (restCall{}) {
			t.Errorf("%q is %+v %v, want a name with an id where it takes one, or nothing", text, c,
				ok)
		}
		for _, verb := range []string{restSessionStop, restSessionQuery, restSessionLive} {
			path := restPrefix + restSessionPrefix + url.PathEscape(text) + strings.TrimPrefix(verb,
				"copilot/session")
			got, ok := restRoute(path)
			want := restCall{verb, text}
			if text == "" {
				want = restCall{}
			}
			if text == "start" { // what begins so is a model's id
				want = restCall{restSessionStart, strings.TrimPrefix(verb, restSessionPrefix)}
			}
			if got != want || ok != (text != "") {
				t.Errorf("%q is %+v %v, want %+v", path, got, ok, want)
			}
		}
	})
}

// status makes a request and returns the status of its answer. An empty host is that of the URL.
func (f *restFixture) status(method, path, host string, header http.Header) int {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header, r.Host = header, host
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
