// Package instructions reads the files in which a project, or the user, tells agents how to work:
// AGENTS.md, CLAUDE.md, .github/copilot-instructions.md and their like.
//
// No symbolic link leads out of the project, no other name of a secret file counts, each file and
// all together have a limit, and a text that two files share counts once. The caller decides
// whether the project is trusted.
package instructions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"tapgw/internal/protect"
)

// Limits of the instructions for the model.
const (
	maxFile = 64 << 10  // bytes of a file
	maxAll  = 128 << 10 // bytes of the files of [Project] together
)

// Names are the files of a directory that have instructions, in the order in which the model gets
// them.
var Names = []string{"AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md", "GEMINI.md",
	".claude/CLAUDE.md"}

// RulesDir is the directory with instructions for files of certain names. The language server reads
// it.
const RulesDir = ".github/instructions"

// RulesDirs are the directories with such instructions that Copilot sessions get.
var RulesDirs = []string{RulesDir, ".claude/rules"}

// File is a file of instructions. Path is relative to the project and has slashes, or absolute for
// the user's own.
type File struct {
	Path string
	Text string
}

// LeftOut is a file that does not count, and why, for people.
type LeftOut struct {
	Path   string
	Reason string
}

// Project reads the files of a project that count in all of dir: the files of the project's
// directory and of the directories down to dir, the outer ones first. Both paths are absolute, and
// dir is in root. A file that is also in one of the directories of secrets, under another
// name, does not count.
func Project(root, dir string, secrets ...string) (files []File, left []LeftOut) {
	rel, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, []LeftOut{{dir, "is not in the project " + root}}
	}
	found := finder{secrets: secrets}
	found.readDirs(root, above(filepath.ToSlash(rel)))
	return found.limited()
}

// RuleFiles reads the Markdown files in a directory of root and below it, each with the front
// matter that says which files it is for. The same limits hold as for [Project].
func RuleFiles(root, dir string, secrets ...string) (files []File, left []LeftOut) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = r.Close() }()
	const maxEntries = 1000
	found, entries := finder{secrets: secrets}, 0
	_ = fs.WalkDir(r.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		switch entries++; {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			found.leaveOut(name, reason(err))
		case entries > maxEntries:
			found.leaveOut(name, fmt.Sprintf("with it there are more than %d files", maxEntries))
			return fs.SkipAll
		case !d.IsDir() && strings.HasSuffix(name, ".md"):
			found.readIn(r, name)
		}
		return nil
	})
	return found.limited()
}

// Below reads the files of the directories between dir and a path in it, without the files of dir
// itself. They count for that path and the paths beside it. The path is absolute; for a path
// outside dir it returns no files.
func Below(root, dir, target string) (files []File, left []LeftOut) {
	inner, err := filepath.Rel(dir, target)
	if err != nil || !filepath.IsLocal(inner) {
		return nil, nil
	}
	outer, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(outer) {
		return nil, nil
	}
	dirs := above(filepath.ToSlash(filepath.Join(outer, inner)))
	var found finder
	found.readDirs(root, dirs[len(above(filepath.ToSlash(outer))):])
	return found.files, found.left
}

// User reads the user's own file, which counts everywhere and may be a symbolic link to any place.
func User(file string) (files []File, left []LeftOut) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	var found finder
	found.add(file, f, err)
	return found.files, found.left
}

// Rules returns the files of [RulesDir] in a directory of the project, and why the language server
// must not read them: one leads out of the project, or they are too large.
func Rules(root, dir string) (names []string, why string) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, ""
	}
	defer func() { _ = r.Close() }()
	rel, err := filepath.Rel(root, filepath.Join(dir, RulesDir))
	if err != nil || !filepath.IsLocal(rel) {
		return nil, ""
	}
	var size int64
	err = fs.WalkDir(r.FS(), filepath.ToSlash(rel),
		func(name string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			var info fs.FileInfo
			if err == nil {
				info, err = r.Stat(filepath.FromSlash(name)) // refuses links out of the project
			}
			if err != nil {
				return fmt.Errorf("%s %s", name, reason(err))
			}
			if info.IsDir() {
				return nil
			}
			names = append(names, name)
			if size += info.Size(); size > maxAll || len(names) > 1000 {
				return fmt.Errorf("its files are larger than %d KiB, or more than 1000", maxAll>>10)
			}
			return nil
		})
	if err != nil {
		return nil, err.Error()
	}
	return names, ""
}

