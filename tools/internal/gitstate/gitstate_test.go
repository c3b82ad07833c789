package gitstate

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repository runs git commands in a new repository and returns its directory. @name=text
// writes a file, and !name removes one.
func repository(t *testing.T, steps ...string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, step := range append([]string{"init -q -b main", "config user.name n",
		"config user.email e@x"}, steps...) {
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

// stateOf opens a directory and reads its state.
func stateOf(t *testing.T, workspace, dir string) (State, error) {
	t.Helper()
	d, err := Open(t.Context(), workspace, dir)
	if err != nil {
		return State{}, err
	}
	defer d.Close()
	return d.State(t.Context())
}

// diffOf opens a directory and reads its changes.
func diffOf(t *testing.T, workspace, dir, name string, staged bool) (string, error) {
	t.Helper()
	d, err := Open(t.Context(), workspace, dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return d.Diff(t.Context(), name, staged)
}

var changed = []string{
	"@a=1\n", "@b=1\n", "@c=a long enough text\nto be found again\n", "@sub/d=1\n", "@gone=1\n",
	"add .",
	"commit -q -m x",
	"@a=2\n", "add a", "@a=3\n", "@b=2\n", "mv c c2", "@new=1\n", "add new", "!gone", "@sub/d=2\n",
	"@sub/e ü=1\n",
	"@sub/deep/f=1\n",
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
		got, err := stateOf(t, dir, filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sub, diff)
		}
	}
}

func TestConflicts(t *testing.T) {
	dir := repository(t, "@a=1\n", "add .", "commit -q -m x", "checkout -q -b other", "@a=2\n",
		"commit -qam y", "checkout -q main", "@a=3\n", "commit -qam z", "merge other")
	got, err := stateOf(t, dir, dir)
	if diff := cmp.Diff(State{Conflicts: []string{"a"}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// No command that a repository's files or configuration name is run.
func TestNothingIsRun(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	t.Setenv("RAN", ran)
	touch := script(t, filepath.Join(t.TempDir(), "touch-it"), "#!/bin/sh\ntouch "+ran+"\ncat\n")
	filters := "@.gitattributes=* filter=x diff=x\n"
	for name, steps := range map[string][]string{
		"monitor and diff": {"config core.fsmonitor " + touch, "config diff.external " + touch,
			"config diff.x.textconv " + touch, "config diff.x.command " + touch, filters},
		"pager": {"config core.pager " + touch, "config pager.status true",
			"config pager.diff " + touch},
		"clean filter": {"config filter.x.clean " + touch, "config filter.x.required true",
			filters},
		"process filter": {"config filter.x.process " + touch, filters},
		"included": {"@inc=[filter \"x\"]\nclean = " + touch + "\n",
			"config include.path ../inc", filters},
		"included if": {"@inc=[filter \"x\"]\nclean = " + touch + "\n",
			"config includeIf.onbranch:main.path ../inc", filters},
		"of the worktree": {"config extensions.worktreeConfig true",
			"config --worktree filter.x.clean " + touch,
			filters},
		"a strange name": {"config filter.X.y.Z.clean " + touch,
			"@.gitattributes=* filter=X.y.Z\n"},
		"a name with =": {"config filter.a=b.clean " + touch, "@.gitattributes=* filter=a=b\n"},
		"by attributes": {"config filter.x.clean " + touch, "@.git/info/attributes=* filter=x\n"},
		"configured hook": {"config hook.x.event post-index-change", "config hook.x.command " +
			touch},
		"missing objects": {
			"config extensions.partialClone origin", "config remote.origin.promisor true",
			"config remote.origin.url ext::" + touch,
			"config protocol.ext.allow always", "config core.sshCommand " + touch,
			"config remote.origin.uploadpack " + touch,
		},
		"missing objects, near": {
			"config extensions.partialClone origin", "config remote.origin.promisor true",
			"config remote.origin.url /",
			"config remote.origin.uploadpack " + touch,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, append(slices.Clone(changed), steps...)...)
			hook := script(t, filepath.Join(dir, ".git/hooks/post-index-change"),
				"#!/bin/sh\ntouch "+ran+"\n")
			if strings.HasPrefix(name, "missing") {
				forget(t, dir)
			}
			t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			script(t, filepath.Join(dir, "bin", "git"), "#!/bin/sh\ntouch "+ran+"\n")
			// git runs filters for a file that may or may not have changed.
			if err := os.WriteFile(filepath.Join(dir, "b"), []byte("3\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := stateOf(t, dir, dir); err != nil {
				t.Fatal(err)
			}
			for _, staged := range []bool{true, false} {
				diff, err := diffOf(t, dir, dir, ".", staged)
				if !strings.HasPrefix(name, "missing") &&
					(err != nil || !strings.Contains(diff, "+")) {
					t.Errorf("staged %v: got %q, %v, want the changes", staged, diff, err)
				}
			}
			if _, err := os.Stat(ran); err == nil {
				t.Errorf("a command of the repository was run (%s), want none", hook)
				_ = os.Remove(ran)
			}
		})
	}
}

// forget removes the objects of a repository's commits, as a partial clone lacks
// them.
func forget(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("git", "rev-parse", "HEAD:b", "HEAD:a")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for id := range strings.FieldsSeq(string(out)) {
		_ = os.Remove(filepath.Join(dir, ".git/objects", id[:2], id[2:]))
	}
}

// script writes a program.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// No command that the configuration of a submodule or a bare repository names is run.
func TestNothingOfAnotherRepositoryIsRun(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	touch := script(t, filepath.Join(t.TempDir(), "touch-it"), "#!/bin/sh\ntouch "+ran+"\ncat\n")
	sub := repository(t, "@.gitattributes=* filter=x\n", "@f=1\n", "add .", "commit -q -m x")
	dir := repository(t,
		append(slices.Clone(changed), "-c protocol.file.allow=always submodule --quiet add "+sub+
			" sm",
			"commit -q -m sm",
			"init -q --bare bare.git", "-C sm config filter.x.clean "+touch,
			"-C bare.git config core.fsmonitor "+touch,
			"-C bare.git config core.bare false", "-C bare.git config core.worktree ..",
			"@sm/f=2\n")...)
	for _, at := range []string{".", "bare.git"} {
		_, err := stateOf(t, dir, filepath.Join(dir, at))
		if at == "." && err != nil {
			t.Error(err)
		}
		_, _ = diffOf(t, dir, filepath.Join(dir, at), ".", false)
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: a command of the repository was run, want none", at)
			_ = os.Remove(ran)
		}
	}
}

func TestDiff(t *testing.T) {
	dir := repository(t, changed...)
	diff, err := diffOf(t, dir, filepath.Join(dir, "sub"), "x/sub", false)
	if err != nil ||
		!strings.Contains(diff, "--- a/x/sub/d\n+++ b/x/sub/d\n@@ -1 +1 @@\n-1\n+2\n") ||
		strings.Contains(diff, "/b\n") {
		t.Errorf("got %q, %v, want %q in it", diff, err,
			"--- a/x/sub/d\n+++ b/x/sub/d\n@@ -1 +1 @@\n-1\n+2\n")
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := stateOf(t, dir, dir); err == nil ||
		!strings.Contains(err.Error(), "not a git repository") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %v outside of a repository, want %q in it", err, "not a git repository")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := stateOf(t, dir, dir); err == nil || err.Error() != "git is not installed" {
		t.Errorf("got error %v without git, want %q", err, "git is not installed")
	}
}
