package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

func TestMain(m *testing.M) {
	// it ends by itself
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// session starts a session without a model in a directory.
func session(t *testing.T, dir string) (*gateway.Gateway, *gateway.Session) {
	t.Helper()
	g := gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	s, err := g.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		g.Drain(ctx)
	})
	return g, s
}

// want holds a check, given as JSON, and wants it to fail with a text, or to hold for "".
func want(t *testing.T, k evidence.Checker, check, failure string) {
	t.Helper()
	c, err := evidence.Parse([]byte(check))
	if err != nil {
		t.Fatal(err)
	}
	switch err := k.Check(t.Context(), c); {
	case failure == "" && err != nil:
		t.Errorf("%s: got the failure %q, want that it holds", check, err)
	case failure != "" && (err == nil || !strings.Contains(err.Error(), failure)):
		t.Errorf("%s: got %v, want a failure with %q", check, err, failure)
	}
}

// Of the calls that a check is about, the latest decides.
func TestCalls(t *testing.T) {
	_, s := session(t, t.TempDir())
	recorded := []evidence.Call{
		{Tool: "bash", Command: "go test ./...", ExitCode: new(1)},
		{Tool: "bash", Command: "go vet ./...", ExitCode: new(0)},
		{Tool: "bash", Command: " go test ./...\n", ExitCode: new(0)},
		{Tool: "bash", Command: "go vet ./...", ExitCode: new(2)},
		{Tool: "bash", Command: "echo go build", ExitCode: new(0)},
		{Tool: "bash", Command: "sleep 9", Failed: true, Reason: "it was cancelled"},
		{Tool: "bash", Command: "make slow"}, // in the background
		{Tool: "bash", Command: "make lint", ExitCode: new(1)},
		{Tool: "bash", Command: "cd a && make lint 2>&1", ExitCode: new(0)},
		{Tool: "bash", Command: "make check", ExitCode: new(0)},
		{Tool: "bash", Command: "make check | tail", ExitCode: new(0)},
		{Tool: "bash", Command: "make none; true", Failed: true, Reason: "denied"},
		{Tool: "bash", Command: "make all; true", ExitCode: new(1)},
		{Tool: "bash", Command: "make long " + strings.Repeat("a", 1014) + "…", ExitCode: new(0)},
		{Tool: "deploy"},
		{Tool: "publish", Failed: true, Reason: "no key"},
		{Tool: "bash", Command: strings.Repeat("a", 60<<10) + "!", ExitCode: new(0)},
	}
	k := evidence.Checker{Session: s,
		Calls: func(_ context.Context, id string, _ time.Time) ([]evidence.Call, error) {
			if id != s.ID() {
				return nil, fmt.Errorf("got the session %q, want %q", id, s.ID())
			}
			return recorded, nil
		}}
	for _, test := range []struct{ check, failure string }{
		{`{"call": "go test ./..."}`, ""},
		{`{"call": {"command": "go test ./...", "exitCode": 0}}`, ""},
		{`{"call": {"command": "go test ./...", "exitCode": 1}}`,
			"ended with exit code 0, and 1 is needed"},
		{`{"call": {"command": "go test ./...", "success": false}}`, "ended with exit code 0"},
		{`{"call": "go vet ./..."}`, "ended with exit code 2"},
		{`{"call": {"command": "go vet ./...", "exitCode": 2}}`, ""},
		{`{"call": {"command": "go vet ./...", "success": false}}`, ""},
		{`{"call": "go build"}`, `no such call is recorded: run exactly "go build"`},
		{`{"call": {"contains": "go build"}}`, ""}, // a part is easy to say
		{`{"call": {"contains": "make lint"}}`, ""},
		{`{"call": {"pattern": "^cd a.*lint"}}`, ""},
		{`{"call": {"contains": "make check"}}`,
			`latest such call, "make check | tail", does not show whether`},
		{`{"call": {"pattern": "make check"}}`, "run it alone"},
		{`{"call": {"contains": "tail"}}`, ""},
		{`{"call": "make check"}`, ""},
		{`{"call": "make check | tail"}`, ""},
		{`{"call": {"contains": "make all", "success": false}}`, "run it alone"},
		{`{"call": {"contains": "make none"}}`, "failed: denied"},
		{`{"call": {"contains": "make long"}}`, "run it alone"},
		{`{"type": "command_evidence", "label": "make check", "exitCode": 0}`, "run it alone"},
		{`{"call": {"pattern": "^go build"}}`, `must match "^go build"`},
		{`{"call": {"command": "go test ./...", "tool": "sh"}}`, "no such call"},
		{`{"call": "sleep 9"}`, "failed: it was cancelled"},
		{`{"call": {"command": "sleep 9", "exitCode": 0}}`,
			"its exit code is not known; 0 is needed"},
		{`{"call": "make slow"}`, "has not ended"},
		{`{"call": {"command": "make slow", "success": false}}`, "has not ended"},
		{`{"call": {"tool": "deploy"}}`, ""},
		{`{"call": {"tool": "publish"}}`, "failed: no key"},
		{`{"call": {"tool": "publish", "success": false}}`, ""},
		{`{"call": {"tool": "none"}}`, "no such call is recorded: call none"},
		{`{"type": "command_evidence", "label": "go test", "exitCode": 0}`, ""},
		// it takes too long, and decides nothing
		{`{"call": {"pattern": "(a+)+$"}}`, "no such call"},
	} {
		want(t, k, test.check, test.failure)
	}
	k.Calls = func(context.Context, string, time.Time) ([]evidence.Call, error) {
		return nil, errors.New("disk")
	}
	want(t, k, `{"call": "x"}`, "looking for recorded calls: disk")
	k.Calls = nil
	want(t, k, `{"call": "x"}`, "keeps no record of commands")
}

