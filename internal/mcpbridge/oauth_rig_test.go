package mcpbridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
)

// authServer is an authorization server. It gives a code to each browser that comes, takes each code and each refresh
// token once, and takes a second use of one for theft.
type authServer struct {
	t   *testing.T
	web *httptest.Server

	mu       sync.Mutex // guards the fields that follow
	lifetime int        // of access tokens in seconds; 0: they don't say
	answer   func(q url.Values)
	metadata func(m map[string]any)
	token    http.HandlerFunc // in place of the token endpoint
	clients  map[string]string
	codes    map[string]url.Values
	access   map[string]string // scopes by token
	refresh  map[string]string // scopes by token
	used     map[string]bool
	asked    []url.Values // at the authorization endpoint
	renewals int
	thefts   int
}

func newAuthServer(t *testing.T) *authServer {
	t.Helper()
	a := &authServer{
		t: t, clients: map[string]string{}, codes: map[string]url.Values{}, access: map[string]string{},
		refresh: map[string]string{}, used: map[string]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", a.serveMetadata)
	mux.HandleFunc("POST /register", a.serveRegister)
	mux.HandleFunc("GET /authorize", a.serveAuthorize)
	mux.HandleFunc("POST /token", a.serveToken)
	a.web = httptest.NewServer(mux)
	t.Cleanup(a.web.Close)
	return a
}

func writeAnswer(w http.ResponseWriter, status int, v map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// locked runs f with the lock.
func (a *authServer) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *authServer) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{
		"issuer": a.web.URL, "authorization_endpoint": a.web.URL + "/authorize", "token_endpoint": a.web.URL + "/token",
		"registration_endpoint": a.web.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
		"authorization_response_iss_parameter_supported": true, "scopes_supported": []string{"offline_access"},
	}
	a.locked(func() {
		if a.metadata != nil {
			a.metadata(m)
		}
	})
	writeAnswer(w, http.StatusOK, m)
}

func (a *authServer) serveRegister(w http.ResponseWriter, r *http.Request) {
	var m map[string]any
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		a.t.Errorf("a registration is no JSON: %v, want JSON", err)
	}
	redirects, _ := m["redirect_uris"].([]any)
	m["client_id"] = "client-" + rand.Text()
	a.locked(func() { a.clients[m["client_id"].(string)] = fmt.Sprint(redirects...) })
	writeAnswer(w, http.StatusCreated, m)
}

func (a *authServer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, q)
	redirect, known := a.clients[q.Get("client_id")]
	if !known || redirect != "" && redirect != q.Get("redirect_uri") || q.Get("code_challenge_method") != "S256" {
		a.t.Errorf("the browser came with %v, want the client's own redirect and a challenge", q)
	}
	code := "code-" + rand.Text()
	a.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {a.web.URL}}
	if a.answer != nil {
		a.answer(back)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (a *authServer) serveToken(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != nil {
		a.token(w, r)
		return
	}
	refuse := func(code string) { writeAnswer(w, http.StatusBadRequest, map[string]any{"error": code}) }
	given, scope := r.Form.Get("code")+r.Form.Get("refresh_token"), ""
	if a.used[given] {
		a.thefts++
		clear(a.access)
		clear(a.refresh)
		refuse("invalid_grant")
		return
	}
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		q, known := a.codes[given]
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if !known || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") ||
			r.Form.Get("redirect_uri") != q.Get("redirect_uri") {
			refuse("invalid_grant")
			return
		}
		scope = q.Get("scope")
	default:
		var known bool
		if scope, known = a.refresh[given]; !known {
			refuse("invalid_grant")
			return
		}
		a.renewals++
	}
	a.used[given] = true
	delete(a.refresh, given)
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	a.access[access], a.refresh[refresh] = scope, scope
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scope}
	if a.lifetime > 0 {
		answer["expires_in"] = a.lifetime
	}
	writeAnswer(w, http.StatusOK, answer)
}

// protect makes a server want a token of a, and the scope write for the tool write.
func (a *authServer) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := "http://" + r.Host
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			writeAnswer(w, http.StatusOK, map[string]any{
				"resource": base + "/mcp", "authorization_servers": []string{a.web.URL},
				"scopes_supported": []string{"read"},
			})
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		a.mu.Lock()
		scope, isGood := a.access[token]
		a.mu.Unlock()
		about := `Bearer resource_metadata="` + base + `/.well-known/oauth-protected-resource/mcp"`
		data, _ := io.ReadAll(r.Body)
		switch {
		case !isGood:
			w.Header().Set("WWW-Authenticate", about)
			w.WriteHeader(http.StatusUnauthorized)
			return
		case bytes.Contains(data, []byte(`"name":"write"`)) && !slices.Contains(strings.Fields(scope), "write"):
			w.Header().Set("WWW-Authenticate", about+`, error="insufficient_scope", scope="write"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		next.ServeHTTP(w, r)
	})
}

// server serves the tools read and write behind a.
func (a *authServer) server(era string) configs.Provider {
	a.t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range []string{"read", "write"} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("done"), nil })
	}
	p := serveHTTP(a.t, s, era, a.protect)
	p.Name, p.Kind = "srv", configs.KindMCP
	return p
}

// tokens returns each secret that a gave so far.
func (a *authServer) tokens() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(a.access)), slices.Collect(maps.Keys(a.refresh)),
		slices.Collect(maps.Keys(a.used)))
}

// browse follows a link as a browser does, and returns what it shows in the end.
func browse(t *testing.T, link string) (status int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(link)
	if err != nil {
		t.Errorf("the browser: %v, want a page", err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(data)
}

// logIn logs in with a browser. The person looks at the page until the login has ended.
func logIn(t *testing.T, l *Logins, p configs.Provider) error {
	t.Helper()
	var browser sync.WaitGroup
	defer browser.Wait()
	return l.Login(t.Context(), p, func(link string) error {
		browser.Go(func() { browse(t, link) })
		return nil
	})
}
