package gitread

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run runs git as its user would.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git",
		append([]string{"-c", "user.name=n", "-c", "user.email=e@example.com",
			"-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// status opens a directory and reads what changed.
func status(t *testing.T, dir string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Git{Program: program}.Open(t.Context(), dir)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if _, err := r.CheckIndex(t.Context()); err != nil {
		return "", err
	}
	out, err := r.Output(t.Context(), "status", "--porcelain")
	return string(out), err
}

// repository makes a repository with a commit, and returns the directory beside which it lies and
// its own.
func repository(t *testing.T) (base, dir string) {
	t.Helper()
	base = t.TempDir()
	t.Setenv("HOME", base)
	t.Setenv("XDG_CONFIG_HOME", base)
	dir = filepath.Join(base, "main")
	run(t, base, "init", "-q", dir)
	write(t, filepath.Join(dir, "a.txt"), "1\n")
	run(t, dir, "add", ".")
	run(t, dir, "commit", "-q", "-m", "x")
	return base, dir
}

// What git itself makes is read as git reads it: linked worktrees, submodules, a split index,
// objects in packs, SHA-256, and the settings that say how files are compared.
func TestReadsWhatGitMakes(t *testing.T) {
	base, dir := repository(t)
	run(t, dir, "worktree", "add", "-q", "../side")
	run(t, dir, "worktree", "add", "-q", "inside")
	run(t, base, "clone", "-q", dir, "split")
	run(t, filepath.Join(base, "split"), "update-index", "--split-index")
	run(t, base, "clone", "-q", dir, "packed")
	run(t, filepath.Join(base, "packed"), "gc", "-q")
	run(t, base, "init", "-q", "--object-format=sha256", "sha256")
	write(t, filepath.Join(base, "sha256", "a.txt"), "1\n")
	run(t, filepath.Join(base, "sha256"), "add", ".")
	run(t, filepath.Join(base, "sha256"), "commit", "-q", "-m", "x")
	run(t, base, "clone", "-q", dir, "super")
	run(t, filepath.Join(base, "super"), "submodule", "--quiet", "add", dir, "sub")
	for _, at := range []string{"main", "side", "main/inside", "split", "packed", "sha256",
		"super/sub"} {
		top := filepath.Join(base, at)
		write(t, filepath.Join(top, "a.txt"), "2\n")
		write(t, filepath.Join(top, "deep", "new"), "")
		for _, from := range []string{top, filepath.Join(top, "deep")} {
			got, err := status(t, from)
			want := " M a.txt\n?? deep/\n"
			if at == "main" {
				want += "?? inside/\n"
			}
			if err != nil || got != want {
				t.Errorf("%s: got %q, %v, want %q", from, got, err, want)
			}
		}
	}
	mode := filepath.Join(base, "mode")
	run(t, base, "clone", "-q", dir, mode)
	run(t, mode, "config", "core.filemode", "false")
	if err := os.Chmod(filepath.Join(mode, "a.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := status(t, mode); err != nil || got != "" {
		t.Errorf("without core.filemode: got %q, %v, want no change", got, err)
	}
}

// A repository of another user is read only if this user's own configuration, not the repository's,
// trusts it.
func TestRepositoryOfAnotherUser(t *testing.T) {
	_, dir := repository(t)
	currentUser = func() int { return os.Geteuid() + 1 }
	t.Cleanup(func() { currentUser = os.Geteuid })
	run(t, dir, "config", "safe.directory", "*")
	if got, err := status(t, dir); err == nil || !strings.Contains(err.Error(), "another user's") {
		t.Errorf("got %q, %v, want it refused", got, err)
	}
	run(t, dir, "config", "--global", "safe.directory", dir)
	if got, err := status(t, dir); err != nil {
		t.Errorf("with safe.directory: got %q, %v, want it read", got, err)
	}
}

// A submodule's .git counts only if what it leads to names the same directory.
func TestSubmoduleNamesItsDirectory(t *testing.T) {
	base, dir := repository(t)
	super := filepath.Join(base, "super")
	run(t, base, "clone", "-q", dir, super)
	run(t, super, "submodule", "--quiet", "add", dir, "sub")
	write(t, filepath.Join(super, "stray", ".git"), "gitdir: ../.git/modules/sub\n")
	if got, err := status(t, filepath.Join(super, "stray")); err == nil ||
		!strings.Contains(err.Error(), "is not followed: it leads to") {
		t.Errorf("got %q, %v, want it refused", got, err)
	}
}
