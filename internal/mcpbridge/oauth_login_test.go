package mcpbridge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/configs"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest"
)

// isCode checks that an error has a code, and a text in its message.
func isCode(t *testing.T, err error, code protocol.Code, text string) {
	t.Helper()
	if e, ok := errors.AsType[*protocol.Error](err); !ok || e.Code != code ||
		!strings.Contains(e.Message, text) || strings.Contains(e.Message, "\n") {
		t.Errorf("the login ends with %v, want %s and %q on one line", err, code, text)
	}
}

// The fault of a login is reported in one line, and nothing is kept.
func TestLoginRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(a *taptest.AuthServer, p *configs.Provider)
		code   protocol.Code
		want   string
	}{
		"denied by the person": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Answer = func(q url.Values) {
					q.Del("code")
					q.Set("error", "access_denied")
					q.Set("error_description", "not\x1b[2J today\n")
				}
			}, protocol.CodeDenied, `the login for srv was refused: access_denied, not`,
		},
		"answer of another server": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Answer = func(q url.Values) { q.Set("iss", "https://evil.example") }
			}, protocol.CodeInvalidState,
			`authorization response issuer "https://evil.example" does not match`,
		},
		"code of another login": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Answer = func(q url.Values) { q.Set("code", "code-stolen") }
			}, protocol.CodeInvalidState, "the authorization server answered invalid_grant",
		},
		"metadata of another issuer": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Metadata = func(m map[string]any) { m["issuer"] = "https://evil.example" }
			}, protocol.CodeInvalidState, `metadata issuer "https://evil.example" does not match`,
		},
		"endpoint without TLS": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Metadata = func(m map[string]any) {
					m["token_endpoint"] = "http://evil.example/token"
				}
			}, protocol.CodeInvalidState, "token_endpoint",
		},
		"page that is a script": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Metadata = func(m map[string]any) {
					m["authorization_endpoint"] = "javascript:alert(1)"
				}
			}, protocol.CodeInvalidState, "authorization_endpoint",
		},
		"no PKCE": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Metadata = func(m map[string]any) {
					delete(m, "code_challenge_methods_supported")
				}
			}, protocol.CodeInvalidState, "does not implement PKCE",
		},
		"no registration": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Metadata = func(m map[string]any) { delete(m, "registration_endpoint") }
			}, protocol.CodeInvalidState, "no configured client registration methods",
		},
		"client of another issuer": {
			func(_ *taptest.AuthServer, p *configs.Provider) {
				p.MCP.OAuth = configs.OAuth{ClientID: "c", Issuer: "https://other.example"}
			}, protocol.CodeInvalidState, "does not match pre-registered credentials issuer",
		},
		"secret that is not set": {
			func(_ *taptest.AuthServer, p *configs.Provider) {
				p.MCP.OAuth = configs.OAuth{ClientID: "c", ClientSecret: "${OAUTH_TEST_NONE}"}
			}, protocol.CodeInvalidState, "oauth.client_secret needs the variable OAUTH_TEST_NONE",
		},
		"token endpoint that says too much": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Token = func(w http.ResponseWriter, r *http.Request) {
					http.Error(w, r.Form.Get("code_verifier")+"hush", http.StatusTeapot)
				}
			}, protocol.CodeInvalidState, "the authorization server answered 418 I'm a teapot",
		},
		"token of two lines": {
			func(a *taptest.AuthServer, _ *configs.Provider) {
				a.Token = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(
						[]byte(`{"access_token":"hush\r\nX-Evil: 1","token_type":"bearer"}`))
				}
			}, protocol.CodeInvalidState, "gave a token that no request can carry",
		},
		"own header": {
			func(_ *taptest.AuthServer, p *configs.Provider) {
				p.MCP.Headers = map[string]string{"AUTHORIZATION": "x"}
			}, protocol.CodeInvalidState, "has the header Authorization",
		},
		"a program": {
			func(_ *taptest.AuthServer, p *configs.Provider) { p.MCP.URL = "" },
			protocol.CodeInvalidState, `provider "srv" has no MCP server at a URL`,
		},
		"another kind": {
			func(_ *taptest.AuthServer, p *configs.Provider) { p.Kind = configs.KindHTTP },
			protocol.CodeInvalidState, `provider "srv" has no MCP server at a URL`,
		},
	} {
		a := newAuthServer(t)
		p := protectedServer(t, a, eras[0])
		c.change(a, &p)
		logins := NewLogins(filepath.Join(t.TempDir(), "logins"))
		err := logIn(t, logins, p)
		isCode(t, err, c.code, c.want)
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error is %v, want no secret in it", name, err)
		}
		if _, err := os.Stat(logins.dir); err == nil {
			t.Errorf("%s: something is kept, want nothing", name)
		}
	}
}

