package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"tapgw/internal/chans"
)

// watcher pokes when something happens to directories or to the links and directories on the way to
// them.
type watcher struct {
	poke chan struct{} // holds one
	// addWatch is (*fsnotify.Watcher).Add, but in tests.
	addWatch func(*fsnotify.Watcher, string) error

	// The present watches. Only update and close change them.
	source  *fsnotify.Watcher // nil without watches
	targets targets
	watched map[string]fs.FileInfo // the directories of the targets
	fault   error                  // why some of them are not watched
	drain   sync.WaitGroup         // the goroutine that reads the source
}

func newWatcher() *watcher {
	return &watcher{poke: make(chan struct{}, 1), addWatch: (*fsnotify.Watcher).Add}
}

func (w *watcher) close() {
	if w.source != nil {
		_ = w.source.Close()
	}
	w.drain.Wait()
	w.source = nil
}

// update watches the targets that find returns. It calls find again until all its targets are
// watched: a change before a watch shows in the next look, and a change after it pokes. It returns
// an error if the system does not watch all of them; with ENOSPC or EMFILE it watches no target.
func (w *watcher) update(find func() targets) error {
	for range 5 {
		t := find()
		now := t.dirs()
		if w.source != nil && t.equal(w.targets) && sameDirs(now, w.watched) {
			return w.fault
		}
		// Make all watches again, because a watch follows its directory when the directory is
		// moved.
		w.close()
		source, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.fault = nil
		for dir := range now {
			if err := w.addWatch(source, dir); errors.Is(err, syscall.ENOSPC) {
				_ = source.Close()
				return err
			} else if err != nil {
				w.fault = err
			}
		}
		w.source, w.targets, w.watched = source, t, now
		w.drain.Go(func() { w.read(source, t) })
	}
	w.wake() // it changed each time
	return nil
}

// wake pokes, unless a poke is pending.
func (w *watcher) wake() { chans.Wake(w.poke) }

// sameDirs reports whether two sets have the same directories, and each is still the same one on
// the disk.
func sameDirs(a, b map[string]fs.FileInfo) bool {
	return maps.EqualFunc(a, b, os.SameFile)
}

// read pokes for the events that matter. It never makes the source wait.
func (w *watcher) read(source *fsnotify.Watcher, t targets) {
	for {
		select {
		case e, ok := <-source.Events:
			if !ok {
				return
			}
			if !t.isRelevant(e.Name) {
				continue
			}
		case _, ok := <-source.Errors: // too many events: some are lost
			if !ok {
				return
			}
		}
		w.wake()
	}
}

// targets are the places where a change may matter, with symbolic links resolved.
type targets struct {
	everyEntry map[string]bool // directories of which every entry matters
	entries    map[string]bool // single entries that matter
}

func newTargets() targets { return targets{map[string]bool{}, map[string]bool{}} }

func targetsOf(dirs []string, match func(fs.FileInfo) bool) targets {
	t := newTargets()
	for _, dir := range dirs {
		real, ok := t.addPath(dir)
		if !ok {
			continue
		}
		t.everyEntry[real] = true
		entries, _ := os.ReadDir(real)
		for _, e := range entries {
			path := filepath.Join(real, e.Name())
			if e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			// A dangling link may lead to a matching file later.
			if info, err := os.Stat(path); err != nil || match(info) {
				t.addPath(path)
			}
		}
	}
	return t
}

// maxLinks is how many symbolic links a path may go through, as in Linux.
const maxLinks = 40

// addPath adds the entries that decide where a path leads: its links and its last part. It returns
// where the path leads, and whether something is there.
func (t targets) addPath(path string) (real string, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	sep := string(filepath.Separator)
	at, rest := sep, strings.Split(path, sep)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			t.entries[next] = true
			return "", false
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		t.entries[next] = true
		if links++; links > maxLinks {
			return "", false
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", false
		}
		if filepath.IsAbs(target) {
			at = sep
		}
		rest = append(strings.Split(target, sep), rest...)
	}
	t.entries[at] = true
	return at, true
}

// dirs returns the directories to watch, because events come only from the directory of an entry.
func (t targets) dirs() map[string]fs.FileInfo {
	all := map[string]fs.FileInfo{}
	add := func(dir string) {
		if info, err := os.Stat(dir); err == nil {
			all[dir] = info
		}
	}
	for dir := range t.everyEntry {
		add(dir)
	}
	for entry := range t.entries {
		add(filepath.Dir(entry))
	}
	return all
}

func (t targets) equal(other targets) bool {
	return maps.Equal(t.everyEntry, other.everyEntry) && maps.Equal(t.entries, other.entries)
}

// isRelevant reports whether an event for path may matter.
func (t targets) isRelevant(path string) bool {
	return t.entries[path] || t.everyEntry[path] || t.everyEntry[filepath.Dir(path)]
}
