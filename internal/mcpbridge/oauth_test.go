package mcpbridge

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/configs"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest"
)

const needsLogin = "needs a login: run tapctl providers login srv"

// with gives a bridge logins.
func with(l *Logins) func(*Options) { return func(o *Options) { o.Logins = l } }

// offers waits for the tools of a protected server.
func (h *host) offers(t *testing.T) {
	t.Helper()
	h.has(t, "read", "write")
}

// A server that wants a login is a fault until a person logs in, in a browser, and again when they
// log out. The token is only in a file of the gateway's user.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			a, r := newAuthServer(t), newRig(t)
			p := protectedServer(t, a, era)
			s, h := r.session("one", "/w")
			dir := filepath.Join(t.TempDir(), "logins")
			logins := NewLogins(dir)
			b := r.bridge(p, with(logins))
			b.hasFault(needsLogin)
			if _, err := os.Stat(dir); err == nil {
				t.Error("there is a directory of logins without one, want none")
			}
			if err := logIn(t, logins, p); err != nil {
				t.Fatalf("logging in: %v, want no error", err)
			}
			h.offers(t)
			b.until("no fault", func(_, faults string) bool { return faults == "" })
			if o := callTool(s, "read", "{}"); o.Text() != "done" {
				t.Errorf("a call gives %q, want done", o.Text())
			}
			isPrivate(t, dir, 0o700)
			isPrivate(t, filepath.Join(dir, "srv.json"), 0o600)
			b.mu.Lock()
			said := strings.Join(append(b.lines, b.faults...), "\n")
			b.mu.Unlock()
			for _, secret := range a.Secrets() {
				if strings.Contains(said, secret) {
					t.Errorf("the log has %s, want no secret in it:\n%s", secret, said)
				}
			}

			// The gateway's next run has the login.
			b.stop()
			if err := <-b.done; err != nil {
				t.Errorf("the bridge ends with %v, want nil", err)
			}
			b.done <- nil
			h.has(t)
			logins = NewLogins(dir)
			b = r.bridge(p, with(logins))
			h.offers(t)

			if had, err := logins.Logout(t.Context(), p); !had || err != nil {
				t.Errorf("logging out: %v, %v, want true and no error", had, err)
			}
			b.hasFault(needsLogin)
			h.has(t)
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("the directory has %v, %v, want nothing", entries, err)
			}
			if had, err := logins.Logout(t.Context(), p); had || err != nil {
				t.Errorf("logging out again: %v, %v, want false and no error", had, err)
			}
		})
	}
}

func isPrivate(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
		t.Errorf("%s: %v, %v, want mode %o", path, info, err, want)
	}
}

// Sessions that refresh at once lose no call and no login, although each refresh makes the token
// before it void.
func TestRefreshesAtOnce(t *testing.T) {
	t.Parallel()
	a, r := newAuthServer(t), newRig(t)
	p := protectedServer(t, a, eras[0])
	one, h := r.session("one", "/w")
	logins := NewLogins(t.TempDir())
	if err := logIn(t, logins, p); err != nil {
		t.Fatal(err)
	}
	r.bridge(p, with(logins))
	h.offers(t)
	atOnce := func(want string, n int) {
		t.Helper()
		var calls sync.WaitGroup
		for range n {
			calls.Go(func() {
				if o := callTool(one, "read", "{}"); o.Text() != "done" {
					t.Errorf("%s: a call gives %q, want done", want, o.Text())
				}
			})
			calls.Go(func() { // the connection of another session
				if token, err := logins.ofProvider(p).token(t.Context(), p); token == nil ||
					err != nil {
					t.Errorf("%s: the token is %v, %v, want one", want, token, err)
				}
			})
		}
		calls.Wait()
	}
	var before int
	a.Locked(func() {
		before = a.Renewals
		clear(a.Access)
	})
	atOnce("tokens that the server forgot", 20)
	a.Locked(func() {
		if n := a.Renewals - before; n != 1 {
			t.Errorf("20 calls without a good token made %d refreshes, want 1", n)
		}
		a.Lifetime = 1 // each token is too old at once
		clear(a.Access)
	})
	atOnce("tokens that end", 20)
	// The tokens of the file are the present ones.
	again := NewLogins(logins.dir)
	if token, err := again.ofProvider(p).token(t.Context(), p); err != nil || token == nil {
		t.Errorf("the next gateway's token: %v, %v, want one", token, err)
	}
	a.Locked(func() {
		if a.Thefts > 0 {
			t.Errorf("%d refresh tokens were used twice, want none", a.Thefts)
		}
	})
}

