package tools

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// space makes a workspace with files; a name that ends in / is a directory.
func space(t testing.TB, files map[string]string) *Env {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := &Env{Root: filepath.Join(base, "ws"), Home: filepath.Join(base, "home")}
	if err := os.Mkdir(env.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		put(t, env, name, text)
	}
	return env
}

func put(t testing.TB, env *Env, name, text string) {
	t.Helper()
	file := filepath.Join(env.Root, name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if strings.HasSuffix(name, "/") {
		err = errors.Join(err, os.MkdirAll(file, 0o755))
	} else {
		err = errors.Join(err, os.WriteFile(file, []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// args are the arguments of a call.
type args map[string]any

// checkWritten compares the files of a result with the workspace and with the calls of
// Sync.
func checkWritten(t *testing.T, env *Env, res Result, synced map[string]string) {
	t.Helper()
	if len(res.Written) != len(synced) {
		t.Errorf("%d files were written, %d synced, want the same number", len(res.Written),
			len(synced))
	}
	for _, w := range res.Written {
		data, err := os.ReadFile(w.Path)
		if err != nil || string(data) != w.Content {
			t.Errorf("%s holds %q (%v), want %q as in the result", w.Path, data, err, w.Content)
		}
		if synced[w.Path] != w.Content {
			t.Errorf("%s was synced with %q, want %q", w.Path, synced[w.Path], w.Content)
		}
	}
	for _, path := range res.Removed {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || !filepath.IsAbs(path) {
			t.Errorf("%s is said to be gone: %v, want an absolute path without a file", path, err)
		}
	}
}
