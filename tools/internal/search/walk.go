package search

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Files lists the regular files that match include, in no order; nil matches all. The paths are
// relative to the tree and have slashes. Directories that cannot be read are skipped. Files returns
// ctx's error when ctx ends.
func (t Tree) Files(ctx context.Context, include *Glob) ([]string, error) {
	w := walker{tree: t, slots: make(chan struct{}, runtime.GOMAXPROCS(0)-1)}
	w.dir(ctx, ".", t.rulesAbove(), include)
	w.running.Wait()
	return w.files, ctx.Err()
}

// walker walks through a tree with several goroutines, one for each processor.
type walker struct {
	tree    Tree
	slots   chan struct{} // holds a value for each goroutine
	running sync.WaitGroup

	mu    sync.Mutex // guards the field that follows
	files []string
}

// dir adds the files of a directory and of the directories below it.
func (w *walker) dir(ctx context.Context, dir string, rules ignores, include *Glob) {
	// os.ReadDir returns the types of the entries with their names; an os.Root would
	// need another system call for each.
	entries, err := os.ReadDir(filepath.Join(w.tree.Dir, filepath.FromSlash(dir)))
	if err != nil || ctx.Err() != nil {
		return
	}
	for _, e := range entries {
		switch e.Name() {
		case ".git":
			if dir != "." { // a nested repository has rules of its own
				rules = nil
			}
			rules = rules.with(w.tree.readRules(path.Join(dir, ".git", "info", "exclude")), dir)
		case ".gitignore":
			rules = rules.with(w.tree.readRules(path.Join(dir, ".gitignore")), dir)
		}
	}
	var files []string
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if !e.IsDir() && !e.Type().IsRegular() || e.Name() == ".git" ||
			rules.isIgnored(p, e.IsDir()) || slices.Contains(w.tree.Skip, p) {
			continue
		}
		switch {
		case e.IsDir():
			within := include
			if include != nil && include.matchesAllIn(p) {
				within = nil
			}
			w.descend(func() { w.dir(ctx, p, rules, within) })
		case include == nil || include.matchesPath(p):
			files = append(files, p)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, files...)
}

// descend runs f in a goroutine if there is a free slot, else at once.
func (w *walker) descend(f func()) {
	select {
	case w.slots <- struct{}{}:
		w.running.Go(func() {
			f()
			<-w.slots
		})
	default:
		f()
	}
}

// readRules returns the text of a file of rules, or "" if there is no such file.
func (t Tree) readRules(name string) string {
	data, err := fs.ReadFile(t.FS, name)
	if err != nil {
		return ""
	}
	return string(data)
}

// rulesAbove are the rules of the directories above the tree, if it is a part of a
// repository.
func (t Tree) rulesAbove() (rules ignores) {
	if _, err := os.Lstat(filepath.Join(t.Dir, ".git")); err == nil {
		return nil
	}
	var above []string // from the tree's parent to the repository's top
	for dir := t.Dir; ; {
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
		above = append(above, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			break
		}
	}
	top := above[len(above)-1]
	rules = rules.withAbove(filepath.Join(top, ".git", "info", "exclude"), top, t.Dir)
	for _, dir := range slices.Backward(above) {
		rules = rules.withAbove(filepath.Join(dir, ".gitignore"), dir, t.Dir)
	}
	return rules
}

// withAbove adds the rules of a file above the tree.
func (r ignores) withAbove(file, dir, tree string) ignores {
	data, err := os.ReadFile(file)
	if err != nil {
		return r
	}
	rel, err := filepath.Rel(dir, tree)
	if err != nil {
		return r
	}
	rules := r.with(string(data), ".")
	rules[len(rules)-1].above = filepath.ToSlash(rel) + "/"
	return rules
}

// ignores are the rules of several files. A later file overrides an earlier one.
type ignores []ruleFile

// ruleFile are the rules of one directory.
type ruleFile struct {
	below string // the directory as a path from the tree, with / at the end; "": the tree
	above string // of a file above the tree: the path of the tree from there, with / at the end
	rules []rule
}

// with adds the rules of a file in a directory of the tree.
func (r ignores) with(text, dir string) ignores {
	f := ruleFile{rules: parseRules(text)}
	if dir != "." {
		f.below = dir + "/"
	}
	return append(slices.Clip(r), f)
}

// isIgnored reports whether a path is ignored: the last matching rule decides.
func (r ignores) isIgnored(p string, isDir bool) bool {
	for _, file := range slices.Backward(r) {
		name, ok := strings.CutPrefix(file.above+p, file.below)
		if !ok {
			continue
		}
		for _, rule := range slices.Backward(file.rules) {
			if rule.match(name, isDir) {
				return !rule.isNegated
			}
		}
	}
	return false
}