// A login that ends while the provider runs is a fault that says how to log in, and the next login
// mends it.
func TestLoginEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		end        func(a *taptest.AuthServer)
	}{
		{
			"revoked", "needs a login (the last one has ended): run tapctl providers login srv",
			func(a *taptest.AuthServer) {
				clear(a.Access)
				clear(a.Refresh)
			},
		},
		{
			"client forgotten",
			"needs a login (the authorization server does not know the client: invalid_client): run",
			func(a *taptest.AuthServer) {
				clear(a.Access)
				a.Token = func(w http.ResponseWriter, _ *http.Request) {
					taptest.WriteJSON(w, http.StatusUnauthorized,
						map[string]any{"error": "invalid_client"})
				}
			},
		},
		{
			"new tokens refused, too", needsLogin, func(a *taptest.AuthServer) {
				clear(a.Access)
				a.Token = func(w http.ResponseWriter, _ *http.Request) {
					a.Renewals++
					taptest.WriteJSON(w, http.StatusOK, map[string]any{"access_token": "useless"})
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, r := newAuthServer(t), newRig(t)
			p := protectedServer(t, a, eras[0])
			s, h := r.session("one", "/w")
			logins := NewLogins(t.TempDir())
			if err := logIn(t, logins, p); err != nil {
				t.Fatal(err)
			}
			b := r.bridge(p, with(logins))
			h.offers(t)
			a.Locked(func() { c.end(a) })
			if o := callTool(s, "read", "{}"); !strings.HasPrefix(o.Text(), "DISCONNECTED") &&
				!strings.HasPrefix(o.Text(), "INTERNAL: the MCP server "+c.want) {
				t.Errorf("a call gives %q, want DISCONNECTED, or INTERNAL and the reason", o.Text())
			}
			b.hasFault(c.want)
			h.has(t)
			a.Locked(func() {
				if a.Renewals > 1 {
					t.Errorf("the token was refreshed %d times, want at most once", a.Renewals)
				}
				a.Token = nil
			})
			if err := logIn(t, logins, p); err != nil {
				t.Fatal(err)
			}
			h.offers(t)
		})
	}
}

// An authorization server that is out of order fails calls, and the login stays. No word of its
// answer is shown.
func TestAuthServerOutOfOrder(t *testing.T) {
	t.Parallel()
	a, r := newAuthServer(t), newRig(t)
	p := protectedServer(t, a, eras[0])
	s, h := r.session("one", "/w")
	logins := NewLogins(t.TempDir())
	if err := logIn(t, logins, p); err != nil {
		t.Fatal(err)
	}
	r.bridge(p, with(logins))
	h.offers(t)
	a.Locked(func() {
		clear(a.Access)
		a.Token = func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "you sent "+r.Form.Get("refresh_token"), http.StatusServiceUnavailable)
		}
	})
	o := callTool(s, "read", "{}")
	if want := "refreshing the login: the authorization server answered 503 Service Unavailable"; !strings.Contains(
		o.Text(), want) || strings.Contains(o.Text(), "you sent") {
		t.Errorf("a call gives %q, want %q and nothing of the answer", o.Text(), want)
	}
	a.Locked(func() { a.Token = nil })
	if o := callTool(s, "read", "{}"); o.Text() != "done" {
		t.Errorf("a call afterwards gives %q, want done", o.Text())
	}
}

// A refusal whose body never ends blocks no other call.
func TestEndlessRefusal(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	p := configs.Provider{Name: "srv", Kind: configs.KindMCP,
		MCP: configs.MCPUpstream{URL: web.URL + "/mcp"}}
	logins := NewLogins(t.TempDir())
	newRig(t).bridge(p, with(logins)).hasFault(needsLogin)
	isCode(t, logIn(t, NewLogins(t.TempDir()), p), protocol.CodeInvalidState,
		"logging in at "+web.URL)
}

