package program

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func script(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+path), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Find ignores programs in the workspace and in the repository around it, and links to
// them. It finds others in any place of PATH.
func TestFind(t *testing.T) {
	base := t.TempDir()
	repo, ws := filepath.Join(base, "repo"), filepath.Join(base, "repo", "ws")
	script(t, filepath.Join(repo, ".git", "HEAD"))
	inside, above := script(t, filepath.Join(ws, "bin", "tool")),
		script(t, filepath.Join(repo, "bin", "tool"))
	outside := script(t, filepath.Join(base, "out", "tool"))
	linked := filepath.Join(base, "linked")
	if err := errors.Join(os.Mkdir(linked, 0o755),
		os.Symlink(inside, filepath.Join(linked, "tool")),
		os.Symlink(ws, filepath.Join(base, "alias"))); err != nil {
		t.Fatal(err)
	}
	path := func(dirs ...string) { t.Setenv("PATH", strings.Join(dirs, ":")) }
	path(filepath.Dir(inside), filepath.Join(base, "alias", "bin"), filepath.Dir(above), linked,
		"relative", "", filepath.Dir(outside))
	if got, err := Find("tool", ws); got != outside || err != nil {
		t.Errorf("found %s, %v, want %s", got, err, outside)
	}
	env := Environ(ws)
	if want := "PATH=" + linked + ":" + filepath.Dir(outside); !slices.Contains(env, want) {
		t.Errorf("got %q, want %s among them", env, want)
	}
	path(filepath.Dir(inside), filepath.Dir(above), linked)
	if got, err := Find("tool", ws); got != "" || err == nil ||
		!strings.Contains(err.Error(), "the workspace brings it") {
		t.Errorf("found %s, %v, want %q in it", got, err, "the workspace brings it")
	}
	if _, err := Find("none", ws); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("none: %v, want %v", err, exec.ErrNotFound)
	}
}
