package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repository has the directories in which git keeps the data of a working tree. A tree may come
// from an archive, with a .git that its author made, so a Repository never names the directories of
// another tree.
type Repository struct {
	Root string // the directory of the working tree
	Dir  string // of the tree's own files: HEAD, index
	// of the objects, the refs and the configuration; Dir, except in a linked worktree
	Common      string
	IsSubmodule bool // Dir counts only if the configuration in it names Root as its worktree
}

// ErrNoRepository says that no directory above is a working tree of git.
var ErrNoRepository = errors.New("not a git repository (or any of the parent directories)")

// Find returns the repository of the innermost working tree that contains a directory. The paths
// have no symbolic links. The error wraps ErrNoRepository, or says why the tree's .git is not
// followed.
func Find(dir string) (Repository, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Repository{}, err
	}
	for ; ; dir = filepath.Dir(dir) {
		if r, err := at(dir); err != nil || r.Dir != "" {
			return r, err
		}
		if dir == filepath.Dir(dir) {
			return Repository{}, ErrNoRepository
		}
	}
}

// Top returns the innermost directory, at or above a directory, that contains an entry .git,
// whether or not git follows that entry: all files below it have one origin. It returns "" if there
// is no such directory.
func Top(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// at returns the repository of a working tree's root. Without a .git that git would follow, Dir is
// "".
func at(root string) (Repository, error) {
	name := filepath.Join(root, ".git")
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Repository{}, nil
	case err != nil:
		return Repository{}, err
	case info.IsDir():
		if _, err := os.Lstat(filepath.Join(name, "HEAD")); err != nil {
			return Repository{}, nil // git looks further up, too
		}
		if _, err := os.Lstat(filepath.Join(name, "commondir")); err == nil {
			return Repository{},
				fmt.Errorf("%s is not followed: its file commondir leads to another repository",
					name)
		}
		return Repository{Root: root, Dir: name, Common: name}, nil
	case !info.Mode().IsRegular():
		return Repository{}, fmt.Errorf("%s is not followed: it is a symbolic link or no file",
			name)
	}
	text, err := ReadSmall(name)
	if err != nil {
		return Repository{}, err
	}
	path, is := strings.CutPrefix(strings.TrimSpace(text), "gitdir:")
	if !is {
		return Repository{}, fmt.Errorf("%s is not followed: it names no directory", name)
	}
	dir, err := filepath.EvalSymlinks(resolvePath(root, strings.TrimSpace(path)))
	if err != nil {
		return Repository{}, err
	}
	if common, is := linked(root, dir); is {
		return Repository{Root: root, Dir: dir, Common: common}, nil
	}
	if isModule(root, dir) {
		return Repository{Root: root, Dir: dir, Common: dir, IsSubmodule: true}, nil
	}
	return Repository{},
		fmt.Errorf("%s is not followed: it leads to %s, which is of another working tree", name,
			dir)
}

// linked reports whether dir belongs to a linked worktree at root: each of them must name the
// other, as git writes them. It returns the directory that the worktrees of the repository share.
func linked(root, dir string) (common string, is bool) {
	back, err := ReadSmall(filepath.Join(dir, "gitdir"))
	if err != nil {
		return "", false
	}
	named := resolvePath(dir, strings.TrimSpace(back))
	if filepath.Base(named) != ".git" || !isSame(filepath.Dir(named), root) {
		return "", false
	}
	text, err := ReadSmall(filepath.Join(dir, "commondir"))
	if err != nil {
		return "", false
	}
	common = filepath.Dir(filepath.Dir(dir))
	return common, filepath.Base(filepath.Dir(dir)) == "worktrees" &&
		isSame(resolvePath(dir, strings.TrimSpace(text)), common)
}

// isModule reports whether dir is where a working tree around root keeps its submodules.
func isModule(root, dir string) bool {
	around, err := Find(filepath.Dir(root))
	if err != nil {
		return false
	}
	modules, err := filepath.EvalSymlinks(filepath.Join(around.Common, "modules"))
	if err != nil {
		return false
	}
	below, err := filepath.Rel(modules, dir)
	return err == nil && below != "." && filepath.IsLocal(below)
}

// isSame reports whether two paths lead to the same place.
func isSame(a, b string) bool {
	a, errA := filepath.EvalSymlinks(a)
	b, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && a == b
}
