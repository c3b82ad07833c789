package gitstate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repository runs git commands in a new repository and returns its directory; a
// word @name=text writes a file, and !name removes one.
func repository(t *testing.T, steps ...string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, step := range append([]string{"init -q -b main", "config user.name n", "config user.email e@x"}, steps...) {
		if name, text, ok := strings.Cut(step, "="); ok && step[0] == '@' {
			file := filepath.Join(dir, name[1:])
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if step[0] == '!' {
			if err := os.Remove(filepath.Join(dir, step[1:])); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd := exec.Command("git", strings.Fields(step)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil && !strings.HasPrefix(step, "merge") {
			t.Fatalf("git %s: %v: %s", step, err, out)
		}
	}
	return dir
}

var changed = []string{
	"@a=1\n", "@b=1\n", "@c=a long enough text\nto be found again\n", "@sub/d=1\n", "@gone=1\n", "add .", "commit -q -m x",
	"@a=2\n", "add a", "@a=3\n", "@b=2\n", "mv c c2", "@new=1\n", "add new", "!gone", "@sub/d=2\n", "@sub/e ü=1\n", "@sub/deep/f=1\n",
}

func TestOf(t *testing.T) {
	dir := repository(t, changed...)
	for sub, want := range map[string]State{
		".": {
			Staged:    []string{"a", "c -> c2 (renamed)", "new (added)"},
			Unstaged:  []string{"a", "b", "gone (deleted)", "sub/d"},
			Untracked: []string{"sub/deep/f", "sub/e ü"},
		},
		"sub": {Unstaged: []string{"d"}, Untracked: []string{"deep/f", "e ü"}},
	} {
		got, err := Of(t.Context(), filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sub, diff)
		}
	}
}

func TestConflicts(t *testing.T) {
	dir := repository(t, "@a=1\n", "add .", "commit -q -m x", "checkout -q -b other", "@a=2\n", "commit -qam y", "checkout -q main", "@a=3\n", "commit -qam z", "merge other")
	got, err := Of(t.Context(), dir)
	if diff := cmp.Diff(State{Conflicts: []string{"a"}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestNothingIsRun asks a repository whose configuration names commands.
func TestNothingIsRun(t *testing.T) {
	dir := repository(t, append(changed, "config core.fsmonitor touch${IFS}ran", "config diff.external touch${IFS}ran", "@.git/hooks/post-index-change=#!/bin/sh\ntouch ran\n", "@.gitattributes=* diff=x\n", "config diff.x.textconv touch${IFS}ran;cat", "config diff.x.command touch${IFS}ran")...)
	if err := os.Chmod(filepath.Join(dir, ".git/hooks/post-index-change"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, staged := range []bool{true, false} {
		if diff, err := Diff(t.Context(), dir, ".", staged); err != nil || !strings.Contains(diff, "+") {
			t.Errorf("staged %v: %q, %v", staged, diff, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a command of the repository was run")
	}
}

func TestDiff(t *testing.T) {
	dir := repository(t, changed...)
	diff, err := Diff(t.Context(), filepath.Join(dir, "sub"), "x/sub", false)
	if err != nil || !strings.Contains(diff, "--- a/x/sub/d\n+++ b/x/sub/d\n@@ -1 +1 @@\n-1\n+2\n") || strings.Contains(diff, "/b\n") {
		t.Errorf("got %q, %v", diff, err)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Of(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "not a git repository") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %v outside of a repository", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Of(t.Context(), dir); err == nil || err.Error() != "git is not installed" {
		t.Errorf("got error %v without git", err)
	}
}
