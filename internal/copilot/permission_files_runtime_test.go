//go:build runtime

package copilot

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// patchModel makes the runtime offer apply_patch, as it does to models of its kind.
func patchModel(o *Options) {
	onEndpoint(func(e *configs.Endpoint, _ string) {
		e.ModelID, e.Wire = "gpt-5.1-codex", configs.WireResponses
	})(o)
}

// call is a prompt that makes the scripted model call a tool. Text alone makes a freeform call.
func call(tool string, args any) string {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return "call:" + tool + " " + string(b)
}

func envelope(lines string) string { return "*** Begin Patch\n" + lines + "\n*** End Patch" }

func readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// TestPatchIsJudgedByAllPaths: a patch moves nothing from where the session may not write or read,
// and is refused when it can't be read, though the runtime asks about the place alone where a file
// will be.
func TestPatchIsJudgedByAllPaths(t *testing.T) {
	g := newRig(t, patchModel, func(o *Options) {
		o.Permissions = configs.Permissions{
			Read: configs.Allow, AllowWritePaths: []string{"**"}, DenyPaths: []string{"**/.env"},
		}
	})
	outside := filepath.Join(t.TempDir(), "outside.txt")
	s := g.start()
	tests := map[string]struct{ patch, want string }{
		"from outside": {envelope("*** Update File: " + outside +
			"\n*** Move to: got\n@@\n-secret\n+x"), "write = "},
		"what is denied": {
			envelope("*** Update File: .env\n*** Move to: got\n@@\n-secret\n+x"), "deny_paths",
		},
		"denied among others": {
			envelope(
				"*** Add File: got\n+x\n*** Update File: .env\n*** Move to: got2\n@@\n-secret\n+x"),
			"deny_paths",
		},
		"removed": {envelope("*** Add File: got\n+x\n*** Delete File: " + outside),
			"write = "},
		"header after blanks": {envelope(
			"*** Update File: ok\n  *** Move to: got\n@@\n-secret\n+x"), "can't be read"},
		"behind a carriage return": {
			envelope("*** Update File: ok\n@@\n-secret\n+x\r*** Update File: " + outside +
				"\r*** Move to: got\r@@\n-secret\n+x\n*** Delete File: got"), "can't be read",
		},
		"removed behind a carriage return": {
			envelope("*** Add File: got\n+a\r*** Delete File: .env\n*** Delete File: got"),
			"can't be read",
		},
		"here document": {"<<EOF\n" + envelope("*** Add File: got\n+x") + "\nEOF", "can't be read"},
	}
	for name, tt := range tests {
		for form, args := range map[string]any{"freeform": tt.patch,
			"in JSON": map[string]string{"input": tt.patch}} {
			t.Run(name+", "+form, func(t *testing.T) {
				for _, path := range []string{outside, filepath.Join(g.cwd, ".env"),
					filepath.Join(g.cwd, "ok")} {
					write(t, path, "secret\n")
				}
				s.turn(call("apply_patch", args))
				if said := s.lastSaid(); !strings.Contains(said, tt.want) {
					t.Errorf("the patch: %q, want %q in it", said, tt.want)
				}
				for path, want := range map[string]string{
					outside: "secret\n", g.cwd + "/.env": "secret\n", g.cwd + "/ok": "secret\n",
					g.cwd + "/got":  "",
					g.cwd + "/got2": "",
				} {
					if got := readFile(path); got != want {
						t.Errorf("%s has %q, want %q", path, got, want)
					}
				}
			})
		}
	}
	s.turn(call("apply_patch",
		envelope("*** Update File: ok\n*** Move to: moved\n@@\n-secret\n+x\n"+
			"*** Add File: new\n+y")))
	if readFile(g.cwd+"/moved") != "x\n" || readFile(g.cwd+"/new") != "y\n" ||
		readFile(g.cwd+"/ok") != "" {
		t.Errorf("a patch of files that may be written: %q, want its files", s.lastSaid())
	}
}