// A call that needs more rights fails alone, and its error says how to get them. The next login
// asks for these rights, too.
func TestStepUp(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			a, r := newAuthServer(t), newRig(t)
			p := protectedServer(t, a, era)
			s, h := r.session("one", "/w")
			logins := NewLogins(t.TempDir())
			if err := logIn(t, logins, p); err != nil {
				t.Fatal(err)
			}
			b := r.bridge(p, with(logins))
			h.offers(t)
			const want = "needs a login (the server wants more rights: scope write): run tapctl providers login srv"
			if o := callTool(s, "write", "{}"); !strings.HasSuffix(o.Text(), want) {
				t.Errorf("a call gives %q, want %q at its end", o.Text(), want)
			}
			b.hasFault(want)
			if o := callTool(s, "read", "{}"); o.Text() != "done" {
				t.Errorf("another call gives %q, want done", o.Text())
			}
			if err := logIn(t, logins, p); err != nil {
				t.Fatal(err)
			}
			b.until("no fault", func(_, faults string) bool { return faults == "" })
			h.offers(t)
			if o := callTool(s, "write", "{}"); o.Text() != "done" {
				t.Errorf("the call gives %q after the login, want done", o.Text())
			}
			var scopes [][]string
			a.Locked(func() {
				for _, q := range a.Asked {
					asked := strings.Fields(q.Get("scope"))
					slices.Sort(asked)
					scopes = append(scopes, asked)
				}
			})
			first, second := []string{"offline_access", "read"},
				[]string{"offline_access", "read", "write"}
			if len(scopes) != 2 || !slices.Equal(scopes[0], first) ||
				!slices.Equal(scopes[1], second) {
				t.Errorf("the logins ask for %q, want %q and %q", scopes, first, second)
			}
		})
	}
}

// A token goes only to the server that it was given for: not to a server that the file names later,
// not after a redirect, and not where the file has a header of its own.
func TestTokenStaysWithItsServer(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	p := protectedServer(t, a, eras[0])
	dir := t.TempDir()
	if err := logIn(t, NewLogins(dir), p); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var heard []string
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(stranger.Close)
	r := newRig(t)
	moved := p
	moved.MCP.URL = stranger.URL + "/mcp"
	r.bridge(moved, with(NewLogins(dir))).hasFault(needsLogin)

	lured := p
	web := httptest.NewServer(http.RedirectHandler(stranger.URL+"/mcp",
		http.StatusTemporaryRedirect))
	t.Cleanup(web.Close)
	lured.MCP.URL = web.URL
	logins := NewLogins(t.TempDir())
	kept := *mustRead(t, filepath.Join(dir, "srv.json"))
	kept.URL = web.URL
	if err := logins.ofProvider(lured).keep(&kept); err != nil {
		t.Fatal(err)
	}
	r.bridge(lured, with(logins)).hasFault("redirects to " + stranger.URL)

	own := moved
	own.MCP.Headers = map[string]string{"authorization": "mine"}
	r.bridge(own, with(NewLogins(dir))).hasFault("Unauthorized")
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"",
		"mine"}; !slices.Equal(slices.Compact(slices.Sorted(slices.Values(heard))), want) {
		t.Errorf("the stranger heard %q, want only %q", heard, want)
	}
}

func mustRead(t *testing.T, file string) *keptLogin {
	t.Helper()
	kept, err := readLogin(file)
	if err != nil || kept == nil {
		t.Fatalf("%s: %v, %v, want a login", file, kept, err)
	}
	return kept
}

// A login counts for the client and the issuer that the file names, and for the files of one
// project.
func TestLoginIsOfItsFile(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	p := protectedServer(t, a, eras[0])
	logins := NewLogins(t.TempDir())
	if err := logIn(t, logins, p); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(p *configs.Provider)
		has    bool
	}{
		"same":         {func(*configs.Provider) {}, true},
		"other scopes": {func(p *configs.Provider) { p.MCP.OAuth.Scopes = []string{"x"} }, true},
		"other URL":    {func(p *configs.Provider) { p.MCP.URL += "/" }, false},
		"own client":   {func(p *configs.Provider) { p.MCP.OAuth.ClientID = "c" }, false},
		"issuer": {func(p *configs.Provider) {
			p.MCP.OAuth.Issuer = "https://as.example"
		}, false},
		"project's file":  {func(p *configs.Provider) { p.Project = "/project" }, false},
		"other provider":  {func(p *configs.Provider) { p.Name = "other" }, false},
		"name in capital": {func(p *configs.Provider) { p.Name = "SRV" }, false},
	} {
		changed := p
		c.change(&changed)
		if token, err := logins.ofProvider(changed).token(t.Context(),
			changed); (token != nil) != c.has || err != nil {
			t.Errorf("%s: there is a token: %v, error %v; want %v and none", name, token != nil,
				err, c.has)
		}
	}
	file := filepath.Join(logins.dir, "srv.json")
	if err := os.WriteFile(file, []byte(`{"url":"x"`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "needs a login (reading the login in " + file + ": unexpected end of JSON input): run"
	if _, err := NewLogins(logins.dir).ofProvider(p).token(t.Context(), p); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("half a file: %v, want %q", err, want)
	}
}
