// Package gitstate asks git which files of a directory have changed. It runs git by package
// gitread, so the repository can't make git run a program or look outside of the working tree.
package gitstate

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	"tapgw/internal/gitread"
	"tapgw/internal/protect"
	"tapgw/tools/internal/program"
)

// State lists the changed files by their path from the directory. A path may have a
// note, such as "a.txt (added)" or "old -> new".
type State struct {
	Staged, Unstaged, Untracked, Conflicts []string
}

// Directory is a directory in a repository. The caller of [Open] must close it.
type Directory struct {
	repository *gitread.Repository
	submodules string   // the option about submodules
	paths      []string // the directory without the hidden ones, as arguments of git
}

// Open opens a directory in a repository. It does not read in the directories that hidden names by
// absolute paths. The error says that git is missing, or names the fault of the repository. No
// program of the workspace is run.
func Open(ctx context.Context, workspace, dir string, hidden ...string) (*Directory, error) {
	path, err := program.Find("git", workspace, dir)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("git is not installed")
	} else if err != nil {
		return nil, err
	}
	git := gitread.Git{Program: path, Path: program.Path(nil, workspace, dir)}
	r, err := git.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	strayModule, err := r.CheckIndex(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	// git does not look into submodules, which have configurations of their own: it only
	// reports that one is at another commit.
	d := &Directory{repository: r, submodules: "--ignore-submodules=dirty",
		paths: []string{"--", "."}}
	if strayModule {
		d.submodules = "--ignore-submodules=all"
	}
	for _, dir := range hidden {
		resolved, err := protect.Resolve(filepath.Clean(dir))
		if err != nil {
			continue // the directory can't be read anyway
		}
		if rel, err := filepath.Rel(r.Root, resolved); err == nil && filepath.IsLocal(rel) {
			d.paths = append(d.paths, ":(top,exclude,literal,icase)"+filepath.ToSlash(rel))
		}
	}
	return d, nil
}

// Close removes the files that Open made.
func (d *Directory) Close() { d.repository.Close() }

// State reads which files of the directory have changed.
func (d *Directory) State(ctx context.Context) (State, error) {
	out, err := d.ask(ctx, "status", "--porcelain=v1", "-z", "--untracked-files=all")
	if err != nil {
		return State{}, err
	}
	return parse(string(out), d.repository.Prefix), nil
}

// Diff returns the staged changes, or else the others, as a patch. Its paths begin with
// name, the directory's name for the reader, unless that is ".".
func (d *Directory) Diff(ctx context.Context, name string, staged bool) (string, error) {
	below := ""
	if name != "." {
		below = name + "/"
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative",
		"--src-prefix=a/" + below, "--dst-prefix=b/" + below}
	if staged {
		args = append(args, "--cached")
	}
	out, err := d.ask(ctx, args...)
	return string(out), err
}

// ask asks git about the directory.
func (d *Directory) ask(ctx context.Context, args ...string) ([]byte, error) {
	return d.repository.Output(ctx, append(append(args, d.submodules), d.paths...)...)
}

// notes describe changes of a file other than a change of its content.
var notes = map[byte]string{'A': " (added)", 'D': " (deleted)", 'T': " (type changed)"}

// parse reads git's status: "XY path NUL", with a second path for renames and copies.
// The paths begin at the repository's root; prefix is cut from them. A path that is not
// below it is left out.
func parse(out, prefix string) (s State) {
	fields := strings.Split(out, "\x00")
	for len(fields) > 0 {
		entry := fields[0]
		fields = fields[1:]
		if len(entry) < 4 {
			continue
		}
		x, y := entry[0], entry[1]
		name, isBelow := strings.CutPrefix(entry[3:], prefix)
		from := ""
		if len(fields) > 0 &&
			(strings.ContainsRune("RC", rune(x)) || strings.ContainsRune("RC", rune(y))) {
			var isFromBelow bool
			from, isFromBelow = strings.CutPrefix(fields[0], prefix)
			fields = fields[1:]
			isBelow = isBelow && isFromBelow && filepath.IsLocal(from)
		}
		if !isBelow || !filepath.IsLocal(name) {
			continue
		}
		described := func(code byte) string {
			switch code {
			case 'R':
				return from + " -> " + name + " (renamed)"
			case 'C':
				return from + " -> " + name + " (copied)"
			}
			return name + notes[code]
		}
		switch {
		case x == '?':
			s.Untracked = append(s.Untracked, name)
			continue
		case x == 'U' || y == 'U' || x == y && (x == 'A' || x == 'D'):
			s.Conflicts = append(s.Conflicts, name)
			continue
		}
		if x != ' ' {
			s.Staged = append(s.Staged, described(x))
		}
		if y != ' ' {
			s.Unstaged = append(s.Unstaged, described(y))
		}
	}
	return s
}
