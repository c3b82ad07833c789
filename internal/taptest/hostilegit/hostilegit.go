// Package hostilegit makes working trees as an archive may bring them: each has a .git that would
// lead a careless git to files of the user outside of it, or to a program.
package hostilegit

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's own hash
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Texts that no program may show or do for a hostile tree.
const (
	// in a file and in a commit outside, and in the name of a file and a branch there
	Needle  = "needle-of-the-user"
	guessed = "a-guessed-line" // in a file outside, and the name of a file in each tree
)

// Tree is a hostile working tree.
type Tree struct {
	Name string
	Dir  string
	Ran  string // a file that exists if the tree's program ran
	// Guessed is the name of a new file of the tree that must be shown if the tree is read at all:
	// to leave it out would tell that a file outside has a line with this text.
	Guessed string
}

// maker makes trees in a test.
type maker struct {
	t *testing.T
	// a directory with secret.txt, and "private", a repository with a commit that has the needle
	outside string
	commit  string // of private
	program string
}

// Trees makes all hostile trees, and returns a description of each.
func Trees(t *testing.T) []Tree {
	t.Helper()
	m := &maker{t: t}
	base, err := filepath.EvalSymlinks(t.TempDir())
	m.must(err)
	m.outside = filepath.Join(base, "outside")
	ran := filepath.Join(base, "ran")
	m.program = filepath.Join(base, "program")
	m.write(m.program, "#!/bin/sh\ntouch "+ran+"\ncat\n")
	m.must(os.Chmod(m.program, 0o755))
	m.write(filepath.Join(m.outside, "secret.txt"), Needle+"\n")
	m.write(filepath.Join(m.outside, Needle+".txt"), "x\n")
	m.write(filepath.Join(m.outside, "patterns"), guessed+"\n")
	private := filepath.Join(m.outside, "private")
	m.git(m.outside, "init", "-q", "-b", Needle, private)
	m.write(filepath.Join(private, "kept.txt"), Needle+"\n")
	m.git(private, "add", ".")
	m.git(private, "commit", "-q", "-m", Needle)
	m.commit = m.git(private, "rev-parse", "HEAD")
	m.git(private, "worktree", "add", "-q", filepath.Join(m.outside, "linked"))
	var trees []Tree
	for i, a := range attacks {
		dir := filepath.Join(base, fmt.Sprint("tree", i))
		m.git(base, "init", "-q", "-b", "main", dir)
		m.write(filepath.Join(dir, "secret.txt"), "the tree's own\n")
		m.write(filepath.Join(dir, guessed), "x\n")
		a.make(m, dir)
		trees = append(trees, Tree{Name: a.name, Dir: dir, Ran: ran, Guessed: guessed})
	}
	return trees
}

