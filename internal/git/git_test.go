package git

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plain/x/file", "")
	write("repo/.git/HEAD", "ref: refs/heads/feature/one\n")
	write(
		"repo/.git/config",
		"[core]\n\tbare = false\n[remote \"other\"]\n\turl = https://github.com/not/this\n[remote \"origin\"]\n\turl = https://github.com/kitchen/tea.git\n\tfetch = x\n",
	)
	write("repo/pkg/deep/file", "")
	write("detached/.git/HEAD", "0123456789012345678901234567890123456789\n")
	write("main/.git/HEAD", "ref: refs/heads/main\n")
	write("main/.git/config", "[remote \"origin\"]\nurl = git@octo.ghe.com:kitchen/tea\n")
	write("main/.git/worktrees/tree/HEAD", "ref: refs/heads/other\n")
	write("main/.git/worktrees/tree/commondir", "../..\n")
	write("main/.git/worktrees/tree/gitdir", filepath.Join(root, "tree/.git")+"\n")
	write("tree/.git", "gitdir: ../main/.git/worktrees/tree\n")
	write("other/.git", "gitdir: ../main/.git/worktrees/tree\n")
	write("stolen/.git", "gitdir: ../main/.git\n")
	write("broken/.git/config", "")
	write("strange/.git", "something else")
	write("rude/.git/HEAD", "ref: refs/heads/a\x1bb\n")
	for dir, want := range map[string]struct {
		c     Context
		label string
	}{
		"plain/x": {Context{}, "x"},
		"repo": {Context{"repo", "feature/one", "kitchen/tea", "github.com"},
			"repo@feature/one"},
		"repo/pkg/deep": {Context{"repo", "feature/one", "kitchen/tea", "github.com"},
			"repo@feature/one"},
		"detached": {Context{"detached", "", "", ""}, "detached"},
		"tree":     {Context{"tree", "other", "kitchen/tea", "octo.ghe.com"}, "tree@other"},
		"other":    {Context{}, "other"},  // the worktree names another directory
		"stolen":   {Context{}, "stolen"}, // it is another tree's repository
		"broken":   {Context{}, "broken"},
		"strange":  {Context{}, "strange"},
		"rude":     {Context{"rude", "", "", ""}, "rude"},
	} {
		if want.c.Root != "" {
			want.c.Root = filepath.Join(root, want.c.Root)
		}
		dir := filepath.Join(root, dir)
		if c, ok := Of(dir); c != want.c || ok != (want.c.Root != "") {
			t.Errorf("%s: %+v, %v, want %+v and %v", dir, c, ok, want.c, (want.c.Root != ""))
		}
		if got := Label(dir); got != want.label {
			t.Errorf("%s: %q, want %q", dir, got, want.label)
		}
	}
}

func FuzzRemote(f *testing.F) {
	for _, s := range []string{
		"https://github.com/o/n.git", "git@github.com:o/n", "ssh://git@h:22/o/n", "/srv/git/x.git",
		"C:/x/y", "../x",
		"file:///x/y", "https://u:p@h/o/n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, repository := parseRemote(s)
		if (host == "") != (repository == "") || !isPrintable(repository) {
			t.Errorf("%q: host %q, repository %q, want both or neither, printable", s, host,
				repository)
		}
		originURL(s)
	})
}
