package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRunInTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	t.Setenv("TAP_ADMIN", "s3cret")
	t.Setenv("GH_TOKEN", "s3cret")
	tests := []struct {
		name string
		in   args
		want string // ROOT is the workspace
		err  string
	}{
		{"output and place", args{"command": "pwd; echo oops >&2"}, "ROOT\noops\n[exit code 0]",
			""},
		{"failure", args{"command": "echo no; exit 3"}, "no\n[exit code 3]", ""},
		{"nothing to say", args{"command": "true"}, "(no output)\n[exit code 0]", ""},
		{"signal", args{"command": "kill -TERM $$"}, "(no output)\n[ended by signal: terminated]",
			""},
		{"no input", args{"command": "read x || echo none"}, "none\n[exit code 0]", ""},
		{"background", args{"command": "sleep 1000 & echo started"}, "started\n[exit code 0]", ""},
		{"background that keeps the output open", args{"command": "setsid sleep 3 & echo started"},
			"started\n[exit code 0]", ""},
		{"secrets", args{"command": "env | grep -c s3cret"}, "0\n[exit code 1]", ""},
		{"no terminal", args{"command": "test -t 1 && echo yes; echo $TERM"}, "dumb\n[exit code 0]",
			""},
		{"out of time", args{"command": "echo begun; sleep 1000", "timeout": 5}, "",
			"it did not finish within 5s: give it longer, or less to do\nuntil then it wrote:\nbegun"},
		{"empty", args{"command": " "}, "", "the command is empty"},
		{"isBackground", args{"command": "true", "isBackground": true}, "", "isBackground"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := space(t, nil)
			tt.in["explanation"] = "because"
			res, err := call(t, env, "run_in_terminal", tt.in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if want := strings.ReplaceAll(tt.want, "ROOT", env.Root); err != nil ||
				res.Text() != want {
				t.Errorf("got %q, %v, want %q", res.Text(), err, want)
			}
		})
	}
}

func TestTerminalOutputIsCut(t *testing.T) {
	res, err := call(t, space(t, nil), "run_in_terminal",
		args{"command": "seq 1 1000000", "explanation": "because"})
	got := res.Text()
	if err != nil || len(got) > 40<<10 || !strings.HasPrefix(got, "1\n2\n") ||
		!strings.HasSuffix(got, "\n1000000\n[exit code 0]") ||
		!strings.Contains(got, "bytes cut here") {
		t.Errorf("got %d bytes, %v: %.100q, want %q at the beginning and %q at the end", len(got),
			err, got, "1\n2\n", "\n1000000\n[exit code 0]")
	}
}

// The error of a cancelled call has the output so far.
func TestTerminalCancelled(t *testing.T) {
	env := space(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := os.Stat(env.Root + "/begun"); err == nil || ctx.Err() != nil {
				cancel()
				return
			}
		}
	}()
	in, _ := json.Marshal(args{"command": "echo hello; touch begun; sleep 1000",
		"explanation": "because"})
	_, err := builtIn("run_in_terminal").Call(ctx, env, in)
	if !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "run_in_terminal was cancelled") ||
		!strings.Contains(err.Error(), "hello") {
		t.Errorf("error %v, want %q in it and %q in it", err, "run_in_terminal was cancelled",
			"hello")
	}
}

func TestRunTests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	env := space(t,
		map[string]string{"out": "--- FAIL: TestParse (0.00s)\n    parse_test.go:17: got " +
			"3\nFAIL\nFAIL\texample/b\t0.012s\n"})
	res, err := call(t, env, "run_tests", args{"command": "cat out; seq 1 20000; exit 1"})
	want :=
		"Failed (1):\n- TestParse: parse_test.go:17: got 3\nexample/b\t0.012s\n\n--- FAIL: TestParse"
	if got := res.Text(); err != nil || !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, "\n[exit code 1]") {
		t.Errorf("got %.200q, %v, want %q at the beginning and %q at the end", got, err, want,
			"\n[exit code 1]")
	}
	if res, err := call(t, env, "run_tests", args{"command": "echo fine"}); err != nil ||
		res.Text() != "fine\n[exit code 0]" {
		t.Errorf("got %q, %v, want %q", res.Text(), err, "fine\n[exit code 0]")
	}
	_, err = call(t, env, "run_tests", args{"command": "cat out; sleep 1000", "timeout": 5})
	if err == nil || !strings.Contains(err.Error(), "within 5s") ||
		!strings.Contains(err.Error(), "Failed (1):\n- TestParse") {
		t.Errorf("out of time: %v, want %q in it and %q in it", err, "within 5s",
			"Failed (1):\n- TestParse")
	}
}

func TestSeconds(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Minute, -5: time.Minute, 5: 5 * time.Second,
		600: 10 * time.Minute, 1 << 62: 10 * time.Minute} {
		if got := seconds(n, time.Minute, 10*time.Minute); got != want {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}
