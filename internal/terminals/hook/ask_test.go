package hook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/proof"
)

const hookToken = "adm-0123456789abcdef0123456789abcdef"

// fakeGateway proves that it is the gateway, and answers hooks as the handler does.
func fakeGateway(t *testing.T, handler http.HandlerFunc) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		_, nonce, _ := proof.ParseQuestion(r.Header.Get(proof.AskHeader))
		own := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		w.Header().Set(proof.AnswerHeader, proof.Answer(proof.KeyOf(hookToken), nonce,
			proof.Address(own)))
	})
	mux.HandleFunc("POST "+adminapi.Prefix+"/terminals/hooks",
		func(w http.ResponseWriter, r *http.Request) {
			// else the server does not notice that the client has gone
			_, _ = io.Copy(io.Discard, r.Body)
			handler(w, r)
		})
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	t.Setenv(client.EnvURL, s.URL)
	t.Setenv(client.EnvToken, hookToken)
}

// runHook answers a hook, for at most a time, with the settings of hookHome.
func runHook(t *testing.T, limit time.Duration, event, stdin string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	output, note := Run(ctx, event, strings.NewReader(stdin), func() (configs.Config, error) {
		files, err := configs.Find(t.TempDir(), "")
		if err != nil {
			return configs.Config{}, err
		}
		return files.Load()
	})
	var out bytes.Buffer
	if err := Print(&out, event, output); err != nil {
		t.Error(err)
	}
	return out.String(), note
}

const aCall = `{"sessionId":"s1","timestamp":1,"cwd":"/","toolName":"bash","toolArgs":{"command":"ls"}}`

// hookHome gives the test a home without a gateway, and a tapgw.toml with a content.
func hookHome(t *testing.T, config string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tapgw.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Setenv("COPILOT_HOME", filepath.Join(dir, "copilot"))
	t.Setenv("TAPGW_CONFIG", file)
	t.Setenv(client.EnvURL, "")
	t.Setenv(client.EnvToken, "")
}

