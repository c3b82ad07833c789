package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(script string) Command {
	return Command{Args: []string{"sh", "-c", script}, Dir: "/", Env: Environ()}
}

func run(t *testing.T, c Command) (exit Exit, out string) {
	t.Helper()
	var o bytes.Buffer
	c.Stdout, c.Stderr = &o, &o
	exit, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return exit, o.String()
}

func TestRun(t *testing.T) {
	tests := []struct {
		name, script, input string
		want                string
	}{
		{"both outputs in order", "echo a; echo b >&2; echo c", "", "a\nb\nc\nexit code 0"},
		{"failure", "echo no; exit 7", "", "no\nexit code 7"},
		{"signal", "kill -9 $$", "", "ended by signal: killed"},
		{"input", "cat", "hello\n", "hello\nexit code 0"},
		{"no input", "cat; echo end", "", "end\nexit code 0"},
		{"input that nobody reads", "true", strings.Repeat("x", 1<<20), "exit code 0"},
		{"not found", "no-such-program-here 2>/dev/null", "", "exit code 127"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := sh(tt.script)
			c.Input = []byte(tt.input)
			exit, out := run(t, c)
			if got := out + exit.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if exit.OK() != strings.HasSuffix(tt.want, "code 0") {
				t.Errorf("OK() = %v, want %v", exit.OK(), strings.HasSuffix(tt.want, "code 0"))
			}
		})
	}
	if _, err := Run(t.Context(), Command{Args: []string{"no-such-program-here"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-program-here") {
		t.Errorf("starting nothing: %v, want %q in it", err, "no-such-program-here")
	}
}

// Processes in the background end with the command and do not delay it.
func TestBackgroundEndsWithTheCommand(t *testing.T) {
	_, out := run(t, sh("sleep 1000 & echo $!"))
	gone(t, out)
}

// A cancelled call ends the whole group, even processes that ignore SIGTERM.
func TestCancelEndsTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "pids")
	out := signalling{first: make(chan struct{})}
	go func() {
		<-out.first
		cancel()
	}()
	c := sh("trap '' TERM; sleep 1000 & echo $! >" + file + "; echo $$ >>" + file +
		"; echo ready; wait; sleep 1000")
	c.Stdout, c.Stderr = &out, &out
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want %v", err, context.Canceled)
	}
	pids, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		gone(t, pid)
	}
	if _, err := Run(ctx, sh("touch "+file+".late")); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was over before it began: %v, want %v", err, context.Canceled)
	}
}

// signalling closes first at the first write.
type signalling struct {
	once  sync.Once
	first chan struct{}
}

func (s *signalling) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.first) })
	return len(p), nil
}

// gone waits until a process has ended, reaped or not.
func gone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %s still runs, want its end", pid)
		}
	}
}

func TestEnvironKeepsSecrets(t *testing.T) {
	for name, value := range map[string]string{
		"TAP_ADMIN": "s3cret", "GH_COPILOT_X": "s3cret", "NPM_TOKEN": "s3cret",
		"COPILOT_HOME": "s3cret", "JAVA_HOME": "/j", "TAPESTRY": "yes", "TERM": "xterm",
	} {
		t.Setenv(name, value)
	}
	_, out := run(t, sh("env"))
	env := strings.Split(out, "\n")
	for _, want := range []string{"JAVA_HOME=/j", "TAPESTRY=yes", "TERM=dumb",
		"GIT_TERMINAL_PROMPT=0"} {
		if !slices.Contains(env, want) {
			t.Errorf("want %s in the environment, it is missing", want)
		}
	}
	if strings.Contains(out, "s3cret") {
		t.Errorf("a secret was handed on: %s, want it kept back", out)
	}
}

func TestOutput(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	long := lines(2000)
	for _, size := range []int{1, 7, 100, len(long)} {
		o := Output{Max: 1000}
		for chunk := range slices.Chunk([]byte(long), size) {
			_, _ = o.Write(chunk)
		}
		got := o.String()
		if !strings.HasPrefix(got, "line 0\n") ||
			!strings.HasSuffix(got, "line 1998\nline 1999\n") || len(got) > 1200 {
			t.Errorf("in writes of %d: got %q, want %q at the beginning and %q at the end", size,
				got, "line 0\n", "line 1998\nline 1999\n")
		}
		var cut, first int
		_, after, _ := strings.Cut(got, "[... ")
		if _, err := fmt.Sscan(after, &cut); err != nil {
			t.Fatal(err)
		}
		head, tail, _ := strings.Cut(got, "[... ")
		_, tail, _ = strings.Cut(tail, "...]\n")
		if len(head)+cut+len(tail) != len(long) {
			t.Errorf(
				"in writes of %d: %d kept before, %d after, %d cut of %d, want them to add up",
				size, len(head), len(tail), cut, len(long),
			)
		}
		if _, err := fmt.Sscanf(tail, "line %d", &first); err != nil {
			t.Errorf("the tail begins in the middle of a line: %q, want a whole line", tail[:20])
		}
	}

	for _, n := range []int{0, 1, 499, 500, 501, 999, 1000} {
		text := strings.Repeat("é", n/2) + strings.Repeat("x", n%2)
		o := Output{Max: 1000}
		_, _ = o.Write([]byte(text))
		if got := o.String(); got != text || o.Cut() != 0 || string(o.Bytes()) != text {
			t.Errorf("%d bytes: got %d and cut %d, want all", n, len(got), o.Cut())
		}
	}
	// Not in the middle of a character.
	o := Output{Max: 1001}
	_, _ = o.Write([]byte(strings.Repeat("é", 5000)))
	if got := o.String(); strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("a character was cut: %q, want whole characters", got)
	}
}

func TestClean(t *testing.T) {
	tests := []struct{ in, want string }{
		{"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b(B", "red plain(B"},
		{"10%\r50%\r100%\r\ndone\r\n", "100%\ndone\n"},
		{"a\x00b\x08c\tz\n", "abc\tz\n"},
		{"bad \xff byte", "bad \uFFFD byte"},
	}
	for _, tt := range tests {
		if got := clean([]byte(tt.in)); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestLines(t *testing.T) {
	var got []string
	l := Lines{OnLine: func(line string) { got = append(got, line) }}
	text := "one\n\ntwo\n" + strings.Repeat("x", 3*maxLine) + "\nlast"
	for chunk := range slices.Chunk([]byte(text), 5) {
		_, _ = l.Write(chunk)
	}
	l.End()
	want := []string{"one", "two", strings.Repeat("x", maxLine), "last"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEndFirst(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	EndFirst(cmd.Process.Pid)
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid))
	if err == nil && string(got) != "1000\n" {
		t.Errorf("oom_score_adj is %q, want %q", got, "1000\n")
	}
	_ = in.Close()
	_ = cmd.Wait()
}