// attacks change a fresh repository.
var attacks = []struct {
	name string
	make func(m *maker, dir string)
}{
	{"core.worktree", func(m *maker, dir string) {
		m.index(dir, "secret.txt")
		m.git(dir, "config", "core.worktree", m.outside)
	}},
	{"core.worktree of the worktree's configuration", func(m *maker, dir string) {
		m.index(dir, "secret.txt")
		m.git(dir, "config", "extensions.worktreeConfig", "true")
		m.write(filepath.Join(dir, ".git", "config.worktree"), "[core]\nworktree = "+m.outside+"\n")
	}},
	{"core.worktree, included", func(m *maker, dir string) {
		m.index(dir, "secret.txt")
		m.write(filepath.Join(dir, "inc"), "[core]\nworktree = "+m.outside+"\n")
		m.git(dir, "config", "include.path", "../inc")
	}},
	{"index with ..", func(m *maker, dir string) { m.index(dir, "../outside/secret.txt") }},
	{"index with .. in the middle", func(m *maker, dir string) {
		m.index(dir, "a/../../outside/secret.txt")
	}},
	{"index with an absolute path", func(m *maker, dir string) {
		m.index(dir, m.outside+"/secret.txt")
	}},
	{"index behind a link", func(m *maker, dir string) {
		m.index(dir, "link/secret.txt")
		m.link(m.outside, filepath.Join(dir, "link"))
	}},
	{"link for a tracked file", func(m *maker, dir string) {
		m.index(dir, "s")
		m.link(filepath.Join(m.outside, "secret.txt"), filepath.Join(dir, "s"))
	}},
	{".git file to another repository", func(m *maker, dir string) {
		m.instead(dir, "gitdir: "+filepath.Join(m.outside, "private", ".git")+"\n")
	}},
	{".git file to another's worktree", func(m *maker, dir string) {
		m.instead(dir, "gitdir: "+filepath.Join(m.outside, "private", ".git", "worktrees",
			"linked")+"\n")
	}},
	{".git file to an own directory that shares another repository", func(m *maker, dir string) {
		admin := filepath.Join(dir, "x", "worktrees", "w")
		m.write(filepath.Join(admin, "HEAD"), "ref: refs/heads/"+Needle+"\n")
		m.write(filepath.Join(admin, "commondir"), filepath.Join(m.outside, "private", ".git")+"\n")
		m.write(filepath.Join(admin, "gitdir"), filepath.Join(dir, ".git")+"\n")
		m.instead(dir, "gitdir: "+admin+"\n")
	}},
	{".git as a link", func(m *maker, dir string) {
		m.remove(filepath.Join(dir, ".git"))
		m.link(filepath.Join(m.outside, "private", ".git"), filepath.Join(dir, ".git"))
	}},
	{"commondir", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"), m.commit+"\n")
		m.write(filepath.Join(dir, ".git", "commondir"),
			filepath.Join(m.outside, "private", ".git")+"\n")
	}},
	{"alternates", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"), m.commit+"\n")
		m.write(filepath.Join(dir, ".git", "objects", "info", "alternates"), m.objects()+"\n")
	}},
	{"objects as a link", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"), m.commit+"\n")
		m.linked(dir, "objects", "private/.git/objects")
	}},
	{"some objects as links", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"), m.commit+"\n")
		entries, err := os.ReadDir(m.objects())
		m.must(err)
		for _, e := range entries {
			if len(e.Name()) == 2 {
				m.link(filepath.Join(m.objects(), e.Name()),
					filepath.Join(dir, ".git", "objects", e.Name()))
			}
		}
	}},
	{"refs as a link, and its objects too", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/"+Needle+"\n")
		for _, name := range []string{"refs", "objects"} {
			m.linked(dir, name, "private/.git/"+name)
		}
	}},
	{"HEAD as a link", func(m *maker, dir string) { m.linked(dir, "HEAD", "secret.txt") }},
	{"config as a link", func(m *maker, dir string) { m.linked(dir, "config", "secret.txt") }},
	{"index as a link", func(m *maker, dir string) {
		m.linked(dir, "index", "private/.git/index")
	}},
	{"HEAD as a link to a pipe", func(m *maker, dir string) {
		m.remove(filepath.Join(dir, ".git", "HEAD"))
		m.must(syscall.Mkfifo(filepath.Join(dir, ".git", "HEAD"), 0o600))
	}},
	{"include of a pipe", func(m *maker, dir string) {
		m.must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
		m.write(filepath.Join(dir, ".git", "config"),
			"[core]\nbare = false\n[include]\npath = ../pipe\n")
	}},
	{"include of a secret", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "config"), "[include]\npath = "+filepath.Join(m.outside,
			"secret.txt")+"\n")
	}},
	{"core.excludesFile", func(m *maker, dir string) {
		m.git(dir, "config", "core.excludesFile", filepath.Join(m.outside, "patterns"))
	}},
	{"info/exclude as a link", func(m *maker, dir string) {
		m.linked(dir, "info/exclude", "patterns")
	}},
	{"info as a link", func(m *maker, dir string) {
		m.write(filepath.Join(m.outside, "info", "exclude"), guessed+"\n")
		m.linked(dir, "info", "info")
	}},
	{"HEAD with ..", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "HEAD"),
			"ref: refs/heads/../../../../outside/secret.txt\n")
	}},
	{"ref with ..", func(m *maker, dir string) {
		m.write(filepath.Join(dir, ".git", "refs", "heads", "main"),
			"ref: ../../outside/secret.txt\n")
	}},
	{"packs as a link", func(m *maker, dir string) {
		m.git(filepath.Join(m.outside, "private"), "repack", "-q", "-a")
		m.write(filepath.Join(dir, ".git", "HEAD"), m.commit+"\n")
		m.linked(dir, "objects/pack", "private/.git/objects/pack")
	}},
	{".gitignore as a link", func(m *maker, dir string) {
		m.link(filepath.Join(m.outside, "patterns"), filepath.Join(dir, ".gitignore"))
	}},
	{"sparse checkout by a link", func(m *maker, dir string) {
		m.index(dir, "secret.txt")
		m.git(dir, "config", "core.sparseCheckout", "true")
		m.linked(dir, "info/sparse-checkout", "patterns")
	}},
	{"submodule with another repository", func(m *maker, dir string) {
		m.git(dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
		m.write(filepath.Join(dir, "sub", ".git"), "gitdir: "+filepath.Join(m.outside, "private",
			".git")+"\n")
	}},
	{"submodule as a link", func(m *maker, dir string) {
		m.git(dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
		m.link(filepath.Join(m.outside, "private"), filepath.Join(dir, "sub"))
	}},
	{"program: monitor", func(m *maker, dir string) {
		m.git(dir, "config", "core.fsmonitor", m.program)
	}},
	{"program: filter", func(m *maker, dir string) {
		m.index(dir, "secret.txt")
		m.write(filepath.Join(dir, ".gitattributes"), "* filter=x diff=x\n")
		for _, key := range []string{"filter.x.clean", "filter.x.process", "diff.x.textconv",
			"diff.x.command",
			"diff.external"} {
			m.git(dir, "config", key, m.program)
		}
	}},
	{"program: hook", func(m *maker, dir string) {
		for _, name := range []string{"post-index-change", "fsmonitor-watchman"} {
			m.link(m.program, filepath.Join(dir, ".git", "hooks", name))
		}
	}},
}

func (m *maker) objects() string { return filepath.Join(m.outside, "private", ".git", "objects") }

// linked replaces a file of .git by a link to a file outside.
func (m *maker) linked(dir, name, target string) {
	m.t.Helper()
	m.remove(filepath.Join(dir, ".git", name))
	m.link(filepath.Join(m.outside, target), filepath.Join(dir, ".git", name))
}

// instead replaces .git by a file.
func (m *maker) instead(dir, text string) {
	m.t.Helper()
	m.remove(filepath.Join(dir, ".git"))
	m.write(filepath.Join(dir, ".git"), text)
}

// index writes an index that says that these paths are empty files. git itself refuses to write
// most of them.
func (m *maker) index(dir string, paths ...string) {
	m.t.Helper()
	id, err := hex.DecodeString(m.git(dir, "hash-object", "-w", os.DevNull))
	m.must(err)
	var b bytes.Buffer
	b.WriteString("DIRC")
	put := func(n uint32) { _ = binary.Write(&b, binary.BigEndian, n) }
	put(2)
	put(uint32(len(paths)))
	for _, path := range paths {
		for _, n := range []uint32{1, 0, 1, 0, 1, 1, 0o100644, 1, 1, 7} {
			put(n)
		}
		b.Write(id)
		_ = binary.Write(&b, binary.BigEndian, uint16(len(path)))
		b.WriteString(path)
		b.Write(make([]byte, 8-(62+len(path))%8))
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // git's own hash
	b.Write(sum[:])
	m.write(filepath.Join(dir, ".git", "index"), b.String())
}

func (m *maker) write(path, text string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	m.must(os.WriteFile(path, []byte(text), 0o644))
}

func (m *maker) link(target, at string) {
	m.t.Helper()
	m.must(os.Symlink(target, at))
}

func (m *maker) remove(path string) {
	m.t.Helper()
	m.must(os.RemoveAll(path))
}

func (m *maker) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) git(dir string, args ...string) string {
	m.t.Helper()
	cmd := exec.Command("git",
		append([]string{"-c", "user.name=n", "-c", "user.email=e@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Check fails the test if a text that a program showed for the tree tells something of outside, or
// if a program of the tree ran.
func (tree Tree) Check(t *testing.T, shown string) {
	t.Helper()
	for _, text := range []string{Needle, "private", "kept.txt"} {
		// A message may name the path of the repository that it refuses.
		if rest := strings.ReplaceAll(shown, "outside/private", ""); strings.Contains(rest, text) {
			t.Errorf("%q is shown in %q, want nothing of outside", text, shown)
		}
	}
	if _, err := os.Stat(tree.Ran); err == nil {
		t.Errorf("the program of the tree ran, want it left alone")
		_ = os.Remove(tree.Ran)
	}
}