// Whatever a gateway does but allow a call in a form that the CLI knows, the call is denied.
func TestHookUnderFire(t *testing.T) {
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	released := make(chan struct{})
	defer close(released)
	tests := []struct {
		name    string
		handler http.HandlerFunc
		stdin   string
		want    string // part of the reason; "" for a call that goes on
	}{
		{"allows", says(200, `{"output":{}}`), aCall, ""},
		{"adds a context", says(200, `{"output":{"additionalContext":"c"}}`), aCall, ""},
		{"denies",
			says(200, `{"output":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`),
			aCall, "no"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}, aCall, "did not answer in time"},
		{"is half done", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"output":`)
			w.(http.Flusher).Flush()
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}, aCall, "did not answer in time"},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		}, aCall, "could not ask the gateway"},
		{"fails", says(500, `{"error":{"code":"INTERNAL","message":"boom"}}`), aCall, "boom"},
		{"fails without words", says(500, ``), aCall, "could not ask"},
		{"knows no hooks", says(404, `404 page not found`), aCall, "could not ask"},
		{"takes another token", says(401, `{"error":{"code":"UNAUTHORIZED","message":"m"}}`), aCall,
			"could not ask"},
		{"redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/", http.StatusFound)
		}, aCall, "could not ask"},
		{"answers no JSON", says(200, `allowed`), aCall, "could not ask"},
		{"answers nothing", says(200, ``), aCall, "could not ask"},
		{"answers without an output", says(200, `{}`), aCall, "none that the CLI knows"},
		{"answers null", says(200, `{"output":null}`), aCall, "none that the CLI knows"},
		{"answers a list", says(200, `{"output":[]}`), aCall, "none that the CLI knows"},
		{"asks", says(200, `{"output":{"permissionDecision":"ask"}}`), aCall,
			"none that the CLI knows"},
		{"allows by itself", says(200, `{"output":{"permissionDecision":"allow"}}`), aCall,
			"none that the CLI knows"},
		{"knows another form", says(200, `{"output":{"decision":"deny"}}`), aCall,
			"none that the CLI knows"},
		{"says it twice",
			says(200, `{"output":{"permissionDecision":"deny","permissionDecision":""}}`), aCall,
			"none that the CLI knows"},
		{"gets no JSON", says(200, `{"output":{}}`), `{"sessionId":`, "not JSON"},
		{"gets nothing", says(200, `{"output":{}}`), ``, "not JSON"},
		{"gets too much", says(200, `{"output":{}}`), `"` + strings.Repeat("a", maxInput) + `"`,
			"too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hookHome(t, "")
			fakeGateway(t, tt.handler)
			limit := 30 * time.Second
			if strings.Contains(tt.want, "in time") {
				limit = 300 * time.Millisecond
			}
			stdout, stderr := runHook(t, limit, EventPreToolUse, tt.stdin)
			isDenial := strings.Contains(stdout, `"permissionDecision":"deny"`)
			if isDenial != (tt.want != "") || !strings.Contains(stdout, tt.want) {
				t.Errorf("%q (%s), want a denial with %q", stdout, stderr, tt.want)
			}
			if err := CheckOutput(EventPreToolUse, []byte(stdout)); err != nil {
				t.Error(err)
			}
		})
	}
}

// An event that decides nothing never disturbs the CLI.
func TestHookFailsQuietlyElsewhere(t *testing.T) {
	hookHome(t, `terminals.without_gateway = "deny"`)
	for _, event := range Events {
		if Decides(event) {
			continue
		}
		stdout, _ := runHook(t, time.Minute, event, `{"sessionId":"s1","cwd":"/"}`)
		if stdout != "{}\n" {
			t.Errorf("%s: %q, want {}", event, stdout)
		}
	}
}

// While no gateway runs, the user's file decides. A file that can't be read denies.
func TestHookWithoutGateway(t *testing.T) {
	for _, tt := range []struct{ name, config, url, want string }{
		{"default", "", "", ""},
		{"allow", `terminals.without_gateway = "allow"`, "", ""},
		{"deny", `terminals.without_gateway = "deny"`, "", "tapgw ensure"},
		{"deny, and the gateway is named", `terminals.without_gateway = "deny"`,
			"http://127.0.0.1:1", "tapgw ensure"},
		{"a typing error", `terminals.without_gatway = "deny"`, "", "settings can't be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hookHome(t, tt.config)
			if tt.url != "" {
				t.Setenv(client.EnvURL, tt.url)
				t.Setenv(client.EnvToken, hookToken)
			}
			stdout, stderr := runHook(t, time.Minute, EventPreToolUse, aCall)
			isDenied := stdout != "{}\n"
			if isDenied != (tt.want != "") || !strings.Contains(stdout, tt.want) {
				t.Errorf("%q (%s), want %q", stdout, stderr, tt.want)
			}
			if tt.want == "" && !strings.Contains(stderr, "no gateway runs") {
				t.Errorf("stderr: %q, want that no gateway runs", stderr)
			}
		})
	}
}

// A program that has the gateway's port is no gateway: the call is denied, and the program learns
// nothing.
func TestHookAtStranger(t *testing.T) {
	hookHome(t, "")
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, fmt.Sprint(r.URL.Path, r.Header))
	}))
	defer s.Close()
	t.Setenv(client.EnvURL, s.URL)
	t.Setenv(client.EnvToken, hookToken)
	stdout, _ := runHook(t, time.Minute, EventPreToolUse, aCall)
	if !strings.Contains(stdout, "is not your gateway") {
		t.Errorf("%q, want a denial", stdout)
	}
	if all := strings.Join(asked, "\n"); strings.Contains(all, hookToken) ||
		strings.Contains(all, "hooks") {
		t.Errorf("the stranger got %s, want neither the token nor the hook", all)
	}
}
