package evals

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"tapgw/configs"
	"tapgw/internal/adminapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// parse reads a case with a prompt and what the text says of it.
func parse(t *testing.T, text string) *configs.EvalCase {
	t.Helper()
	c, faults := configs.ParseEvalCase("c.toml", []byte("prompt = 'go'\n"+text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return &c
}

func TestCheck(t *testing.T) {
	seen := &observed{
		calls: []call{
			{"plan", `{}`, "ok", ""}, {"build", `{"target":"all"}`, "failed", "exit 2"},
			{"build", `{"target":"all"}`, "ok", ""}, {"drop", `{}`, "denied", "no"},
			{"slow", `{}`, "", ""},
		},
		messages: []string{"I have built it.", "The tests pass."},
		events: []adminapi.StreamRow{
			{Stream: "ops", Provider: "tap", Event: "built"},
			{Stream: "ops", Prompt: "go on"},
		},
		files: map[string]file{"a": {"new\n", true, nil}, "b": {"", false, nil},
			"long": {strings.Repeat("x", 100_000), true, nil},
			"link": {"", true, os.ErrPermission}},
	}
	call := func(s string) string { return "[[expect.call]]\n" + s }
	file := func(s string) string { return "[workspace]\na = 'old'\n[[expect.file]]\n" + s }
	stream := func(s string) string { return "[[expect.stream]]\nstream = " + s }
	tests := []struct{ text, want string }{
		{call("tool = 'build'"), ""},
		{call("tool = 'bu*'\nmin = 3"), "call bu*: 2 calls, want at least 3"},
		{call("tool = 'build'\noutcome = 'failed'\nmax = 1"), ""},
		{call("tool = 'drop'\noutcome = 'failed'"), ""},
		{call("tool = 'drop'\noutcome = 'ok'"),
			"call drop: 0 calls with outcome ok, want at least 1; another was denied with {}"},
		{call("tool = 'slow'\noutcome = 'ok'"),
			"call slow: 0 calls with outcome ok, want at least 1; another was unfinished"},
		{call("tool = 'build'\nmax = 0"), "call build: 2 calls, want at most 0"},
		{call("tool = 'build'\nargs = '\"target\":\"none\"'"),
			"call build: 0 calls with such arguments"},
		{call("tool = 'build'\nafter = 'drop'"), "call build: 0 calls after drop, want at least 1"},
		{call("tool = 'build'\nafter = 'plan'\nmin = 2"), ""},
		{"[expect]\norder = ['plan', 'build', 'drop']", ""},
		{"[expect]\norder = ['drop', 'plan']", "order: plan was not called after drop"},
		{"[expect]\norder = ['tests']", "order: tests was not called"},
		{file("path = 'a'\ncontains = 'new'\npattern = '^new'"), ""},
		{file("path = 'a'\nunchanged = true"), "file a: it was changed"},
		{file("path = 'a'\nexists = false"), "file a: it exists"},
		{file("path = 'a'\npattern = '^old'"), "file a: it does not match the pattern"},
		{file("path = 'b'"), "file b: it does not exist"},
		{file("path = 'b'\nexists = false"), ""},
		{file("path = 'long'\npattern = 'y$'"), "file long: it is too long for the pattern"},
		{file("path = 'link'\ncontains = 'root'"), "file link: it can't be read"},
		{stream("'ops'\nmin = 2"), ""},
		{stream("'ops@tap'\nmax = 0"), "stream ops@tap: 1 such events, want at most 0"},
		{stream("'ops@ci'"), "stream ops@ci: 0 such events, want at least 1"},
		{stream("'ops'\npattern = '^go'\nmax = 1"), ""},
		{"[[observation]]\ntext = 'built'\npattern = 'built'", ""},
		{"[[observation]]\ntext = 'shipped'\npattern = 'shipped'", "observation: missing: shipped"},
		{"[[prohibited]]\ntext = 'tests'\npattern = '[Tt]ests pass'", "prohibited: it says: tests"},
		{"[[prohibited]]\ntext = 'x'\npattern = 'built'\nunless_call = 'bui*'", ""},
		{"[[prohibited]]\ntext = 'gone'\npattern = 'built'\nunless_call = 'drop'",
			"prohibited: it says: gone"},
		{"[[prohibited]]\ntext = 'for the judge alone'", ""},
		{"[[prohibited]]\ntext = 'nothing of it'\npattern = 'deployed|shipped|ops'", ""},
	}
	for _, tt := range tests {
		failures := check(parse(t, tt.text), seen)
		got := ""
		for _, f := range failures {
			got += f.Check + ": " + f.Reason
		}
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\ngot %q, want %q", tt.text, got, tt.want)
		}
	}
}

// A session may leave anything in its workspace. No check reads what lies outside, and none waits.
func TestReadFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := newWorkspace(map[string]string{"plain": "text", "sub/plain": "below"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for link, to := range map[string]string{
		"absolute": outside, "parent": "../../../../../../../../" + outside, "loop": "loop",
		"inside":  "sub/plain",
		"dirlink": filepath.Dir(outside),
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "huge"), make([]byte, maxRead+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"plain": "text true false", "sub/plain": "below true false", "inside": "below true false",
		"none": " false false", "plain/below": " false false", "absolute": " true true",
		"parent": " true true",
		"loop":   " true true", "dirlink/secret": " true true", "pipe": " true true",
		"sub": " true true",
	} {
		text, exists, err := readFile(dir, path)
		if got := fmt.Sprint(text, " ", exists, " ", err != nil); got != want {
			t.Errorf("%s: got %s (%v), want %s: its text, whether it exists, whether that failed",
				path, got, err, want)
		}
	}
	if _, _, err := readFile(dir, "huge"); err == nil ||
		!strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: got %v, want that it is too large", err)
	}
}

func TestAbandoned(t *testing.T) {
	mine, err := newWorkspace(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(mine) }()
	// beyond the highest process number
	old := filepath.Join(t.TempDir(), workspacePrefix+"4194305-x")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range Abandoned([]adminapi.Session{{ID: "runs", CWD: mine}, {ID: "old", CWD: old},
		{ID: "elsewhere", CWD: "/nowhere/" + filepath.Base(old)},
		{ID: "other", CWD: t.TempDir()}}) {
		got = append(got, s.ID)
	}
	if !slices.Equal(got, []string{"old"}) {
		t.Errorf("got %q, want the session of the process that is gone", got)
	}
}

// The intervals are those of published examples: Wilson's, and Newcombe's of 56 of 70 against 48 of
// 80.
func TestIntervals(t *testing.T) {
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.0001 }
	for _, tt := range []struct {
		passed, all int
		low, high   float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {29, 29, 0.8830, 1},
		{0, 0, 0, 1}} {
		if low, high := wilson(tt.passed, tt.all); !near(low, tt.low) || !near(high, tt.high) {
			t.Errorf("%d of %d: got %.4f to %.4f, want %.4f to %.4f", tt.passed, tt.all, low, high,
				tt.low, tt.high)
		}
	}
	rate := func(passed, all int) (s Sums) {
		s.Passed, s.Decided, s.Rate = passed, all, float64(passed)/float64(all)
		s.Low, s.High = wilson(passed, all)
		return s
	}
	diff, low, high := difference(rate(48, 80), rate(56, 70))
	if !near(diff, 0.2) || !near(low, 0.0524) || !near(high, 0.3339) {
		t.Errorf("got %.4f from %.4f to %.4f, want 0.2 from 0.0524 to 0.3339", diff, low, high)
	}
	if _, low, high := difference(Sums{}, rate(1, 1)); low != -1 || high != 1 {
		t.Errorf("without runs: got %v to %v, want -1 to 1", low, high)
	}
}
