package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// treeWatch is a tree that is watched, and what happened to its files.
type treeWatch struct {
	*testing.T
	dir  string
	now  chan []Change
	lost chan struct{} // the directory is missing
	ends chan error
}

func watchTree(t *testing.T, dir string, globs ...string) *treeWatch {
	t.Helper()
	return start(t, newTree(dir, globs))
}

func start(t *testing.T, watched *tree) *treeWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &treeWatch{
		t, watched.dir, make(chan []Change, 1000), make(chan struct{}, 1000), make(chan error, 1),
	}
	go func() {
		w.ends <- watched.watch(ctx, func(list []Change) { w.now <- list }, w.setMissing)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-w.ends:
			if err != nil && ctx.Err() == nil {
				t.Errorf("the watch ended with %v, want no error", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("a watch does not end")
		}
	})
	select {
	case list := <-w.now:
		if len(list) > 0 {
			t.Fatalf("at first %v changed, want nothing", list)
		}
	case err := <-w.ends:
		w.ends <- err
	case <-w.lost:
		w.lost <- struct{}{}
	}
	return w
}

func (w *treeWatch) setMissing() { w.lost <- struct{}{} }

// wantMissing waits until the watch says that its directory is missing.
func (w *treeWatch) wantMissing() {
	w.Helper()
	select {
	case <-w.lost:
	case <-time.After(30 * time.Second):
		w.Fatal("the watch does not say that its directory is missing")
	}
}

