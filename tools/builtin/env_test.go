package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapgw/tools"
)

// space makes a workspace with files; a name that ends in / is a directory.
func space(t testing.TB, files map[string]string) *tools.Env {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := &tools.Env{Root: filepath.Join(base, "ws"), Home: filepath.Join(base, "home")}
	if err := os.Mkdir(env.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		put(t, env, name, text)
	}
	return env
}

func put(t testing.TB, env *tools.Env, name, text string) {
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

// snapshot returns the files of a workspace in the form of space.
func snapshot(t testing.TB, env *tools.Env) map[string]string {
	t.Helper()
	got := make(map[string]string)
	err := filepath.WalkDir(env.Root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(env.Root, path)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			if sub, err := os.ReadDir(path); err == nil && len(sub) == 0 {
				got[rel+"/"] = ""
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		got[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// args are the arguments of a call.
type args map[string]any

// builtIn finds a built-in tool, nil if there is none of that name.
func builtIn(name string) *tools.Tool {
	for _, t := range All() {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// call calls a built-in tool as its callers do.
func call(t testing.TB, env *tools.Env, name string, in args) (tools.Result, error) {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return builtIn(name).Call(t.Context(), env, raw)
}

// toolTest is one call and its result.
type toolTest struct {
	name  string
	files map[string]string
	args  args
	want  string            // the answer; with ~ in front: a part of it
	err   string            // part of the error; then nothing may have changed
	after map[string]string // what changed; a name with - in front is gone
}

// runTools runs calls of one tool, each in a workspace of its own.
func runTools(t *testing.T, tool string, tests []toolTest) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := space(t, tt.files)
			synced := make(map[string]string)
			env.Sync = func(path, content string) { synced[path] = content }
			for key, v := range tt.args {
				if s, ok := v.(string); ok && strings.HasPrefix(s, "ROOT/") {
					tt.args[key] = env.Root + s[len("ROOT"):]
				}
			}
			before := snapshot(t, env)
			res, err := call(t, env, tool, tt.args)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %q, error %v, want %q", res.Text(), err, tt.err)
				}
			} else if part, ok := strings.CutPrefix(tt.want, "~"); err != nil ||
				ok && !strings.Contains(res.Text(), part) || !ok && res.Text() != tt.want {
				t.Errorf("got %q, %v, want %q", res.Text(), err, tt.want)
			}
			for name, text := range tt.after {
				if gone, ok := strings.CutPrefix(name, "-"); ok {
					delete(before, gone)
				} else {
					before[name] = text
				}
			}
			if diff := cmp.Diff(before, snapshot(t, env)); diff != "" {
				t.Errorf("the workspace (-want +got):\n%s", diff)
			}
			checkWritten(t, env, res, synced)
		})
	}
}

// checkWritten compares the files of a result with the workspace and with the calls of
// Sync.
func checkWritten(t *testing.T, env *tools.Env, res tools.Result, synced map[string]string) {
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

// allow is a policy that allows what lies below a directory.
func allow(dir string) func(context.Context, string, bool) error {
	return func(_ context.Context, path string, _ bool) error {
		if strings.HasPrefix(path, dir+"/") {
			return nil
		}
		return errors.New("not on the list")
	}
}
