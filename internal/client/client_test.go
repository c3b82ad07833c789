package client

import (
	"context"
	"encoding/json"
	"errors"
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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
	"tapgw/internal/taptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone leaves a test without anything to discover but an empty home.
func alone(t *testing.T) (stateDir string) {
	t.Helper()
	t.Setenv(EnvURL, "")
	t.Setenv(EnvToken, "")
	home := t.TempDir()
	t.Setenv(statedir.EnvHome, home)
	dir := filepath.Join(home, "extensions", "tap")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// running makes it so that a gateway runs there, for all who look.
func running(t *testing.T, dir string) (ends func()) {
	t.Helper()
	lock, err := proc.TryLock(filepath.Join(dir, statedir.LockFile))
	if err != nil || lock == nil {
		t.Fatalf("locking the gateway's directory: %v, want the lock", err)
	}
	t.Cleanup(lock.Unlock)
	return lock.Unlock
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// asks returns a client of a gateway that answers as h does.
func asks(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	alone(t)
	web := httptest.NewServer(taptest.Proving(h, "adm-secret"))
	t.Cleanup(web.Close)
	c, err := New(Options{URL: web.URL, Token: "adm-secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestDiscovery(t *testing.T) {
	dir := alone(t)
	found := func(o Options) string {
		t.Helper()
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return c.URL() + " " + c.token
	}
	for _, step := range []struct {
		do   func()
		o    Options
		want string
	}{
		{func() {
			running(t, dir)
			write(t, filepath.Join(dir, statedir.InfoFile), `{"url":"ws://127.0.0.1:1234","pid":1}`)
			write(t, filepath.Join(dir, statedir.AdminTokenFile), "adm-file\n")
		}, Options{}, "ws://127.0.0.1:1234 adm-file"},
		{func() { t.Setenv(EnvURL, "wss://h.example:5"); t.Setenv(EnvToken, "adm-env") }, Options{},
			"wss://h.example:5 adm-env"},
		{func() {}, Options{URL: "http://[::1]:6/", Token: "adm-flag"}, "ws://[::1]:6 adm-flag"},
	} {
		step.do()
		if got := found(step.o); got != step.want {
			t.Errorf("%+v: got %q, want %q", step.o, got, step.want)
		}
	}
	// Without COPILOT_HOME it is the user's own.
	t.Setenv(statedir.EnvHome, "")
	t.Setenv("HOME", "/somebody")
	if got, err := stateDir(); err != nil || got != "/somebody/.copilot/extensions/tap" {
		t.Errorf("got %s (%v), want /somebody/.copilot/extensions/tap", got, err)
	}
}

func TestDiscoveryRefusesWhatIsWrong(t *testing.T) {
	dir := alone(t)
	running(t, dir)
	gateway, token := filepath.Join(dir, statedir.InfoFile),
		filepath.Join(dir, statedir.AdminTokenFile)
	for _, tc := range []struct {
		o    Options
		do   func()
		exit int
		says string
	}{
		{Options{URL: "127.0.0.1:9400"}, nil, 2, "flag --url: "},
		{Options{URL: "ftp://x"}, nil, 2,
			`flag --url: "ftp://x" is not a gateway's URL, want one like ws://127.0.0.1:9400`},
		{Options{URL: "ws://"}, nil, 2, "names no host"},
		{Options{URL: "ws://h/path"}, nil, 2, "a scheme, a host and a port only"},
		{Options{URL: "ws://u:secret@h"}, nil, 2, "ws://u:xxxxx@h"},
		{Options{URL: "ws://h", Token: "a b"}, nil, 2,
			"flag --token: the token has a character that tokens never have"},
		{Options{}, func() { t.Setenv(EnvURL, "nope") }, 2, "TAP_GATEWAY_URL: "},
		{Options{}, func() {
			t.Setenv(EnvURL, "")
			t.Setenv(EnvToken, "a\tb")
		}, 2, "TAP_ADMIN_TOKEN: "},
		{Options{}, func() {
			t.Setenv(EnvToken, "")
			write(t, gateway, "{")
		}, 1, gateway + ": not valid JSON"},
		{Options{}, func() { write(t, gateway, `{"url":"x"}`) }, 1, gateway + ": url: "},
		{Options{}, func() { _ = os.Chmod(gateway, 0o666) }, 5, "others can write it (mode 0666)"},
		{Options{URL: "ws://h"}, func() { write(t, token, "adm-x"); _ = os.Chmod(token, 0o622) }, 5,
			token + ": others can write it"},
		{Options{URL: "ws://h"}, func() { _ = os.Remove(token); _ = os.Mkdir(token, 0o700) }, 1,
			token + ": not a regular file"},
	} {
		if tc.do != nil {
			tc.do()
		}
		_, err := New(tc.o)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != tc.exit || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%+v: got %v, want exit %d …%s…", tc.o, err, tc.exit, tc.says)
		}
	}
}

func TestRequests(t *testing.T) {
	var got string
	answer := ""
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.RequestURI()
		if len(body) > 0 {
			got += " " + string(body)
		}
		if auth := r.Header.Get("Authorization"); auth != "Bearer adm-secret" {
			got += " with " + auth
		}
		_, _ = io.WriteString(w, answer)
	})
	ctx := t.Context()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	for _, tc := range []struct {
		answer, want string
		do           func() (any, error)
		result       any
	}{
		{`{"url":"ws://h","sessions":2,"faults":[{"file":"f","line":3}]}`, "GET /api/v1/status",
			func() (any, error) { return c.Status(ctx) },
			adminapi.Status{URL: "ws://h", Sessions: 2,
				Faults: []adminapi.Fault{{File: "f", Line: 3}}}},
		{`[{"id":"a"}]`, "GET /api/v1/sessions", func() (any, error) { return c.Sessions(ctx) },
			[]adminapi.Session{{ID: "a"}}},
		{`{"id":"a/b"}`, "GET /api/v1/sessions/a%2Fb", func() (any, error) {
			return c.Session(ctx, "a/b")
		},
			adminapi.Session{ID: "a/b"}},
		{`{"id":"a"}`, `POST /api/v1/sessions {"host":"local","cwd":"/d"}`,
			func() (any, error) {
				return c.Start(ctx, adminapi.StartRequest{Host: "local", CWD: "/d"})
			}, "a"},
		{`{}`, "DELETE /api/v1/sessions/a", func() (any, error) {
			return nil, c.Stop(ctx, "a")
		}, nil},
		{`{}`, `POST /api/v1/sessions/a/query {"prompt":"hi","mode":"immediate","detach":true}`,
			func() (any, error) {
				return nil, c.Send(ctx, "a",
					adminapi.Query{Prompt: "hi", Mode: adminapi.ModeImmediate})
			}, nil},
		{`{"dropped":["b"]}`, `POST /api/v1/sessions/a/interrupt {"reason":"why"}`,
			func() (any, error) { return c.Interrupt(ctx, "a", "why") }, []string{"b"}},
		{`{}`, `POST /api/v1/sessions/a/foreground {}`, func() (any, error) {
			return nil, c.Foreground(ctx, "a")
		},
			nil},
		{`{"token":"mcp-1"}`, `POST /api/v1/sessions/a/mcp-token {}`,
			func() (any, error) { return c.MCPToken(ctx, "a") }, "mcp-1"},
		{`{"token":"ptk-1"}`, `POST /api/v1/sessions/a/provider-token {}`,
			func() (any, error) { return c.ProviderToken(ctx, "a") }, "ptk-1"},
		{`{"seq":1,"fate":"stored"}`, `POST /api/v1/sessions/a/push {"level":"keep","event":"x"}`,
			func() (any, error) {
				return c.Push(ctx, "a", adminapi.Push{Event: "x", Level: "keep"})
			},
			adminapi.Receipt{Seq: 1, Fate: adminapi.FateStored}},
		{`[{"stream":"s"}]`,
			`GET /api/v1/sessions/a/history?last=5&since=2026-01-02T02%3A04%3A05Z&stream=s&stream=t%40p`,
			func() (any, error) {
				return c.History(ctx, "a", HistoryQuery{Streams: []string{"s", "t@p"}, Last: 5,
					Since: since})
			}, []adminapi.StreamRow{{Stream: "s"}}},
		{`{"data":{"n":1},"durationMs":7}`,
			`POST /api/v1/sessions/a/tools/echo/call {"args":{"x":1},"timeoutMs":1500}`,
			func() (any, error) {
				call := adminapi.Call{Args: json.RawMessage(`{"x":1}`), TimeoutMs: new(int64(1500))}
				return c.Call(ctx, "a", "echo", call)
			}, adminapi.CallResult{Data: json.RawMessage(`{"n":1}`), DurationMs: 7}},
		{`[]`, "GET /api/v1/providers", func() (any, error) {
			return c.Providers(ctx)
		}, []adminapi.Provider{}},
		{`{"stopped":2}`, "POST /api/v1/providers/p/stop {}", func() (any, error) {
			return c.StopProvider(ctx, "p")
		},
			2},
		{`[]`, "GET /api/v1/tools?session=a", func() (any, error) {
			return c.Tools(ctx, "a")
		}, []adminapi.Tool{}},
		{`[]`, "GET /api/v1/tools", func() (any, error) {
			return c.Tools(ctx, "")
		}, []adminapi.Tool{}},
		{`[{"id":"m","multiplier":0.5}]`, "GET /api/v1/models?host=local",
			func() (any, error) {
				return c.Models(ctx, "local")
			}, []adminapi.Model{{ID: "m", Multiplier: 0.5}}},
	} {
		answer = tc.answer
		result, err := tc.do()
		if err != nil || got != tc.want {
			t.Errorf("got %s (%v), want %s", got, err, tc.want)
		}
		if diff := cmp.Diff(tc.result, result); diff != "" {
			t.Errorf("%s: %s", tc.want, diff)
		}
	}
}

func TestStreams(t *testing.T) {
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/query"):
			_, _ = io.WriteString(w,
				`{"ts":"2026-01-02T03:04:05Z","callback":"onMessage","messageId":"m","delta":"hi"}`+
					"\n\n")
			_, _ = io.WriteString(w,
				`{"done":true,"error":{"code":"SESSION_ERROR","message":"no"}}`+"\n")
		case strings.HasSuffix(r.URL.Path, "/log"):
			_, _ = fmt.Fprintf(w, `{"seq":1,"level":"info","source":"%s","message":"x"}`+"\n",
				r.URL.RawQuery)
		case strings.HasSuffix(r.URL.Path, "/history"):
			_, _ = io.WriteString(w, "garbage\n")
		}
	})
	var got []string
	for l, err := range c.Query(t.Context(), "a", adminapi.Query{Prompt: "hi"}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.End != nil {
			got = append(got, string(l.Raw), l.End.Error.Message)
			continue
		}
		got = append(got, l.Name+*l.Delta, string(l.Raw))
	}
	want := []string{"onMessagehi",
		`{"ts":"2026-01-02T03:04:05Z","callback":"onMessage","messageId":"m","delta":"hi"}`,
		`{"done":true,"error":{"code":"SESSION_ERROR","message":"no"}}`, "no"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines of a query (-want +got):\n%s", diff)
	}
	for l, err := range c.Timeline(t.Context(), "a", LogQuery{Follow: true}) {
		if err != nil || l.Source != "follow=1" {
			t.Errorf("timeline: got %+v (%v), want the source follow=1", l, err)
		}
	}
	n := 0
	for _, err := range c.FollowHistory(t.Context(), "a", HistoryQuery{}) {
		n++
		if err == nil || !strings.Contains(err.Error(), "garbage") {
			t.Errorf("a line that is no JSON: got %v, want an error that shows it", err)
		}
	}
	if n != 1 {
		t.Errorf("got %d lines after it, want the error alone", n)
	}
}

