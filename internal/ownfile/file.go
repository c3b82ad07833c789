package ownfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tapgw/internal/diff"
)

// maxFile is the size in bytes up to which a file may be one that tapgw wrote.
const maxFile = 1 << 20

// States of a file.
const (
	Absent    = "absent"
	Installed = "installed"
	Outdated  = "outdated" // as another version of tapgw wrote it
	Changed   = "changed"  // a person has changed or written it
)

// File is a file that tapgw writes. Symbolic links below Root that lead out of it are not followed.
type File struct {
	Path     string // absolute, below Root
	Root     string // the directory of the other program, or of a project
	KeepRoot bool   // Root stays when it is empty, even if the form counts no directories
	Text     string // without a mark
	Form     Form
	Private  bool // only its owner may read it
}

// Found is a file and its state.
type Found struct {
	File  File
	State string

	was  string // the file's text; "" if it is absent
	made int    // directories that were made for it
}

// Look returns the state of the file without writing it. An error names the path that can't be
// read.
func (f File) Look() (Found, error) {
	root, err := os.OpenRoot(f.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return Found{File: f, State: Absent}, nil
	}
	if err != nil {
		return Found{}, f.explain("reading", err)
	}
	defer func() { _ = root.Close() }()
	found, err := f.read(root)
	if err != nil {
		return Found{}, f.explain("reading", err)
	}
	return found, nil
}

// Text returns the text of a file that tapgw wrote, without its mark, and "" for any other file.
func (s Found) Text() string {
	plain, _, ours := s.File.Form.read(s.was)
	if !ours {
		return ""
	}
	return plain
}

// rel is the path of the file from its root on.
func (f File) rel() string {
	rel, err := filepath.Rel(f.Root, f.Path)
	if err != nil {
		return f.Path // os.Root refuses it
	}
	return rel
}

// explain adds to an error the attempted action, and the path above the file that is not a
// directory, or is a link that is not followed.
func (f File) explain(doing string, err error) error {
	for dir := filepath.Dir(f.Path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, statErr := os.Lstat(dir); statErr != nil {
			continue
		} else if info.Mode()&fs.ModeSymlink != 0 && len(dir) > len(f.Root) &&
			!errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf(
				"%s %s: %s is a symbolic link that leads out of %s, and is not followed: "+
					"replace it by a directory", doing, f.Path, dir, f.Root)
		}
		if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() {
			return fmt.Errorf("%s %s: %s is no directory: move it away, and run the command again",
				doing, f.Path, dir)
		}
	}
	return fmt.Errorf("%s %s: %w", doing, f.Path, err)
}

// read finds out the state of the file.
func (f File) read(root *os.Root) (Found, error) {
	s := Found{File: f, State: Absent}
	info, err := root.Lstat(f.rel())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		s.State = Changed
		return s, nil
	}
	file, err := root.OpenFile(f.rel(), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return s, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return s, err
	}
	s.was = string(data)
	plain, made, ours := f.Form.read(s.was)
	switch s.made = made; {
	case !ours:
		s.State = Changed
	case plain == f.Text:
		s.State = Installed
	default:
		s.State = Outdated
	}
	return s, nil
}

// Write installs a file that is absent or outdated, all of it at once. It leaves other files alone.
func (s Found) Write() error {
	if s.State != Absent && s.State != Outdated {
		return nil
	}
	f := s.File
	text := s.marked()
	if err := os.MkdirAll(f.Root, 0o700); err != nil {
		return f.explain("writing", err)
	}
	err := s.inRoot(Installed, func(root *os.Root) error {
		if err := root.MkdirAll(filepath.Dir(f.rel()), 0o755); err != nil {
			return err
		}
		perm := fs.FileMode(0o644)
		if f.Private {
			perm = 0o600
		}
		return replace(root, f.rel(), text, perm)
	})
	if err != nil {
		return f.explain("writing", err)
	}
	return nil
}

// marked returns the text that Write writes. Its mark counts the directories that are missing now.
func (s Found) marked() string {
	made := s.made
	for dir := filepath.Dir(s.File.Path); len(dir) >= len(s.File.Root); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made++
	}
	return s.File.Form.put(s.File.Text, digest(s.File.Text), min(made, maxDirectories))
}

// Remove removes a file that tapgw has installed, and the directories that were made for it and
// become empty.
func (s Found) Remove() error {
	if s.State != Installed && s.State != Outdated {
		return nil
	}
	f := s.File
	err := s.inRoot(Absent, func(root *os.Root) error {
		if err := root.Remove(f.rel()); err != nil {
			return err
		}
		made := s.made
		for dir := filepath.Dir(f.rel()); dir != "."; dir = filepath.Dir(dir) {
			if made--; made < 0 {
				return nil
			}
			if info, err := root.Lstat(dir); err != nil || !info.IsDir() ||
				root.Remove(dir) != nil {
				return nil // the directory is a link, or is not empty
			}
		}
		if made > 0 && (f.Form.counts || !f.KeepRoot) {
			_ = os.Remove(f.Root)
		}
		return nil
	})
	if err != nil {
		return f.explain("removing", err)
	}
	return nil
}

// RemoveEmpty removes an empty directory, and the directories above it that become empty, if they
// are below another one. It ends at a symbolic link.
func RemoveEmpty(dir, below string) {
	for ; ; dir = filepath.Dir(dir) {
		rel, err := filepath.Rel(below, dir)
		if err != nil || rel == "." || !filepath.IsLocal(rel) {
			return
		}
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || os.Remove(dir) != nil {
			return
		}
	}
}

// inRoot opens the root and makes sure that the file is still as it was found. If another process
// has already given the file the wanted content, it does nothing.
func (s Found) inRoot(wanted string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(s.File.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	now, err := s.File.read(root)
	switch {
	case err != nil:
		return err
	case now.State == wanted:
		return nil
	case now.State != s.State || now.was != s.was:
		return errors.New("it was changed meanwhile: run the command again")
	}
	return do(root)
}

// replace writes a file in one step.
func replace(root *os.Root, rel, text string, perm fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(rel), "."+filepath.Base(rel)+"."+rand.Text())
	err := write(root, temp, text, perm)
	if err == nil {
		err = root.Rename(temp, rel)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// write writes a new file, and waits until the disk has it.
func write(root *os.Root, rel, text string, perm fs.FileMode) error {
	file, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// WriteDiff returns the change that Write makes to the file, for people.
func (s Found) WriteDiff() diff.Diff { return s.diff(new(s.marked())) }

// RemoveDiff returns the change that Remove makes to the file, for people.
func (s Found) RemoveDiff() diff.Diff { return s.diff(nil) }

func (s Found) diff(now *string) diff.Diff {
	was := &s.was
	if s.State == Absent {
		was = nil
	}
	return diff.New(strings.TrimPrefix(s.File.Path, "/"), was, now)
}
