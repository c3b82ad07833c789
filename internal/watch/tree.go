package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	// maxDirty is how many changed paths are remembered; with more of them, or more than maxDirtyDirs directories among
	// them, everything is looked at.
	maxDirty     = 20_000
	maxDirtyDirs = 100
)

// tree is what one call of [Trees.Watch] watches. The caller's goroutine owns the fields but dirty. Paths are relative
// and have slashes.
type tree struct {
	trees *Trees
	dir   string // absolute, without links
	globs []string
	dirs  map[string]bool  // those that are watched
	files map[string]stamp // those that match
	poke  chan struct{}    // holds one item; there is something in dirty

	mu    sync.Mutex
	dirty map[string]bool // absolute paths; "" for all
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

func newTree(ts *Trees, dir string, globs []string) *tree {
	t := &tree{
		trees: ts, dir: dir, dirs: map[string]bool{}, files: map[string]stamp{}, poke: make(chan struct{}, 1),
		dirty: map[string]bool{},
	}
	for _, g := range globs {
		t.globs = append(t.globs, path.Clean(g))
	}
	return t
}

func (t *tree) abs(rel string) string { return filepath.Join(t.dir, filepath.FromSlash(rel)) }

// mark notes that something happened to a path. Any goroutine may call it.
func (t *tree) mark(abs string) {
	t.mu.Lock()
	if len(t.dirty) >= maxDirty {
		t.dirty = map[string]bool{"": true}
	} else {
		t.dirty[abs] = true
	}
	t.mu.Unlock()
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// take returns the paths to which something happened, and whether to look at everything.
func (t *tree) take() (paths []string, all bool) {
	t.mu.Lock()
	dirty := t.dirty
	t.dirty = map[string]bool{}
	t.mu.Unlock()
	dirs := 0
	for abs := range dirty {
		rel, err := filepath.Rel(t.dir, abs)
		if abs == "" || err != nil || rel == "." {
			return nil, true
		}
		rel = filepath.ToSlash(rel)
		if paths = append(paths, rel); t.dirs[rel] {
			dirs++
		}
	}
	slices.Sort(paths)
	return paths, dirs > maxDirtyDirs
}

// look returns what has changed since the last look, sorted by path. If the directory is gone, so are its files: the
// error comes with them.
func (t *tree) look(all bool) (changes []Change, err error) {
	defer func() { slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.File, b.File) }) }()
	paths, everything := t.take()
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		if isMissing(err) {
			for file := range t.files {
				t.compare(file, nil, &changes)
			}
		}
		return changes, fmt.Errorf("watching files: %w", err)
	}
	defer func() { _ = root.Close() }()
	if all || everything {
		paths = []string{"."}
	}
	for _, rel := range paths {
		if err := t.lookAt(root, rel, &changes); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// isMissing reports whether an error says that there is no such directory.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// lookAt adds what has changed at a path and below it.
func (t *tree) lookAt(root *os.Root, rel string, changes *[]Change) error {
	now := map[string]stamp{}
	info, err := root.Lstat(rel)
	isDir := err == nil && info.IsDir()
	if !isDir && err == nil && t.matches(rel) {
		now[rel] = stampOf(info)
	}
	if !isDir && !t.dirs[rel] {
		t.compare(rel, now, changes)
		return nil
	}
	before := t.dirs
	t.dirs = map[string]bool{}
	for dir := range before {
		if !isBelow(rel, dir) {
			t.dirs[dir] = true
		}
	}
	if isDir {
		err = t.walk(root, rel, now)
	}
	for dir := range before {
		if !t.dirs[dir] {
			t.trees.remove(t, t.abs(dir))
		}
	}
	if isDir && err != nil {
		return err
	}
	for file := range t.files {
		if _, is := now[file]; !is && isBelow(rel, file) {
			t.compare(file, now, changes)
		}
	}
	for file := range now {
		t.compare(file, now, changes)
	}
	return nil
}

// isBelow reports whether a path is dir, or below it.
func isBelow(dir, rel string) bool {
	return dir == "." || rel == dir || strings.HasPrefix(rel, dir) && rel[len(dir)] == '/'
}

// compare adds what has happened to a file.
func (t *tree) compare(file string, now map[string]stamp, changes *[]Change) {
	before, was := t.files[file]
	after, is := now[file]
	switch {
	case was && !is:
		delete(t.files, file)
		*changes = append(*changes, Change{file, Removed})
		return
	case is && !was:
		*changes = append(*changes, Change{file, Created})
	case before != after:
		*changes = append(*changes, Change{file, Changed})
	}
	if is {
		t.files[file] = after
	}
}

// walk watches a directory and those below it that may have files that match, and adds these files to found.
func (t *tree) walk(root *os.Root, start string, found map[string]stamp) error {
	for left := []string{start}; len(left) > 0; {
		rel := left[len(left)-1]
		left = left[:len(left)-1]
		if !slices.ContainsFunc(t.globs, func(glob string) bool { return mayHold(glob, rel) }) {
			continue
		}
		// Watch first, look second: what changes in between is looked at again.
		switch err := t.trees.add(t, t.abs(rel)); {
		case err != nil && (rel == "." || errors.Is(err, syscall.ENOSPC)):
			return err
		case err != nil: // it is gone, or not for this user
			continue
		}
		t.dirs[rel] = true
		for _, e := range readDir(root, rel) {
			name := path.Join(rel, e.Name())
			if e.IsDir() {
				left = append(left, name)
			} else if info, err := e.Info(); err == nil && t.matches(name) {
				found[name] = stampOf(info)
			}
		}
		if max := t.trees.limits; len(found) > max.files || len(t.dirs) > max.dirs {
			return fmt.Errorf(
				"files: more than %d files match, or more than %d directories are to be watched below %s: "+
					"name fewer",
				max.files,
				max.dirs,
				t.dir,
			)
		}
	}
	return nil
}

// readDir returns the entries of a directory; none if it is gone, or a link out of root has taken its place.
func readDir(root *os.Root, rel string) []fs.DirEntry {
	d, err := root.Open(rel)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	entries, _ := d.ReadDir(-1)
	return entries
}

func (t *tree) matches(rel string) bool {
	return slices.ContainsFunc(t.globs, func(glob string) bool {
		ok, err := doublestar.Match(glob, rel)
		return ok && err == nil
	})
}

// leftOut are directories that only a glob that names them leads into: they have many files, and few that people write.
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
