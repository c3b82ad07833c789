package filelist

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes files with their directories.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, target, at string) {
	t.Helper()
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func find(t *testing.T, dir, query string, most int) Found {
	t.Helper()
	found, err := Find(t.Context(), dir, query, most)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inTree makes a work tree with tracked, untracked and ignored files, and links.
func inTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	outside := t.TempDir()
	write(t, outside, "secret.txt")
	write(t, dir, "main.go", "docs/page.md", "docs/pages/page-of-old.md", "Internal/Page.go",
		"build/out.o",
		"new file.txt", ".ssh/config", ".env", ".vscode/tasks.json", "line\nend",
		"sub/deep/readme.md")
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("build/\n.env\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	link(t, outside, filepath.Join(dir, "away"))
	link(t, filepath.Join(outside, "secret.txt"), filepath.Join(dir, "secret.txt"))
	link(t, "main.go", filepath.Join(dir, "same.go"))
	link(t, "nowhere", filepath.Join(dir, "dead.go"))
	runGit(t, dir, "init", "-q")
	runGit(t, dir, "add", "main.go", "docs", "away", "secret.txt", "same.go", "dead.go")
	return dir
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := inTree(t)
	for query, want := range map[string][]string{
		"": {"main.go", "same.go", ".gitignore", "new file.txt", "docs/page.md", "Internal/Page.go",
			"sub/deep/readme.md", "docs/pages/page-of-old.md"},
		"page":     {"docs/page.md", "Internal/Page.go", "docs/pages/page-of-old.md"},
		"PAGE.GO":  {"Internal/Page.go"},
		"docs/":    {"docs/page.md", "docs/pages/page-of-old.md"},
		"dpage":    {"docs/page.md", "docs/pages/page-of-old.md"},
		"new f":    {"new file.txt"},
		"secret":   {},
		"out.o":    {},
		"tasks":    {},
		"config":   {},
		"dead.go":  {},
		"../":      {},
		"line":     {},
		"émigré":   {},
		"readme.m": {"sub/deep/readme.md"},
	} {
		found := find(t, dir, query, 50)
		if !slices.Equal(found.Files, want) || found.More {
			t.Errorf("%q: %q, more %v; want %q and no more", query, found.Files, found.More, want)
		}
	}
	if found := find(t, dir, "", 3); len(found.Files) != 3 || !found.More {
		t.Errorf("the first three: %+v, want three and more", found)
	}
	// Of a directory within the tree.
	if found := find(t, filepath.Join(dir, "docs"), "page", 50); !slices.Equal(found.Files,
		[]string{"page.md", "pages/page-of-old.md"}) {
		t.Errorf("within docs: %q, want paths that begin there", found.Files)
	}
}

// TestFindWithoutGit lists all files where git has no tree, and the nearest where that is too much.
func TestFindWithoutGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := t.TempDir()
	write(t, outside, "secret.txt")
	write(t, dir, "a.txt", "b/c/d.txt", "bidi\u202etxt.txt", "tag\U000e0041.txt", "zero\u200b.txt",
		"line\u2028.txt",
		"select\ufe00.txt", "esc\x1b.txt", "node_modules/x/index.js",
		strings.Repeat("d/", maxDepth+1)+"deep.txt")
	link(t, outside, filepath.Join(dir, "away"))
	link(t, dir, filepath.Join(dir, "loop"))
	found := find(t, dir, ".txt", 50)
	if !slices.Equal(found.Files, []string{"a.txt", "b/c/d.txt"}) || !found.More {
		t.Errorf("%+v, want the two that are near and more", found)
	}
	if _, err := Find(t.Context(), filepath.Join(dir, "none"), "", 5); err == nil {
		t.Error("a directory that does not exist is searched, want an error")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := Find(over, dir, "", 50); err != nil || !found.More {
		t.Errorf("when its time is over: %+v, %v; want what there is and more", found, err)
	}
}

// TestFindStartsNothing: what the directory's own configuration names is not run, and where it says
// that its files are elsewhere, these are not found.
func TestFindStartsNothing(t *testing.T) {
	t.Parallel()
	dir := inTree(t)
	outside := t.TempDir()
	write(t, outside, "id_rsa")
	mark := filepath.Join(t.TempDir(), "ran")
	run := fmt.Sprintf("touch %s; false", mark)
	for key, value := range map[string]string{
		"core.fsmonitor": run, "core.pager": run, "alias.ls-files": "!" + run,
		"core.sshCommand": run, "filter.x.clean": run, "filter.x.process": run,
	} {
		runGit(t, dir, "config", key, value)
	}
	write(t, dir, ".gitattributes")
	if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("* filter=x\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if found := find(t, dir, "main", 5); !slices.Equal(found.Files, []string{"main.go"}) {
		t.Errorf("%q, want main.go", found.Files)
	}
	runGit(t, dir, "config", "core.worktree", outside)
	if found := find(t, dir, "rsa", 5); len(found.Files) > 0 {
		t.Errorf("%q is offered, which lies elsewhere", found.Files)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program that the directory names was run")
	}
}

// TestFindIsBounded: the files of a large directory are found up to a limit, which is said.
func TestFindIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 50,000 files")
	}
	t.Parallel()
	dir := t.TempDir()
	for i := range maxFiles + 10 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if found := find(t, dir, "f1", 20); len(found.Files) != 20 || !found.More {
		t.Errorf("%d files, more %v; want 20 and more", len(found.Files), found.More)
	}
}