// Only the browser that the login sent away brings it back, once: whatever else comes to the port
// changes nothing.
func TestLoginReturn(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	p := protectedServer(t, a, eras[0])
	var second string
	err := NewLogins(t.TempDir()).Login(t.Context(), p, func(link string) error {
		client := &http.Client{
			Transport: &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}
		sent, err := client.Get(link)
		if err != nil {
			return err
		}
		_ = sent.Body.Close()
		back := sent.Header.Get("Location")
		ask := func(method, target string, change func(r *http.Request)) int {
			req, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			change(req)
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return 0
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		header := func(name, value string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set(name, value) }
		}
		same := func(*http.Request) {}
		u, _ := url.Parse(back)
		wrong := *u
		wrong.RawQuery = "code=x&state=guessed"
		for name, c := range map[string]struct {
			got, want int
		}{
			"other host": {ask(http.MethodGet, back, func(r *http.Request) {
				r.Host = "evil.example"
			}), 421},
			"name of the port": {
				ask(http.MethodGet, back, func(r *http.Request) {
					r.Host = "localhost:" + u.Port()
				}), 421,
			},
			"other origin": {ask(http.MethodGet, back,
				header("Origin", "https://evil.example")), 403},
			"image": {ask(http.MethodGet, back, header("Sec-Fetch-Dest", "image")), 403},
			"frame": {ask(http.MethodGet, back, header("Sec-Fetch-Dest", "iframe")),
				403},
			"preview":          {ask(http.MethodHead, back, same), 405},
			"form":             {ask(http.MethodPost, back, same), 405},
			"other path":       {ask(http.MethodGet, "http://"+u.Host+"/", same), 404},
			"state of nobody":  {ask(http.MethodGet, wrong.String(), same), 400},
			"without anything": {ask(http.MethodGet, "http://"+u.Host+returnPath, same), 400},
		} {
			if c.got != c.want {
				t.Errorf("%s: status %d, want %d", name, c.got, c.want)
			}
		}
		first := make(chan string, 1)
		go func() {
			_, text := browse(t, back)
			first <- text
		}()
		t.Cleanup(func() {
			if text := <-first; !strings.HasPrefix(text,
				"tapgw is logged in for the provider srv.") {
				t.Errorf("the page says %q, want that the login is done", text)
			}
		})
		second = back
		return nil
	})
	if err != nil {
		t.Fatalf("the login ends with %v, want no error", err)
	}
	u, _ := url.Parse(second)
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Error("the port is still open after the login, want it closed")
	}
}

// A second answer is told so, and the first counts.
func TestLoginReturnsOnce(t *testing.T) {
	t.Parallel()
	r, err := listenForReturn(configs.Provider{Name: "srv"})
	if err != nil {
		t.Fatal(err)
	}
	link := r.url + "?code=c&state=s"
	if status, _ := browse(t, link); status != http.StatusBadRequest {
		t.Errorf("an answer before the question: status %d, want 400", status)
	}
	r.expect("s")
	first := make(chan string, 1)
	go func() {
		_, text := browse(t, link)
		first <- text
	}()
	if got, err := r.wait(t.Context()); err != nil || got.Code != "c" {
		t.Errorf("the answer is %v, %v, want the code c", got, err)
	}
	if status, text := browse(t, link); status != http.StatusConflict {
		t.Errorf("the second answer: %d %q, want status 409", status, text)
	}
	r.close(errors.New("it broke"))
	if text := <-first; text != "The login failed: it broke\n" {
		t.Errorf("the first answer's page says %q, want why the login failed", text)
	}
}

