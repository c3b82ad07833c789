package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Change is something that happened to a file.
type Change struct {
	File string // relative to the directory, with slashes
	What string // Created, Changed or Removed
}

// The changes of a file. A file that another one is renamed over has changed.
const (
	Created = "created"
	Changed = "changed"
	Removed = "removed"
)

// Tree calls changed with the changes of the files below dir that one of the globs matches, once
// for a burst of changes, until ctx ends. A call without changes says that from now on all is
// watched. While there is no such directory, Tree waits for it: it calls missing once each time,
// and the files that come with the directory are new. It returns an error if it can't go on.
// Symbolic links count as files, and are not followed below dir. Directories called .git and
// node_modules are left out, unless a glob names them.
func Tree(
	ctx context.Context, dir string, globs []string, changed func([]Change), missing func(),
) error {
	return newTree(dir, globs).watch(ctx, changed, missing)
}

// tree is one call of [Tree].
type tree struct {
	dir     string
	globs   []string
	limits  limits
	watcher *watcher
}

type limits struct{ files, dirs int }

func newTree(dir string, globs []string) *tree {
	t := &tree{dir: dir, limits: limits{files: 100_000, dirs: 20_000}, watcher: newWatcher()}
	for _, g := range globs {
		t.globs = append(t.globs, path.Clean(g))
	}
	return t
}

// watch implements [Tree].
func (t *tree) watch(ctx context.Context, changed func([]Change), missing func()) error {
	defer t.watcher.close()
	known := map[string]stamp{}
	isFirst, isThere := true, false
	for ; ; isFirst = false {
		files, err := t.look()
		if err != nil && !isMissing(err) {
			return err
		}
		wasThere := isThere
		isThere = err == nil
		if isThere && !wasThere {
			changed(nil)
		}
		if changes := compare(known, files); len(changes) > 0 && !isFirst {
			changed(changes)
		}
		if !isThere && (wasThere || isFirst) {
			missing()
		}
		known = files
		next := time.Duration(math.MaxInt64)
		if !isThere {
			next = pollInterval // the way to the directory may change without an event
		}
		if !waitQuiet(ctx, t.watcher.poke, next) {
			return nil
		}
	}
}

// look returns the files that match, and makes sure that each change from now on pokes.
func (t *tree) look() (files map[string]stamp, err error) {
	var missed error
	err = t.watcher.update(func() targets {
		all := newTargets()
		all.addPath(t.dir)
		var dir string
		if dir, missed = filepath.EvalSymlinks(t.dir); missed == nil {
			files, missed = t.walk(dir, all.everyEntry)
		}
		return all
	})
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return nil,
			fmt.Errorf("watching files: the system has no watches left: name fewer directories "+
				"in files, or raise fs.inotify.max_user_watches (%w)", err)
	case errors.Is(err, syscall.EMFILE):
		return nil, fmt.Errorf("watching files: the user has too many watchers: "+
			"raise fs.inotify.max_user_instances (%w)", err)
	case missed != nil:
		return nil, fmt.Errorf("watching files: %w", missed)
	}
	return files, nil // a directory that this user can't watch is left out
}

// isMissing reports whether an error says that there is no such directory.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// walk returns the files that match, and adds the directories to dirs that may have some.
func (t *tree) walk(dir string, dirs map[string]bool) (map[string]stamp, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	files := map[string]stamp{}
	err = fs.WalkDir(root.FS(), ".", func(rel string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && rel == ".":
			return err
		case err != nil: // the entry is gone, or not for this user
			return fs.SkipDir
		case e.IsDir() && !slices.ContainsFunc(t.globs, func(g string) bool {
			return mayHold(g, rel)
		}):
			return fs.SkipDir
		case e.IsDir():
			dirs[filepath.Join(dir, filepath.FromSlash(rel))] = true
		case t.matches(rel):
			if info, err := e.Info(); err == nil {
				files[rel] = stampOf(info)
			}
		}
		if len(files) > t.limits.files || len(dirs) > t.limits.dirs {
			return fmt.Errorf(
				"more than %d files match, or more than %d directories are to be watched "+
					"below %s: name fewer", t.limits.files, t.limits.dirs, t.dir)
		}
		return nil
	})
	return files, err
}

// stamp changes when a file does.
type stamp struct {
	size, changed int64
	inode         uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), changed: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// compare returns the differences of the files from before, sorted by path.
func compare(before, now map[string]stamp) (changes []Change) {
	for file := range before {
		if _, ok := now[file]; !ok {
			changes = append(changes, Change{file, Removed})
		}
	}
	for file, stamp := range now {
		if was, ok := before[file]; !ok {
			changes = append(changes, Change{file, Created})
		} else if was != stamp {
			changes = append(changes, Change{file, Changed})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.File, b.File) })
	return changes
}

func (t *tree) matches(rel string) bool {
	return slices.ContainsFunc(t.globs, func(glob string) bool {
		ok, err := doublestar.Match(glob, rel)
		return ok && err == nil
	})
}

// leftOut are directories with many files, few of which people write. Only a glob with such a name
// leads into them.
var leftOut = []string{".git", "node_modules"}

// mayHold reports whether a directory, or one below it, may have a file that a glob matches.
func mayHold(glob, dir string) bool {
	if dir == "." {
		return true
	}
	parts := strings.Split(glob, "/")
	names := strings.Split(dir, "/")
	for _, name := range leftOut {
		if slices.Contains(names, name) && !slices.Contains(parts, name) {
			return false
		}
	}
	if strings.Contains(glob, "{") { // which may have slashes
		return true
	}
	for i, name := range names {
		if parts[i] == "**" {
			return true
		}
		if ok, err := doublestar.Match(parts[i], name); !ok || err != nil || i == len(parts)-1 {
			return false
		}
	}
	return true
}