// Nested returns the files that lie below a directory of the project and that [Below] would read,
// by path from the project: the first few, of a tree of reasonable size. It passes over directories
// of packages.
func Nested(root, dir string) (names []string) {
	const maxNames, maxEntries = 20, 20_000
	rel, err := filepath.Rel(root, dir)
	r, openErr := os.OpenRoot(root)
	if openErr != nil {
		return nil
	}
	defer func() { _ = r.Close() }()
	if err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	rel = filepath.ToSlash(rel)
	entries := 0
	_ = fs.WalkDir(r.FS(), rel, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an unreadable directory has no such files
		}
		if entries++; entries > maxEntries || len(names) == maxNames {
			return fs.SkipAll
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "vendor"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		for _, n := range Names {
			if parent, ok := strings.CutSuffix(name, "/"+n); !ok || parent == rel {
				continue
			}
			// not of a link that leads out
			if info, err := r.Stat(name); err == nil && info.Mode().IsRegular() {
				names = append(names, name)
			}
		}
		return nil
	})
	return names
}

// above returns the directories from "." down to a relative one, and that too.
func above(dir string) (dirs []string) {
	for ; dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	dirs = append(dirs, ".")
	slices.Reverse(dirs)
	return dirs
}

// finder collects files of instructions.
type finder struct {
	secrets []string // directories with secrets
	files   []File
	left    []LeftOut
}

func (d *finder) leaveOut(name, why string) { d.left = append(d.left, LeftOut{name, why}) }

// limited returns the files without the files that exceed the limit of all files together.
func (d *finder) limited() (files []File, left []LeftOut) {
	size := 0
	for _, f := range d.files {
		if size+len(f.Text) > maxAll {
			d.leaveOut(f.Path,
				fmt.Sprintf("with it the instructions are larger than %d KiB: shorten them",
					maxAll>>10))
			continue
		}
		size += len(f.Text)
		files = append(files, f)
	}
	return files, d.left
}

// readDirs reads the files of several directories of a project.
func (d *finder) readDirs(root string, dirs []string) {
	r, err := os.OpenRoot(root)
	if err != nil {
		d.leaveOut(root, err.Error())
		return
	}
	defer func() { _ = r.Close() }()
	for _, dir := range dirs {
		for _, name := range Names {
			d.readIn(r, path.Join(dir, name))
		}
	}
}

// readIn reads a file of a project.
func (d *finder) readIn(r *os.Root, name string) {
	// Without O_NONBLOCK, opening a named pipe waits for a writer.
	f, err := r.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	d.add(name, f, err)
}

// add reads and closes an open file, unless opening it failed with err. The file counts or is left
// out.
func (d *finder) add(name string, f *os.File, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return
	}
	var text string
	if err == nil {
		text, err = read(f, d.secrets)
		_ = f.Close()
	}
	switch {
	case err != nil:
		d.leaveOut(name, reason(err))
	case text != "" && !slices.ContainsFunc(d.files, func(f File) bool { return f.Text == text }):
		d.files = append(d.files, File{name, text})
	}
}

// read reads a file's text without blanks around it.
func read(f *os.File, secrets []string) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("is not a file")
	}
	if protect.HoldsFile(info, secrets...) {
		return "", errors.New("is another name of a file with secrets")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxFile:
		return "", fmt.Errorf("is larger than %d KiB: shorten it", maxFile>>10)
	case !utf8.Valid(data):
		return "", errors.New("is not text in UTF-8")
	}
	return strings.TrimSpace(string(data)), nil
}

// reason returns the text of an error without the path, which is named beside it.
func reason(err error) string {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		if inner.Err.Error() == "path escapes from parent" { // the error has no name in package os
			return "is a symbolic link that leads out of the project"
		}
		return inner.Err.Error()
	}
	return err.Error()
}
