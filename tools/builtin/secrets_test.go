package builtin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No tool shows files of the directory of the gateway's tokens, even if everything is
// allowed and the directory is in the workspace, as it is in the home directory.
func TestNoToolReadsTheGatewaysTokens(t *testing.T) {
	const dir = "[copilot]/extensions/tap"
	for _, path := range []string{os.Getenv("PATH"), t.TempDir()} { // with ripgrep, and without
		t.Setenv("PATH", path)
		env := space(t,
			map[string]string{dir + "/.admin-token": "adm-needle\n", "a.txt": "a needle\n",
				"x/extensions/tap/b.txt": "b needle\n"})
		env.Secrets = []string{filepath.Join(env.Root, dir)}
		allow := func(context.Context, string, bool) error { return nil }
		env.Outside = allow
		env.Protected = func(context.Context, string, string) error { return nil }
		if err := os.Symlink(dir, filepath.Join(env.Root, "link")); err != nil {
			t.Fatal(err)
		}
		for _, in := range []args{
			{"filePath": dir + "/.admin-token"}, {"filePath": "link/.admin-token"},
			{"filePath": env.Root + "/x/../" + dir + "/.admin-token"},
		} {
			if r, err := call(t, env, "read_file", in); err == nil ||
				!strings.Contains(err.Error(), "lies where tapgw keeps tokens and conversations") {
				t.Errorf("read_file %v: got %q, %v, want %q in it", in, r.Text(), err,
					"lies where tapgw keeps tokens and conversations")
			}
		}
		for tool, in := range map[string]args{
			"list_dir": {"path": dir}, "create_file": {"filePath": dir + "/new", "content": "x"},
			"replace_string_in_file": {"filePath": dir + "/.admin-token", "oldString": "adm-needle",
				"newString": "x"},
		} {
			if r, err := call(t, env, tool, in); err == nil {
				t.Errorf("%s: got %q, want an error", tool, r.Text())
			}
		}
		r, err := call(t, env, "grep_search", args{"query": "needle"})
		if err != nil || strings.Contains(r.Text(), "adm-") ||
			!strings.Contains(r.Text(), "a.txt:1:") ||
			!strings.Contains(r.Text(), "x/extensions/tap/b.txt:1:") {
			t.Errorf("grep_search: got %q, %v, want %q in it and %q in it", r.Text(), err,
				"a.txt:1:", "x/extensions/tap/b.txt:1:")
		}
		r, err = call(t, env, "grep_search",
			args{"query": "needle", "includePattern": "**/.admin*"})
		if err != nil || strings.Contains(r.Text(), "adm-") {
			t.Errorf("grep_search of the file: got %q, %v, want no secret in it", r.Text(), err)
		}
		r, err = call(t, env, "file_search", args{"query": "**"})
		if err != nil || strings.Contains(r.Text(), ".admin-token") {
			t.Errorf("file_search: got %q, %v, want no .admin-token in it", r.Text(), err)
		}
		env.Root = filepath.Join(env.Root, dir)
		if r, err := call(t, env, "read_file", args{"filePath": ".admin-token"}); err == nil {
			t.Errorf("in the directory itself: got %q, want an error", r.Text())
		}
	}
}