// TestMoveIsAskedWhole: a person is asked about the file that moves with the place where it goes,
// and an answer for the session covers no other file.
func TestMoveIsAskedWhole(t *testing.T) {
	g := newRig(t, patchModel, func(o *Options) { o.Permissions.Write = configs.Ask })
	s := g.start()
	var asked []string
	s.answer = func(_ context.Context, q gateway.Question) (gateway.Answer, error) {
		asked = append(asked, q.Message+"\n"+q.Detail)
		return gateway.Answer{Decision: "session"}, nil
	}
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(g.cwd, name), "secret\n")
		s.turn(call("apply_patch",
			envelope("*** Update File: "+name+"\n*** Move to: c\n@@\n-secret\n+x")))
		if got := readFile(g.cwd + "/c"); got != "x\n" {
			t.Errorf("%s moved: c has %q, %q, want x", name, got, s.lastSaid())
		}
		if err := os.Remove(g.cwd + "/c"); err != nil {
			t.Error(err)
		}
		if last := strings.Join(asked, "\n"); !strings.Contains(last, "from "+name+"\nto ") {
			t.Errorf("a person was asked %q, want the source %s in it", last, name)
		}
	}
	if len(asked) != 2 {
		t.Errorf("a person was asked %d times, want 2: the second file was never shown before",
			len(asked))
	}
}

// TestEditsTellNothing: a call that edits a file which the session may not read gets one answer,
// whatever it guesses of the file, and also if a sub-agent makes it.
func TestEditsTellNothing(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.txt")
	write(t, outside, "secret\n")
	for name, change := range map[string][]func(*Options){
		"edit": nil, "apply_patch": {patchModel},
		"writes allowed": {func(o *Options) { o.Permissions.Write = configs.Allow }},
		"writes allowed, apply_patch": {patchModel, func(o *Options) {
			o.Permissions.Write = configs.Allow
		}},
	} {
		t.Run(name, func(t *testing.T) {
			secrets := make([]string, 1)
			g := newRig(t, append(change, func(o *Options) {
				o.Permissions.DenyPaths, o.Secrets = []string{"**/.env"}, secrets
			})...)
			secrets[0] = filepath.Join(g.cwd, "tap")
			if err := os.Mkdir(secrets[0], 0o700); err != nil {
				t.Fatal(err)
			}
			s := g.start()
			for _, path := range []string{outside, g.cwd + "/.env", secrets[0] + "/.admin-token"} {
				write(t, path, "secret\n")
				said := map[string]bool{}
				for _, guess := range []string{"secret", "wrong"} {
					prompt := call("edit", map[string]string{"path": path, "old_str": guess,
						"new_str": "x"})
					if strings.Contains(name, "apply_patch") {
						prompt = call("apply_patch",
							envelope("*** Update File: "+path+"\n@@\n-"+guess+"\n+x"))
					}
					s.turn(prompt)
					said[s.lastSaid()] = true
					s.turn(call("task", map[string]string{
						"description": "look", "name": "looker", "agent_type": "general-purpose",
						"mode":   "sync",
						"prompt": prompt,
					}))
					said[s.lastSaid()] = true
				}
				denied := 0
				for text := range said {
					if strings.Contains(text, "copilot.permissions") {
						denied++
					}
				}
				if denied != len(said) || len(said) > 2 {
					t.Errorf("guesses about %s: %v, want a denial for each, and the same", path,
						said)
				}
				if readFile(path) != "secret\n" {
					t.Errorf("%s was changed, want it as it was", path)
				}
			}
		})
	}
}

// TestCreateTellsNothing: where a session may neither read nor write, creating a file does not tell
// whether one is there.
func TestCreateTellsNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "there"), "x")
	g := newRig(t)
	s := g.start()
	var said []string
	for _, name := range []string{"there", "none", "no/none"} {
		s.turn(call("create", map[string]string{"path": filepath.Join(dir, name),
			"file_text": "y"}))
		said = append(said, s.lastSaid())
	}
	if said[0] != said[1] || said[1] != said[2] || !strings.Contains(said[0], "write = ") {
		t.Errorf("creating a file that is there, and others: %q, want the same denial", said)
	}
	write(t, filepath.Join(g.cwd, "mine"), "old\n")
	s.turn(call("edit", map[string]string{
		"path": filepath.Join(g.cwd, "mine"), "old_str": "none", "new_str": "x",
	}))
	if !strings.Contains(s.lastSaid(), "No match") {
		t.Errorf("an edit of a file that may be read: %q, want the runtime's own answer",
			s.lastSaid())
	}
}