func TestErrorsHaveExitCodes(t *testing.T) {
	status, body := 0, ""
	c := asks(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	coded := func(code string) string {
		return fmt.Sprintf(`{"error":{"code":%q,"message":"what is wrong"}}`, code)
	}
	for _, tc := range []struct {
		status, exit int
		body, code   string
		says         string
	}{
		{400, 2, coded("INVALID_JSON"), "INVALID_JSON", "what is wrong"},
		{401, 5, coded("AUTH_FAILED"), "AUTH_FAILED", "what is wrong; is ws://127.0.0.1:"},
		{403, 5, coded("UNAUTHORIZED"), "UNAUTHORIZED", "what is wrong"},
		{404, 4, coded("NOT_FOUND"), "NOT_FOUND", "what is wrong"},
		{409, 1, coded("TOOL_CONFLICT"), "TOOL_CONFLICT", "what is wrong"},
		{413, 2, coded("PAYLOAD_TOO_LARGE"), "PAYLOAD_TOO_LARGE", "what is wrong"},
		{421, 5, coded("UNAUTHORIZED"), "UNAUTHORIZED", "what is wrong"},
		{429, 5, coded("RATE_LIMITED"), "RATE_LIMITED", "what is wrong"},
		{500, 1, coded("INTERNAL"), "INTERNAL", "what is wrong"},
		{503, 3, coded("INVALID_STATE"), "INVALID_STATE", "what is wrong"},
		{504, 124, coded("TIMEOUT"), "TIMEOUT", "what is wrong"},
		{404, 3, "page not found", "UNREACHABLE",
			"it answered 404 Not Found; name the gateway with --url"},
		{302, 3, "", "UNREACHABLE", "it answered 302 Found"},
		{200, 3, "<html>", "UNREACHABLE", "is not what version 1 of its API gives"},
		{429, 5, "slow down", "FAILED", "takes no requests now"},
	} {
		status, body = tc.status, tc.body
		_, err := c.Sessions(t.Context())
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != tc.exit || e.Code != tc.code || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%d %s: got %+v, want exit %d, %s, …%s…", tc.status, tc.body, e, tc.exit,
				tc.code, tc.says)
		}
	}
	c.Close()
	c.token, c.tokenSource = "", "/x/.admin-token"
	want := "no admin token: give --token or TAP_ADMIN_TOKEN (there is no /x/.admin-token)"
	if _, err := c.Sessions(t.Context()); cli.AsError(err).Exit != cli.ExitRefused ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestUnreachable(t *testing.T) {
	alone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c, err := New(Options{URL: "ws://" + address})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Sessions(t.Context())
	want := fmt.Sprintf(
		"no gateway at ws://%s (from --url); start one with: tapgw serve, or tapgw ensure", address)
	if e := cli.AsError(err); e.Exit != cli.ExitUnreachable || e.Code != cli.CodeUnreachable ||
		e.Message != want {
		t.Errorf("got %+v, want exit %d and %s", e, cli.ExitUnreachable, want)
	}
	for _, err := range c.Live(t.Context(), "a") {
		if e := cli.AsError(err); e.Exit != cli.ExitUnreachable {
			t.Errorf("live: got %+v, want exit %d", e, cli.ExitUnreachable)
		}
	}
}

func TestContextEndsCalls(t *testing.T) {
	asked := make(chan struct{}, 2)
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Sessions(ctx)
	if e := cli.AsError(err); e.Exit != cli.ExitTimedOut || e.Code != cli.CodeTimeout ||
		!strings.Contains(e.Message, "--timeout") {
		t.Errorf("deadline: got %+v, want exit %d that names --timeout", e, cli.ExitTimedOut)
	}
	<-asked
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	for _, err := range c.Live(ctx, "a") {
		if e := cli.AsError(err); e.Exit != cli.ExitFailed || e.Code != cli.CodeCancelled {
			t.Errorf("cancelled: got %+v, want exit %d and %s", e, cli.ExitFailed,
				cli.CodeCancelled)
		}
	}
}