// Events count from a time on, and not those that the model writes.
func TestStreams(t *testing.T) {
	_, s := session(t, t.TempDir())
	push := func(provider, stream, text string) {
		t.Helper()
		_, err := s.Push(t.Context(), provider, &protocol.Push{Stream: stream, Event: text,
			Level: protocol.LevelKeep})
		if err != nil {
			t.Fatal(err)
		}
	}
	push("ci", "build", "green before")
	began := time.Now()
	push("tap", "build", "green, says the model")
	push("tap.ci", "build", "green, says what the model started")
	push("goals", "build", "green, says the goal")
	prompt := &protocol.Push{Stream: "build", Prompt: "green", Level: protocol.LevelInject}
	if _, err := s.Push(t.Context(), "nightly", prompt); err != nil {
		t.Fatal(err)
	}
	k := evidence.Checker{Session: s, Since: began}
	want(t, k, `{"stream": "build"}`, "has 0 entries, and needs 1")
	push("ci", "build", "red")
	push("other", "build", "green")
	want(t, k, `{"stream": {"channel": "Build", "contains": "green"}}`, "")
	want(t, k, `{"stream": {"channel": "build@ci", "contains": "green"}}`, "none of 1 entries")
	want(t, k, `{"stream": {"channel": "build@ci", "pattern": "^red$"}}`, "")
	want(t, k, `{"stream": {"channel": "build@tap"}}`, "has 0 entries")
	want(t, k, `{"stream": {"channel": "build", "limit": 1, "contains": "red"}}`,
		"none of 1 entries")
	want(t, k, `{"stream": {"channel": "build", "minEntries": 3}}`, "has 2 entries, and needs 3")
	want(t, evidence.Checker{Session: s}, `{"stream": {"channel": "build", "minEntries": 3}}`, "")
}