// TestCreateIsAskedFirst: where a person decides about a write, the runtime does not look whether a
// file that the session may not read is there before the person has answered. The answer covers the
// write that was shown.
func TestCreateIsAskedFirst(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "there"), "x")
	g := newRig(t, func(o *Options) { o.Permissions.Write = configs.Ask })
	s := g.start()
	var asked []string
	decision := "deny"
	s.answer = func(_ context.Context, q gateway.Question) (gateway.Answer, error) {
		asked = append(asked, q.Detail)
		return gateway.Answer{Decision: decision}, nil
	}
	create := func(name string) (said string) {
		s.turn(call("create", map[string]string{"path": filepath.Join(dir, name),
			"file_text": "content\n"}))
		return s.lastSaid()
	}
	there, none := create("there"), create("none")
	if there != none || len(asked) != 2 || !strings.Contains(asked[0], "content") {
		t.Errorf(
			"creating a file that is there: %q, and another: %q, asked %q; want the same, each asked with its content",
			there, none, asked)
	}
	decision = "once"
	create("new")
	if got := readFile(filepath.Join(dir, "new")); got != "content\n" || len(asked) != 3 {
		t.Errorf(
			"creating a file as allowed: it has %q after %d questions, want it made after one more",
			got, len(asked))
	}
}

// TestSearchFindsNothingDenied: a search reads no file of deny_paths, whatever narrows it, hidden
// files and links to the directory among them.
func TestSearchFindsNothingDenied(t *testing.T) {
	g := newRig(t, readsAll, func(o *Options) {
		o.Permissions.DenyPaths = []string{"**/.env", "private/**"}
	})
	for _, name := range []string{"a/.env", "b/c/.env", "private/key", "src/main.go"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(g.cwd, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(g.cwd, name), "find me "+name+"\n")
	}
	for link, to := range map[string]string{"link": "a", "away": "/proc/self/cwd"} {
		if err := os.Symlink(to, filepath.Join(g.cwd, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := g.start()
	for _, args := range []map[string]any{
		{}, {"glob": "*.go"}, {"glob": ".env"}, {"path": "a"}, {"path": "b"}, {"path": "link"},
		{"path": "private"},
		{"paths": []string{"src", "a"}}, {"output_mode": "count"}, {"path": "src/.."},
		{"path": g.cwd},
	} {
		if args["output_mode"] == nil {
			args["output_mode"] = "content"
		}
		args["pattern"] = "find me"
		s.turn(call("grep", args))
		if said := s.lastSaid(); strings.Contains(said, "find me") ||
			!strings.Contains(said, "deny_paths") {
			t.Errorf("grep %v: %q, want it denied by deny_paths", args, said)
		}
	}
	for _, path := range []string{"/proc/self/cwd", "away", "src/../away"} {
		s.turn(call("grep", map[string]any{"pattern": "find me", "path": path,
			"output_mode": "content"}))
		if said := s.lastSaid(); strings.Contains(said, "find me") ||
			!strings.Contains(said, "another place") {
			t.Errorf(
				"grep in %s, which is the session's directory for ripgrep alone: %q, want it denied", path, said)
		}
	}
	s.turn(call("grep", map[string]any{"pattern": "find me", "paths": []string{"src"},
		"output_mode": "content"}))
	if said := s.lastSaid(); !strings.Contains(said, "find me src/main.go") {
		t.Errorf("grep in a directory without such files: %q, want what it finds", said)
	}
	s.turn(call("glob", map[string]any{"pattern": "**/*.go"}))
	if said := s.lastSaid(); !strings.Contains(said, "main.go") {
		t.Errorf("glob: %q, want the names of files", said)
	}
}
