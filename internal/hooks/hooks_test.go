package hooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sh is a hook that is a shell script.
func sh(t *testing.T, script string) gateway.Hook {
	t.Helper()
	return New([]configs.Hook{{On: configs.HookPreToolUse, Command: []string{"sh", "-c", script},
		Dir: t.TempDir(), Timeout: 5 * time.Second}})[0]
}

func TestCommand(t *testing.T) {
	big := strings.Repeat("x", 1<<20) // more than a pipe holds
	for _, tt := range []struct{ name, script, event, want, fault, denial string }{
		{name: "silence", script: "cat >/dev/null"},
		{name: "an answer",
			script: `read -r e; echo "{\"context\":\"saw $(echo $e | tr -d '"')\"}"`,
			event:  `{"tool":1}`, want: "{\"context\":\"saw {tool:1}\"}\n"},
		{name: "nobody reads", script: "exit 0", event: big},
		{name: "a denial", script: "echo first >&2; echo ' not on a Friday ' >&2; echo >&2; exit 3",
			denial: "not on a Friday"},
		{name: "a denial without words", script: "exit 3", denial: "exit code 3"},
		{name: "a denial on stdout is no reason", script: "echo '{}'; exit 1",
			denial: "exit code 1"},
		{name: "a crash", script: "kill -9 $$", fault: "it ended with signal: killed"},
		{name: "too much", script: "yes | head -c 100000", fault: "it said more than 65536 bytes"},
		{name: "its directory", script: `test "$PWD" = "$(pwd -P)"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sh(t, tt.script).Ask(t.Context(), []byte(tt.event))
			denial, denied := errors.AsType[*gateway.HookDenial](err)
			switch {
			case tt.denial != "":
				if !denied || denial.Reason != tt.denial {
					t.Errorf("denied with %v, want %q", err, tt.denial)
				}
			case tt.fault != "":
				if err == nil || denied || err.Error() != tt.fault {
					t.Errorf("failed with %v, want %s", err, tt.fault)
				}
			case err != nil || string(got) != tt.want:
				t.Errorf("said %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestCommandIsNotThere(t *testing.T) {
	h := New([]configs.Hook{{Command: []string{filepath.Join(t.TempDir(), "gone")},
		Dir: t.TempDir()}})[0]
	_, err := h.Ask(t.Context(), nil)
	if _, denied := errors.AsType[*gateway.HookDenial](err); err == nil || denied {
		t.Errorf("a program that is not there: %v, want another error than a denial", err)
	}
}

// A hook that hangs, and what it started, ends with its time.
func TestCommandHangs(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	h := sh(t, `trap '' TERM; sleep 1000 & echo $! > `+pid+`.part; mv `+pid+`.part `+pid+
		`; wait; sleep 1000`)
	done := make(chan error, 1)
	go func() {
		_, err := h.Ask(ctx, nil)
		done <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		if _, err := os.Stat(pid); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the hook did not start, want it to")
		}
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a hook that was stopped: %v, want %v", err, context.Canceled)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a hook that hangs holds up its caller, want an end with the context")
	}
}

// The hook's program does not get the keys that are in our environment.
func TestCommandHasNoSecrets(t *testing.T) {
	t.Setenv("TAP_MODEL_KEY", "secret")
	got, err := sh(t, `echo "[$TAP_MODEL_KEY]"`).Ask(t.Context(), nil)
	if err != nil || string(got) != "[]\n" {
		t.Errorf("the program saw %q, %v, want no error and %q", got, err, "[]\n")
	}
}

func TestURL(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte(r.Header.Get("Content-Type")+" "), body...))
	})
	mux.HandleFunc("POST /none", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /no",
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	mux.HandleFunc("POST /away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/echo", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /big", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 100_000))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	for _, tt := range []struct{ path, want, fault string }{
		{path: "/echo", want: `application/json {"on":"error"}`},
		{path: "/none"},
		{path: "/no", fault: "it answered with 403 Forbidden"},
		{path: "/away", fault: "it answered with 307 Temporary Redirect"},
		{path: "/gone", fault: "it answered with 404 Not Found"},
		{path: "/big", fault: "it said more than 65536 bytes"},
	} {
		h := New([]configs.Hook{{URL: server.URL + tt.path}})[0]
		got, err := h.Ask(t.Context(), []byte(`{"on":"error"}`))
		if tt.fault != "" {
			if err == nil || err.Error() != tt.fault {
				t.Errorf("%s failed with %v, want %s", tt.path, err, tt.fault)
			}
		} else if err != nil || string(got) != tt.want {
			t.Errorf("%s said %q, %v, want no error and %v", tt.path, got, err, tt.want)
		}
	}
}