// A file is read below the session's directory only, and a rule about it can't be passed by another
// name for it.
func TestFiles(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for file, text := range map[string]string{
		filepath.Join(dir, "report"): "12 pass", filepath.Join(dir, "private"): "key",
		outside: "key", filepath.Join(dir, "tricky"): strings.Repeat("a", 30) + "!",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"out": outside, "alias": "private", "near": "report",
		"loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	g, s := session(t, dir)
	var asked []string
	ask := func(_ context.Context, event []byte) ([]byte, error) {
		asked = append(asked, string(event))
		if strings.Contains(string(event), filepath.Join(dir, "private")) {
			return nil, &gateway.HookDenial{Reason: "it is private"}
		}
		return nil, nil
	}
	g.SetHooks([]gateway.Hook{{Name: "rule", On: gateway.HookPreToolUse, Timeout: time.Minute,
		Ask: ask}})
	k := evidence.Checker{Session: s}
	for check, failure := range map[string]string{
		`{"file": {"path": "report", "pattern": "\\d+ pass"}}`:    "",
		`{"file": {"path": "near", "contains": "12"}}`:            "",
		`{"file": {"path": "private", "contains": "k"}}`:          "denied: hook rule: it is private",
		`{"file": {"path": "alias", "contains": "k"}}`:            "denied: hook rule: it is private",
		`{"file": {"path": "alias/x"}}`:                           "denied: hook rule: it is private",
		`{"file": {"path": "out", "contains": "k"}}`:              "may read inside",
		`{"file": {"path": "loop"}}`:                              "can't be told where",
		`{"file": {"path": "../x"}}`:                              "not below",
		`{"file": {"path": "tricky", "pattern": "(a+)+(b|c)+$"}}`: "takes too long",
	} {
		want(t, k, check, failure)
	}
	if !slices.ContainsFunc(asked, func(args string) bool {
		return strings.Contains(args, "report")
	}) {
		t.Errorf("the rules were asked about %q, want the report among them", asked)
	}
}

// strictHost is a host that lets its session read only the files that permitRead permits.
type strictHost struct{ gateway.Host }

// permitRead denies files whose name ends in .env.
func permitRead(_ context.Context, path, _ string) string {
	if strings.HasSuffix(path, ".env") {
		return "the policy forbids it"
	}
	return ""
}

func (strictHost) Log(adminapi.LogLevel, string) {}

func (strictHost) Close(context.Context, string) error { return nil }

// TestChecksTellNothingOfDeniedFiles: a model's check of a file that its session may not read has
// one answer, whatever it guesses and whether the file is there. A person's check reads it, but no
// private file of the gateway.
func TestChecksTellNothingOfDeniedFiles(t *testing.T) {
	dir := t.TempDir()
	private := filepath.Join(dir, ".copilot")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{Private: func() []string { return []string{private} }})
	s, err := g.Register(gateway.SessionSpec{CWD: dir},
		gateway.HostInfo{Kind: "strict", PermitRead: permitRead}, strictHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	if err := os.Symlink(".env", filepath.Join(dir, "alias")); err != nil {
		t.Fatal(err)
	}
	checks := func(path string) (all []adminapi.Check) {
		for _, c := range []adminapi.FileCheck{
			{}, {NonEmpty: true}, {Contains: "s"}, {Contains: "wrong"}, {Pattern: "^s"},
			{Pattern: "^w"},
		} {
			c.Path = path
			all = append(all, adminapi.Check{File: &c})
		}
		return all
	}
	for _, path := range []string{"alias", ".env", ".copilot/.admin-token"} {
		if err := os.RemoveAll(filepath.Join(dir, ".env")); err != nil { // alias leads there
			t.Fatal(err)
		}
		said := map[string]bool{}
		for _, content := range []string{"", "secret"} {
			if content != "" {
				if err := os.WriteFile(filepath.Join(dir, path), []byte(content),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range checks(path) {
				said[fmt.Sprint((&evidence.Checker{Session: s}).Check(t.Context(), c))] = true
			}
		}
		if len(said) != 1 || said["<nil>"] {
			t.Errorf("checks of %s: %v, want one denial for all", path, said)
		}
		byPerson := evidence.Checker{Session: s, ByPerson: true}
		err := byPerson.Check(t.Context(),
			adminapi.Check{File: &adminapi.FileCheck{Path: path, Contains: "secret"}})
		if isPrivate := strings.HasPrefix(path, ".copilot"); (err != nil) != isPrivate {
			t.Errorf("a person's check of %s: %v, want a denial: %t", path, err, isPrivate)
		}
	}
}

// TestChecksKnowSecondNames: a check of a hard link to a private file of the gateway has one
// answer, whatever it guesses, and a file with other second names is read.
func TestChecksKnowSecondNames(t *testing.T) {
	dir, private := t.TempDir(), t.TempDir()
	token := filepath.Join(private, "tap", ".admin-token")
	for _, err := range []error{
		os.Mkdir(filepath.Dir(token), 0o700), os.WriteFile(token, []byte("secret"), 0o600),
		os.Link(token, filepath.Join(dir, "notes")),
		os.WriteFile(filepath.Join(dir, "report"), []byte("12 pass"), 0o600),
		os.Link(filepath.Join(dir, "report"), filepath.Join(dir, "copy")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	g := gateway.New(gateway.Options{Private: func() []string { return []string{private} }})
	s, err := g.Register(gateway.SessionSpec{CWD: dir},
		gateway.HostInfo{Kind: "strict", PermitRead: permitRead}, strictHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	for _, byPerson := range []bool{false, true} {
		k := evidence.Checker{Session: s, ByPerson: byPerson}
		for check, failure := range map[string]string{
			`{"file": "notes"}`: "another name of a file with tokens",
			`{"file": {"path": "notes", "contains": "secret"}}`: "another name of a file with tokens",
			`{"file": {"path": "notes", "contains": "wrong"}}`:  "another name of a file with tokens",
			`{"file": {"path": "copy", "contains": "12 pass"}}`: "",
		} {
			want(t, k, check, failure)
		}
	}
}

// A check of a file that can't be below the session's directory is known by its path alone.
func TestInDir(t *testing.T) {
	for check, want := range map[string]string{
		`{"file": "report"}`:               "",
		`{"file": "a/../report"}`:          "",
		`{"file": "..report"}`:             "",
		`{"file": "/work/desk/a/report"}`:  "",
		`{"file": "/work/desk/../desk/a"}`: "",
		`{"stream": "ci"}`:                 "",
		`{"call": "cat ../x"}`:             "",
		`{"file": "../x"}`:                 `file.path: "../x" is not below the session's directory, /work/desk`,
		`{"file": "a/../../x"}`:            "file.path: ",
		`{"file": "/etc/passwd"}`:          `file.path: "/etc/passwd" is not below`,
		`{"file": "/work/desktop/a"}`:      "file.path: ",
		`{"file": "/work/desk/../other"}`:  "file.path: ",
		`{"type": "file", "path": ".."}`:   "file.path: ",
		`{"file": {"path": "a\u0000b"}}`:   "file.path: ",
	} {
		c, err := evidence.Parse([]byte(check))
		if err != nil {
			t.Fatal(err)
		}
		switch err := evidence.InDir(c, "/work/desk"); {
		case want == "" && err != nil:
			t.Errorf("%s: got the error %v, want none", check, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got the error %v, want %q in it", check, err, want)
		}
	}
}
