package watch

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func visible(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && !strings.HasPrefix(info.Name(), ".")
}

// watching is a watched directory and the reports about it.
type watching struct {
	t   *testing.T
	now chan Snapshot
}

func watch(t *testing.T, dirs ...string) *watching {
	t.Helper()
	w := &watching{t, make(chan Snapshot, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { Dirs(ctx, dirs, visible, func(s Snapshot) { w.now <- s }) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

// until waits for the files to be these: alternating paths and contents. What
// comes in between is what a slow machine makes of a few operations.
func (w *watching) until(pairs ...string) {
	w.t.Helper()
	want := Snapshot{}
	for i := 0; i < len(pairs); i += 2 {
		dir := w.t.TempDir()
		write(w.t, filepath.Join(dir, "f"), pairs[i+1])
		for _, s := range Scan([]string{dir}, visible) {
			want[pairs[i]] = s
		}
	}
	deadline := time.After(30 * time.Second)
	for {
		select {
		case got := <-w.now:
			if equal(got, want) {
				return
			}
		case <-deadline:
			w.t.Fatalf("the changes %v came, want one with what was written", pairs)
		}
	}
}

func equal(a, b Snapshot) bool {
	if len(a) != len(b) {
		return false
	}
	for path, sum := range a {
		if b[path] != sum {
			return false
		}
	}
	return true
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesComeChangeAndGo(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	a := write(t, filepath.Join(dir, "a"), "1")
	w := watch(t, dir)
	w.until(a, "1")

	b := write(t, filepath.Join(dir, "b"), "1")
	w.until(a, "1", b, "1")
	write(t, a, "2")
	w.until(a, "2", b, "1")
	// As editors save: a new file, renamed over the old one.
	do(t, os.Rename(write(t, filepath.Join(dir, ".a.tmp"), "3"), a))
	w.until(a, "3", b, "1")
	do(t, os.Remove(b))
	w.until(a, "3")
	do(t, os.Chmod(a, 0o755))
	if s := <-w.now; len(s) != 1 {
		t.Errorf("after chmod: %v, want 1 of them", s)
	}
}

func TestDirectoryComesAndGoes(t *testing.T) {
	t.Parallel() // it waits
	base := t.TempDir()
	dir := filepath.Join(base, "x", "tools")
	w := watch(t, dir)
	w.until()
	do(t, os.MkdirAll(dir, 0o755))
	a := write(t, filepath.Join(dir, "a"), "1")
	w.until(a, "1")
	// Another one in its place.
	do(t, os.Mkdir(filepath.Join(base, "new"), 0o755))
	write(t, filepath.Join(base, "new", "a"), "2")
	do(t, os.Rename(dir, filepath.Join(base, "old")))
	do(t, os.Rename(filepath.Join(base, "new"), dir))
	w.until(a, "2")
	write(t, a, "3")
	w.until(a, "3")
	do(t, os.RemoveAll(filepath.Join(base, "x")))
	w.until()
	do(t, os.MkdirAll(dir, 0o755))
	write(t, a, "4")
	w.until(a, "4")
}

func TestLinksAreSwapped(t *testing.T) {
	t.Parallel() // it waits
	base := t.TempDir()
	for _, v := range []string{"1", "2"} {
		do(t, os.Mkdir(filepath.Join(base, "v"+v), 0o755))
		write(t, filepath.Join(base, "v"+v, "a"), v)
	}
	swap := func(target, link string) {
		t.Helper()
		do(t, os.Symlink(target, link+".new"))
		do(t, os.Rename(link+".new", link))
	}
	// The directory is a link, and so is one on the way to it.
	current, dir := filepath.Join(base, "current"), filepath.Join(base, "dir")
	swap("v1", current)
	swap(current, dir)
	a := filepath.Join(dir, "a")
	w := watch(t, dir)
	w.until(a, "1")
	swap("v2", current)
	w.until(a, "2")
	write(t, filepath.Join(base, "v2", "a"), "3")
	w.until(a, "3")
	swap("v1", dir)
	w.until(a, "1")

	// A file is a link to elsewhere, and its target changes.
	far := t.TempDir()
	x, y := write(t, filepath.Join(far, "x"), "x"), write(t, filepath.Join(far, "y"), "y")
	l := filepath.Join(dir, "l")
	swap(x, l)
	w.until(a, "1", l, "x")
	swap(y, l)
	w.until(a, "1", l, "y")
	write(t, y, "z")
	w.until(a, "1", l, "z")
	do(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	do(t, os.Remove(y))
	w.until(a, "1")
}

// A link may be there before what it leads to is.
func TestLinkToNothingIsWatched(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	do(t, os.Symlink(filepath.Join(far, "current", "a"), filepath.Join(dir, "a")))
	if !targetsOf([]string{dir}, visible).isRelevant(filepath.Join(far, "current")) {
		t.Error("what the link leads to is not watched, want it to be")
	}
}

// Only a different content counts, not that the file was written.
func TestOnlyWhatDiffersIsTold(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	a := write(t, filepath.Join(dir, "a"), "1")
	w := watch(t, dir)
	w.until(a, "1")
	write(t, a, "1")
	write(t, filepath.Join(dir, ".hidden"), "1")
	do(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	b := write(t, filepath.Join(dir, "b"), "2")
	if got := <-w.now; len(got) != 2 {
		t.Errorf("told %v, want a and b", got)
	}
	do(t, os.Remove(b))
	w.until(a, "1")
}

func TestScan(t *testing.T) {
	dir := t.TempDir()
	big := write(t, filepath.Join(dir, "big"), strings.Repeat("x", maxHashed+1))
	write(t, filepath.Join(dir, "small"), "1")
	do(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	one := Scan([]string{dir, filepath.Join(dir, "none")}, visible)
	if len(one) != 2 {
		t.Fatalf("found %v, want 2 of them", one)
	}
	if two := Scan([]string{dir}, visible); !equal(one, two) {
		t.Errorf("two scans without a change differ: %v, %v, want the same", one, two)
	}
	do(t, os.Chtimes(big, time.Time{}, time.Unix(1, 0)))
	if two := Scan([]string{dir}, visible); two[big] == one[big] {
		t.Error("a large file that changed looks the same, want another stamp")
	}
}

// A file that is written in pieces is looked at when its writer has finished, and
// one that never is in the end all the same.
func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		poke := make(chan struct{}, 1)
		var file atomic.Int32 // bytes that were written so far
		type told struct {
			len int
			at  time.Duration
		}
		var got []told
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			reportChanges(ctx, poke, func() (Snapshot, time.Duration) {
				var s Sum
				s[0] = byte(file.Load())
				return Snapshot{"f": s}, pollInterval
			}, func(s Snapshot) { got = append(got, told{int(s["f"][0]), time.Since(start)}) })
		})
		pieces := func(n int, pause time.Duration) {
			for range n {
				synctest.Wait()
				file.Add(1)
				select {
				case poke <- struct{}{}:
				default:
				}
				<-time.After(pause)
			}
		}
		pieces(5, 100*time.Millisecond)  // 0 to 400 ms
		pieces(1, 2500*time.Millisecond) // at 500 ms: reported 200 ms later
		pieces(30, 90*time.Millisecond)  // 3 s to 5.61 s: reported at 5 s and 5.81 s
		<-time.After(300 * time.Millisecond)
		poke <- struct{}{} // nothing differs
		<-time.After(time.Second)
		synctest.Wait()
		file.Add(1) // there is no event; the next poll finds it
		<-time.After(20 * time.Second)
		cancel()
		wg.Wait()

		want := []told{
			{0, 0}, {6, 700 * time.Millisecond}, {29, 5 * time.Second},
			{36, 5810 * time.Millisecond}, {37, 16200 * time.Millisecond},
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

// Of a file that is not regular only the kind is reported. It is not read.
func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	all := func(fs.FileInfo) bool { return true }
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	before := Scan([]string{dir}, all)
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	after := Scan([]string{dir}, all)
	if len(before) != 1 || len(after) != 1 || before[pipe] == after[pipe] {
		t.Errorf(
			"a pipe is told as %v, a directory as %v, want 1 of them, 1 of them and not %v",
			before, after, after[pipe],
		)
	}
}
