package taptest

import (
	"bytes"
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
)

// AuthServer is an authorization server. It gives a code to each browser that comes, takes each
// code and each refresh token once, and takes a second use of one for theft.
//
// Close it in the end. Hold it with Locked to use a field.
type AuthServer struct {
	URL string // fixed
	web *httptest.Server

	mu       sync.Mutex // guards the fields that follow
	Lifetime int        // of access tokens in seconds; 0: they don't say
	Asks     bool       // a person has to press a button
	// Answer, Metadata and Token may be nil. Answer changes the parameters that a browser brings
	// back, Metadata the document that clients read, and Token answers in place of the token
	// endpoint.
	Answer    func(q url.Values)
	Metadata  func(m map[string]any)
	Token     http.HandlerFunc
	Clients   map[string]string // redirects by id; "": any
	Access    map[string]string // scopes by token
	Refresh   map[string]string // scopes by token
	Asked     []url.Values      // the parameters that browsers came with
	Presented []string          // the client's secrets at the token endpoint
	Renewals  int
	Thefts    int

	codes map[string]url.Values
	used  map[string]bool
}

// NewAuthServer starts an authorization server.
func NewAuthServer() *AuthServer {
	a := &AuthServer{
		Clients: map[string]string{}, Access: map[string]string{}, Refresh: map[string]string{},
		codes: map[string]url.Values{}, used: map[string]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", a.serveMetadata)
	mux.HandleFunc("POST /register", a.serveRegister)
	mux.HandleFunc("/authorize", a.serveAuthorize)
	mux.HandleFunc("POST /token", a.serveToken)
	a.web = httptest.NewServer(mux)
	a.URL = a.web.URL
	return a
}

// Close stops the server.
func (a *AuthServer) Close() { a.web.Close() }

// WriteJSON answers a request with JSON.
func WriteJSON(w http.ResponseWriter, status int, v map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// Locked runs f with the lock.
func (a *AuthServer) Locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *AuthServer) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{
		"issuer": a.URL, "authorization_endpoint": a.URL + "/authorize", "token_endpoint": a.URL +
			"/token",
		"registration_endpoint":                          a.URL + "/register",
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"scopes_supported":                               []string{"offline_access"},
	}
	a.Locked(func() {
		if a.Metadata != nil {
			a.Metadata(m)
		}
	})
	WriteJSON(w, http.StatusOK, m)
}

func (a *AuthServer) serveRegister(w http.ResponseWriter, r *http.Request) {
	var m map[string]any
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	redirects, _ := m["redirect_uris"].([]any)
	m["client_id"] = "client-" + rand.Text()
	a.Locked(func() { a.Clients[m["client_id"].(string)] = fmt.Sprint(redirects...) })
	WriteJSON(w, http.StatusCreated, m)
}

func (a *AuthServer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Asks && r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w,
			`<!doctype html><title>Allow?</title><form method="post"><button>Allow</button></form>`)
		return
	}
	a.Asked = append(a.Asked, q)
	redirect, known := a.Clients[q.Get("client_id")]
	if !known || redirect != "" && redirect != q.Get("redirect_uri") ||
		q.Get("code_challenge_method") != "S256" {
		http.Error(w, "unknown client, wrong redirect, or no challenge", http.StatusBadRequest)
		return
	}
	code := "code-" + rand.Text()
	a.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {a.URL}}
	if a.Answer != nil {
		a.Answer(back)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (a *AuthServer) serveToken(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	defer a.mu.Unlock()
	_, secret, _ := r.BasicAuth()
	a.Presented = append(a.Presented, secret+r.Form.Get("client_secret"))
	if a.Token != nil {
		a.Token(w, r)
		return
	}
	refuse := func(code string) {
		WriteJSON(w, http.StatusBadRequest, map[string]any{"error": code})
	}
	given, scope := r.Form.Get("code")+r.Form.Get("refresh_token"), ""
	if a.used[given] {
		a.Thefts++
		clear(a.Access)
		clear(a.Refresh)
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
		if scope, known = a.Refresh[given]; !known {
			refuse("invalid_grant")
			return
		}
		a.Renewals++
	}
	a.used[given] = true
	delete(a.Refresh, given)
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	a.Access[access], a.Refresh[refresh] = scope, scope
	answer := map[string]any{"access_token": access, "token_type": "Bearer",
		"refresh_token": refresh, "scope": scope}
	if a.Lifetime > 0 {
		answer["expires_in"] = a.Lifetime
	}
	WriteJSON(w, http.StatusOK, answer)
}

// Protect makes an MCP server want a token of a, and the scope write for its tool write.
func (a *AuthServer) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := "http://" + r.Host
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			WriteJSON(w, http.StatusOK, map[string]any{
				"resource": base + "/mcp", "authorization_servers": []string{a.URL},
				"scopes_supported": []string{"read"},
			})
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		a.mu.Lock()
		scope, isGood := a.Access[token]
		a.mu.Unlock()
		about := `Bearer resource_metadata="` + base + `/.well-known/oauth-protected-resource/mcp"`
		data, _ := io.ReadAll(r.Body)
		switch {
		case !isGood:
			w.Header().Set("WWW-Authenticate", about)
			w.WriteHeader(http.StatusUnauthorized)
			return
		case bytes.Contains(data, []byte(`"name":"write"`)) &&
			!slices.Contains(strings.Fields(scope), "write"):
			w.Header().Set("WWW-Authenticate", about+`, error="insufficient_scope", scope="write"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		next.ServeHTTP(w, r)
	})
}

// Secrets returns each token and code that a gave so far.
func (a *AuthServer) Secrets() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(a.Access)), slices.Collect(maps.Keys(a.Refresh)),
		slices.Collect(maps.Keys(a.used)))
}

// Browse follows a link as a browser does, and returns the last page.
func Browse(link string) (status int, text string, err error) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(link) //nolint:noctx // the page may take as long as the test
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}
