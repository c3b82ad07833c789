// Package workspace is the only way from a tool to a file: it keeps tools inside
// the workspace, asks the policy about everything else, and writes so that nobody
// sees half a file.
//
// A path is first resolved by us, every symbolic link of it, and decided upon by
// where it leads; then an os.Root at the workspace (or at the place that the
// policy allowed) does the work, so that a link that changes in between still
// cannot lead out.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tapgw/internal/protect"
)

// Files are a workspace's files, and others as far as Outside allows.
type Files struct {
	Root string // absolute
	// Outside decides about a path outside Root, its symbolic links resolved; nil
	// error allows. Without it, such paths are refused.
	Outside func(ctx context.Context, path string, write bool) error
	// Protected decides about writing where files make programs run, see package
	// protect, as why says; nil error allows. Without it, such writes are refused.
	Protected func(ctx context.Context, path, why string) error
	// Sources are directories that are protected besides.
	Sources []string
	// Secrets are directories of which nothing is read or written, whatever is allowed.
	Secrets []string
}

// Place is where a path leads: a file, a directory, or nothing yet. It must be
// closed.
type Place struct {
	Path string // absolute, as it was asked for
	Name string // for answers: below the workspace relative to it, else Path

	root *os.Root
	rel  string // in root, without symbolic links when it was resolved
}

// Close lets go of the place.
func (p *Place) Close() { _ = p.root.Close() }

// At finds the place of a path: absolute, relative to the workspace, or a file://
// URI. write says that it is going to be written to.
func (f Files) At(ctx context.Context, path string, write bool) (*Place, error) {
	abs, err := f.abs(path)
	if err != nil {
		return nil, err
	}
	real, err := protect.Resolve(abs)
	if err != nil {
		return nil, explain(path, err)
	}
	home, err := protect.Resolve(filepath.Clean(f.Root))
	if err != nil {
		return nil, fmt.Errorf("the workspace cannot be opened: %w", explain(f.Root, err))
	}
	for _, dir := range f.Secrets {
		if protect.Within(real, dir) {
			return nil, fmt.Errorf("%s lies where the gateway keeps its tokens, which no tool uses", path)
		}
	}
	if write {
		if err := f.mayWrite(ctx, path, abs, real); err != nil {
			return nil, err
		}
	}
	p := &Place{Path: abs, Name: abs}
	base := home
	if rel, ok := below(home, real); ok {
		p.rel, p.Name = rel, rel
		if asked, ok := below(filepath.Clean(f.Root), abs); ok {
			p.Name = asked
		}
	} else {
		if f.Outside == nil {
			return nil, outside(path, abs, real, errors.New("only paths in it may be used here"))
		}
		if err := f.Outside(ctx, real, write); err != nil {
			return nil, outside(path, abs, real, err)
		}
		base = standing(real)
		p.rel, _ = below(base, real)
	}
	if p.root, err = os.OpenRoot(base); err != nil {
		if base == home {
			return nil, fmt.Errorf("the workspace cannot be opened: %w", explain(f.Root, err))
		}
		return nil, explain(path, err)
	}
	return p, nil
}

// mayWrite refuses a write to a protected place that nobody allows.
func (f Files) mayWrite(ctx context.Context, path, abs, real string) error {
	why := protect.Why(abs, f.Sources...)
	if why == "" {
		why = protect.Why(real, f.Sources...)
	}
	if why == "" {
		return nil
	}
	if f.Protected == nil {
		return fmt.Errorf("%s is protected, %s; a person must allow such a write, and nobody can be asked here", path,
			why)
	}
	if err := f.Protected(ctx, real, why); err != nil {
		return fmt.Errorf("%s is protected, %s; %w", path, why, err)
	}
	return nil
}

func outside(path, abs, real string, why error) error {
	if abs != real {
		return fmt.Errorf("%s leads to %s, outside the workspace: %w", path, real, why)
	}
	return fmt.Errorf("%s is outside the workspace: %w", path, why)
}

// abs reads a path as a tool is given it.
func (f Files) abs(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New(`the path is empty: "." is the workspace`)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%q is no path: it has a NUL in it", path)
	}
	if scheme, _, ok := strings.Cut(path, "://"); ok && !strings.ContainsAny(scheme, `/\.`) {
		u, err := url.Parse(path)
		if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" ||
			!strings.HasPrefix(u.Path, "/") {
			return "", fmt.Errorf("%s is no file of this machine: give a path, or a file:///... URI", path)
		}
		if strings.ContainsRune(u.Path, 0) {
			return "", fmt.Errorf("%q is no path: it has a NUL in it", path)
		}
		path = filepath.FromSlash(u.Path)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.Root, path)
	}
	return filepath.Clean(path), nil
}

// below returns path relative to dir if it is dir or lies below it. Both are
// clean.
func below(dir, path string) (rel string, ok bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// standing returns the nearest directory that exists on the way to a path.
func standing(path string) string {
	for {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		parent := filepath.Dir(path)
		if parent == path {
			return path
		}
		path = parent
	}
}

// explain words an error of the system for the model.
func explain(name string, err error) error {
	var cause syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &Error{fmt.Sprintf("%s does not exist", name), err}
	case errors.Is(err, fs.ErrPermission):
		return &Error{fmt.Sprintf("%s: permission denied", name), err}
	case errors.Is(err, fs.ErrExist):
		return &Error{fmt.Sprintf("%s exists already", name), err}
	case errors.Is(err, syscall.ENOTDIR):
		return &Error{fmt.Sprintf("%s: a part of this path is a file, not a directory", name), err}
	case errors.As(err, &cause):
		return &Error{fmt.Sprintf("%s: %v", name, cause), err}
	}
	if in, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{fmt.Sprintf("%s: %v", name, in.Err), err}
	}
	return &Error{fmt.Sprintf("%s: %v", name, err), err}
}

// Error is the system's error in words for the model; it wraps the original.
type Error struct {
	text string
	err  error
}

func (e *Error) Error() string { return e.text }

// Unwrap returns the system's error.
func (e *Error) Unwrap() error { return e.err }
