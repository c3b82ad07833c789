package watch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Trees watches the files of directories and of those below them, for any number of callers. All of them share one
// watcher of the system, because a user may have few; without callers there is none. Any goroutine may call its
// methods.
type Trees struct {
	limits limits
	// addWatch is (*fsnotify.Watcher).Add, but in tests.
	addWatch func(*fsnotify.Watcher, string) error

	mu     sync.Mutex // guards what follows
	source *fsnotify.Watcher
	ended  chan struct{}             // closed when the goroutine that reads source has ended
	trees  map[*tree]bool            // those that are watched
	byDir  map[string]map[*tree]bool // who watches a directory
}

// limits are those of one tree.
type limits struct{ files, dirs int }

// NewTrees returns Trees without callers.
func NewTrees() *Trees {
	return &Trees{
		limits: limits{files: 100_000, dirs: 20_000}, addWatch: (*fsnotify.Watcher).Add,
		trees: map[*tree]bool{}, byDir: map[string]map[*tree]bool{},
	}
}

// Change is something that happened to a file.
type Change struct {
	File string // relative to the directory, with slashes
	What string // Created, Changed or Removed
}

// What may happen to a file. A file that another one is renamed over has changed.
const (
	Created = "created"
	Changed = "changed"
	Removed = "removed"
)

// Watch calls changed with what happens to the files below dir that one of the globs matches, once for a burst of
// changes, until ctx ends. A call without changes says that from now on all is watched. While there is no such
// directory, the watch waits for it: it calls missing once each time, and the files that come with the directory are
// new. An error says why it can't go on. Symbolic links count as files, and are not followed below dir. Directories
// called .git and node_modules are left out, unless a glob names them.
func (ts *Trees) Watch(
	ctx context.Context, dir string, globs []string, changed func([]Change), missing func(),
) error {
	err := ts.watch(ctx, dir, globs, false, changed)
	for ctx.Err() == nil && isMissing(err) {
		missing()
		if err = ts.waitDir(ctx, dir); err == nil {
			err = ts.watch(ctx, dir, globs, true, changed)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// waitDir waits until there is a directory, or ctx ends. It watches the nearest directory above.
func (ts *Trees) waitDir(ctx context.Context, dir string) error {
	for ctx.Err() == nil {
		near := nearest(dir)
		above, err := filepath.EvalSymlinks(near)
		if isMissing(err) { // meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("watching files: %w", err)
		}
		t := newTree(ts, above, nil)
		if err := ts.join(t); err != nil {
			return err
		}
		t.dirs["."] = true
		err = ts.add(t, above)
		// Watch first, look second. Where a link leads is not watched: what it leads to may come unseen.
		for err == nil && nearest(dir) == near && near != dir && waitQuiet(ctx, t.poke, pollInterval) {
			t.take()
		}
		ts.leave(t)
		switch {
		case err != nil && !isMissing(err):
			return err
		case nearest(dir) == dir:
			return nil
		}
	}
	return nil
}

// nearest returns the path itself if it is a directory, else the first one above it that is.
func nearest(path string) string {
	for {
		if info, err := os.Stat(path); err == nil && info.IsDir() || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// watch is Watch for a directory that is there: it ends when the directory is gone. The files that are there at first
// have come now if areNew is true.
func (ts *Trees) watch(
	ctx context.Context, dir string, globs []string, areNew bool, changed func([]Change),
) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	t := newTree(ts, dir, globs)
	if err := ts.join(t); err != nil {
		return err
	}
	defer ts.leave(t)
	found, err := t.look(true)
	if err != nil {
		return err
	}
	changed(nil)
	if areNew && len(found) > 0 {
		changed(found)
	}
	for waitQuiet(ctx, t.poke, math.MaxInt64) {
		changes, err := t.look(false)
		if len(changes) > 0 {
			changed(changes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (ts *Trees) join(t *tree) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.source == nil {
		source, err := fsnotify.NewWatcher()
		if errors.Is(err, syscall.EMFILE) {
			return errors.New("watching files: the user has too many watchers: raise fs.inotify.max_user_instances")
		} else if err != nil {
			return fmt.Errorf("watching files: %w", err)
		}
		ts.source, ts.ended = source, make(chan struct{})
		go ts.read(source, ts.ended)
	}
	ts.trees[t] = true
	return nil
}

func (ts *Trees) leave(t *tree) {
	ts.mu.Lock()
	delete(ts.trees, t)
	for dir := range t.dirs {
		ts.drop(t, t.abs(dir))
	}
	source, ended := ts.source, ts.ended
	isLast := len(ts.trees) == 0
	if isLast {
		ts.source = nil
		clear(ts.byDir)
	}
	ts.mu.Unlock()
	if isLast {
		_ = source.Close()
		<-ended
	}
}

// add watches a directory for a tree.
func (ts *Trees) add(t *tree, dir string) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	users := ts.byDir[dir]
	if users == nil {
		switch err := ts.addWatch(ts.source, dir); {
		case errors.Is(err, syscall.ENOSPC):
			return fmt.Errorf("watching %s: the system has no watches left: name fewer directories in files, "+
				"or raise fs.inotify.max_user_watches (%w)", dir, err)
		case err != nil:
			return fmt.Errorf("watching files: %w", err)
		}
		users = map[*tree]bool{}
		ts.byDir[dir] = users
	}
	users[t] = true
	return nil
}

// remove ends the watch of a directory for a tree.
func (ts *Trees) remove(t *tree, dir string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.drop(t, dir)
}

// drop is remove with mu held.
func (ts *Trees) drop(t *tree, dir string) {
	users := ts.byDir[dir]
	if !users[t] {
		return
	}
	if delete(users, t); len(users) == 0 {
		ts.unwatch(dir)
	}
}

// unwatch forgets a directory. Call it with mu held.
func (ts *Trees) unwatch(dir string) {
	_ = ts.source.Remove(dir) // it may be gone
	delete(ts.byDir, dir)
}

// read tells the trees what has happened, until source is closed.
func (ts *Trees) read(source *fsnotify.Watcher, ended chan struct{}) {
	defer close(ended)
	for {
		select {
		case e, ok := <-source.Events:
			switch {
			case !ok:
				return
			case e.Name != "" && e.Op != fsnotify.Chmod:
				ts.happened(source, e)
			}
		case _, ok := <-source.Errors: // too many events: some are lost
			if !ok {
				return
			}
			ts.mu.Lock()
			for t := range ts.trees {
				t.mark("")
			}
			ts.mu.Unlock()
		}
	}
}

// happened marks what a change is about in the trees that watch it.
func (ts *Trees) happened(source *fsnotify.Watcher, e fsnotify.Event) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.source != source {
		return
	}
	for _, dir := range []string{e.Name, filepath.Dir(e.Name)} {
		for t := range ts.byDir[dir] {
			t.mark(e.Name)
		}
	}
	// A watch stays with its directory wherever that is moved to: those that still need one make it anew.
	if e.Has(fsnotify.Rename) || e.Has(fsnotify.Create) && ts.byDir[e.Name] != nil {
		for dir, users := range ts.byDir {
			if strings.HasPrefix(dir, e.Name+string(filepath.Separator)) {
				for t := range users {
					t.mark(dir)
				}
				ts.unwatch(dir)
			}
		}
	}
	if ts.byDir[e.Name] != nil && !e.Has(fsnotify.Write) {
		ts.unwatch(e.Name)
	}
}