// A client that the user registered is used as the file says, with its secret, its scopes and its
// port.
func TestOwnClient(t *testing.T) {
	t.Setenv("OAUTH_TEST_SECRET", "hush")
	a := newAuthServer(t)
	p := protectedServer(t, a, eras[0])
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	p.MCP.OAuth = configs.OAuth{
		ClientID: "mine", ClientSecret: "${OAUTH_TEST_SECRET}", Issuer: a.URL,
		Scopes: []string{"write"}, Port: port,
	}
	a.Clients["mine"] = ""
	logins := NewLogins(t.TempDir())
	isCode(t, logIn(t, logins, p), protocol.CodeInvalidState,
		"the browser can't return to port "+strconv.Itoa(port))
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if err := logIn(t, logins, p); err != nil {
		t.Fatal(err)
	}
	q := a.Asked[0]
	if back := "http://127.0.0.1:" + strconv.Itoa(port) +
		returnPath; q.Get("client_id") != "mine" ||
		q.Get(
			"redirect_uri",
		) != back || !strings.Contains(q.Get("scope"), "write") ||
		strings.Contains(q.Get("scope"), "read") || q.Get("resource") != p.MCP.URL {
		t.Errorf(
			"the browser came with %v, want the client mine, scope write, the server's URL and %s",
			q, back)
	}
	a.Locked(func() { clear(a.Access) })
	token := mustRead(t, filepath.Join(logins.dir, "srv.json")).Token.AccessToken
	if err := logins.ofProvider(p).renew(t.Context(), p, token, nil); err != nil {
		t.Errorf("refreshing: %v, want no error", err)
	}
	a.Locked(func() {
		if !slices.Equal(a.Presented, []string{"hush", "hush"}) {
			t.Errorf(
				"the token endpoint got the secrets %q, want hush for the code and for the refresh",
				a.Presented)
		}
	})
	data, err := os.ReadFile(filepath.Join(logins.dir, "srv.json"))
	if err != nil || strings.Contains(string(data), "hush") {
		t.Errorf("the file has %s, %v, want no secret of the environment", data, err)
	}
}

// A server that wants no login says so, and one that is not there, too.
func TestNothingToLogInAt(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	p := configs.Provider{Name: "srv", Kind: configs.KindMCP,
		MCP: configs.MCPUpstream{URL: web.URL}}
	err := logIn(t, NewLogins(t.TempDir()), p)
	isCode(t, err, protocol.CodeInvalidState, "asks for no login: it answered 404 Not Found")
	web.Close()
	isCode(t, logIn(t, NewLogins(t.TempDir()), p), protocol.CodeInvalidState, "connection refused")
}

// A login that is not finished ends, by itself or because its command ended, and a directory that
// can't be written is an error.
func TestLoginGivenUp(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	p := protectedServer(t, a, eras[0])
	ctx, cancel := context.WithCancel(t.Context())
	err := NewLogins(t.TempDir()).Login(ctx, p, func(string) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled login ends with %v, want %v", err, context.Canceled)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	isCode(t, logIn(t, NewLogins(file), p), protocol.CodeInvalidState, "keeping a login")
	synctest.Test(t, func(t *testing.T) {
		r := &loginReturn{answer: make(chan url.Values, 1)}
		began := time.Now()
		ctx, cancel := withLoginTime(t.Context())
		defer cancel()
		_, err := r.wait(ctx)
		isCode(t, err, protocol.CodeTimeout, "nobody logged in within 5m0s")
		if took := time.Since(began); took != loginTime {
			t.Errorf("the login waited %s, want %s", took, loginTime)
		}
	})
}

// No server elsewhere leads the gateway or its user's browser to this machine.
func TestCheckReach(t *testing.T) {
	t.Parallel()
	for target, isFine := range map[string]bool{
		"https://as.example/x": true, "http://127.0.0.1:9400/": false, "http://localhost/": false,
		"http://LOCALHOST./": false, "https://a.localhost/": false, "http://[::1]:1/": false,
		"http://[::ffff:127.0.0.1]/": false, "http://127.9.9.9/": false,
		"https://127.example/": true,
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkReach("https://mcp.example/mcp", u); (err == nil) != isFine {
			t.Errorf("%s: %v, want fine: %v", target, err, isFine)
		}
		if err := checkReach("http://localhost:1/mcp", u); err != nil {
			t.Errorf("%s from this machine: %v, want no error", target, err)
		}
	}
	client := newOAuthClient("https://mcp.example/mcp")
	defer client.CloseIdleConnections()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	resp, err := client.Get(web.URL)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "leads to a program on this machine") {
		t.Errorf("a request to this machine: %v, want that it is refused", err)
	}
}