// want waits until these changes have come, as "what file". What comes beside them is an error.
func (w *treeWatch) want(want ...string) {
	w.Helper()
	var got []string
	deadline := time.After(30 * time.Second)
	for len(got) < len(want) {
		select {
		case list := <-w.now:
			for _, c := range list {
				got = append(got, c.What+" "+c.File)
			}
		case <-deadline:
			w.Fatalf("got %q, want %q", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Fatalf("got %q, want %q", got, want)
	}
}

func (w *treeWatch) path(rel string) string { return filepath.Join(w.dir, filepath.FromSlash(rel)) }

func (w *treeWatch) write(rel, content string) {
	w.Helper()
	do(w.T, os.MkdirAll(filepath.Dir(w.path(rel)), 0o755))
	write(w.T, w.path(rel), content)
}

func (w *treeWatch) rename(from, to string) {
	w.Helper()
	do(w.T, os.Rename(w.path(from), w.path(to)))
}

func TestTree(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	write(t, filepath.Join(dir, "old.go"), "1")
	w := watchTree(t, dir, "**/*.go", "./notes/*.{txt,md}")
	w.write("a.go", "1")
	w.write("a.txt", "1")
	w.write("notes/b.txt", "1")
	w.want("created a.go", "created notes/b.txt")
	w.write("a.go", "22")
	w.write("notes/deep/c.txt", "1")
	w.write("x/y/z/d.go", "1") // the directories are new, too
	w.want("changed a.go", "created x/y/z/d.go")
	// As editors save: a new file, renamed over the old one; or the old one moved away first.
	w.write(".a.go.tmp", "3")
	w.rename(".a.go.tmp", "a.go")
	w.rename("old.go", "old.go~")
	w.write("old.go", "2")
	do(t, os.Remove(w.path("old.go~")))
	w.want("changed a.go", "changed old.go")
	// A directory that moves takes its files with it, and is watched where it is now.
	w.rename("x", "w")
	w.want("removed x/y/z/d.go", "created w/y/z/d.go")
	w.write("w/y/z/d.go", "22")
	w.want("changed w/y/z/d.go")
	w.write("w/y/z/e.go", "1")
	do(t, os.RemoveAll(w.path("w/y")))
	w.write("w/y/f.go", "1") // another directory of the name
	w.want("removed w/y/z/d.go", "created w/y/f.go")
	w.write("w/y/f.go", "22")
	w.want("changed w/y/f.go")
	do(t, os.RemoveAll(w.path("w")))
	write(t, w.path("w"), "now a file")
	w.want("removed w/y/f.go")
}

// Directories with many files of no interest are left out, and links lead nowhere.
func TestTreeLeavesOut(t *testing.T) {
	t.Parallel() // it waits
	dir, far := t.TempDir(), t.TempDir()
	all := newTree(dir, []string{"**"})
	w := start(t, all)
	for _, name := range []string{".git", "node_modules", "src"} {
		do(t, os.Mkdir(w.path(name), 0o755))
	}
	head := watchTree(t, dir, ".git/HEAD")
	w.write(".git/HEAD", "1")
	w.write("node_modules/x/y.js", "1")
	head.want("created .git/HEAD")
	do(t, os.Symlink(far, w.path("src/far")))
	write(t, filepath.Join(far, "secret"), "1")
	w.want("created src/far")
	write(t, filepath.Join(far, "secret"), "22")
	w.write("end", "1")
	w.want("created end")
	for watched := range all.watcher.watched {
		if strings.Contains(watched, "node_modules") || strings.HasPrefix(watched, far) {
			t.Errorf("%s is watched, want it left out", watched)
		}
	}
}

// A storm of changes is told in a few pieces, and none of it is lost, also when the system loses
// some.
func TestTreeStorm(t *testing.T) {
	t.Parallel() // it waits
	w := watchTree(t, t.TempDir(), "**")
	const n = 10_000
	for i := range n {
		w.write(fmt.Sprintf("d%d/f%d", i%50, i), "1")
	}
	calls, got := 0, map[string]bool{}
	for deadline := time.After(60 * time.Second); len(got) < n; calls++ {
		select {
		case list := <-w.now:
			for _, c := range list {
				if c.What == Created {
					got[c.File] = true
				}
			}
		case <-deadline:
			t.Fatalf("%d files came, want %d", len(got), n)
		}
	}
	if calls > 100 {
		t.Errorf("%d calls for %d changes, want a few", calls, n)
	}
}

// A directory that goes takes its files with it, and those of the directory that takes its place
// are new.
func TestTreeComesAndGoes(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	w := watchTree(t, filepath.Join(dir, "a", "b"), "**/*.txt")
	w.wantMissing()
	beside := watchTree(t, filepath.Join(dir, "a", "c"), "*")
	beside.wantMissing()
	write(t, filepath.Join(dir, "noise"), "1") // what happens above is nothing to tell
	w.write("c/first.txt", "1")
	w.want("created c/first.txt")
	w.write("second.txt", "1")
	w.want("created second.txt")
	do(t, os.RemoveAll(w.dir))
	w.want("removed c/first.txt", "removed second.txt")
	w.wantMissing()
	write(t, w.dir, "a file")
	do(t, os.Remove(w.dir))
	w.write("third.txt", "1")
	w.want("created third.txt")
	other := filepath.Join(dir, "other")
	do(t, os.Rename(w.dir, other))
	w.want("removed third.txt")
	w.wantMissing()
	do(t, os.Symlink(other, w.dir))
	w.want("created third.txt")
	write(t, filepath.Join(other, "third.txt"), "22")
	w.want("changed third.txt")
	do(t, os.RemoveAll(filepath.Join(dir, "a")))
	do(t, os.RemoveAll(other))
	w.want("removed third.txt")
	w.wantMissing()
}

// A tree that can't be watched whole says so.
func TestTreeFaults(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		do(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		write(t, filepath.Join(dir, name, "f"), "1")
	}
	full := newTree(dir, []string{"**"})
	full.watcher.addWatch = func(w *fsnotify.Watcher, path string) error {
		if path != dir {
			return syscall.ENOSPC
		}
		return w.Add(path)
	}
	none := newTree(filepath.Join(dir, "x", "y"), []string{"**"})
	none.watcher.addWatch = func(*fsnotify.Watcher, string) error { return syscall.ENOSPC }
	small := newTree(dir, []string{"**/*"})
	small.limits = limits{files: 1, dirs: 100}
	do(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	tests := []struct {
		name string
		w    *treeWatch
		want string
	}{
		{"no watches left", start(t, full), "raise fs.inotify.max_user_watches"},
		{"no watches left above", start(t, none), "raise fs.inotify"},
		{"many files", start(t, small), "more than 1 files match"},
		{"links that lead round", watchTree(t, filepath.Join(dir, "loop"), "**"), "too many links"},
	}
	for _, test := range tests {
		err := <-test.w.ends
		test.w.ends <- err
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error that says %q", test.name, err, test.want)
		}
	}
}

// A directory that this user may not watch is left out, and the rest is watched.
func TestTreeLeavesOutForeign(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	watched := newTree(dir, []string{"**"})
	watched.watcher.addWatch = func(w *fsnotify.Watcher, path string) error {
		if path == filepath.Dir(dir) {
			return syscall.EACCES
		}
		return w.Add(path)
	}
	w := start(t, watched)
	w.write("a/b", "1")
	w.want("created a/b")
}

func TestMayHold(t *testing.T) {
	tests := []struct {
		glob, dir string
		want      bool
	}{
		{"*.go", ".", true},
		{"*.go", "a", false},
		{"**/*.go", "a/b", true},
		{"**", "a/b", true},
		{"src/**/*.go", "a", false},
		{"src/**/*.go", "src", true},
		{"src/**/*.go", "src/x/y", true},
		{"s*/x/*.go", "src/x", true},
		{"s*/x/*.go", "src/x/y", false},
		{"**", ".git", false},
		{"**", "a/node_modules/b", false},
		{".git/refs/**", ".git", true},
		{".git/refs/**", ".git/objects", false},
		{"**/node_modules/*/package.json", "a/node_modules/b", true},
		{"{a,b/c}/*", "b/c", true},
	}
	for _, test := range tests {
		if got := mayHold(test.glob, test.dir); got != test.want {
			t.Errorf("mayHold(%q, %q): got %t, want %t", test.glob, test.dir, got, test.want)
		}
	}
}
