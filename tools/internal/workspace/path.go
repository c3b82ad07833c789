// Package workspace is the only way from a tool to a file. It keeps tools inside the
// workspace, asks the policy about everything else, and never leaves a file half
// written.
//
// It first resolves every symbolic link of a path and decides by the target. Then an
// os.Root at the workspace, or at the place that the policy allowed, does the work:
// a link that changes in between still cannot lead out.
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

// Files gives access to the files of a workspace, and to other files if Outside allows it. With
// Root alone it allows only unprotected files below Root. The functions may ask the user, and are
// called with the context of [Files.At].
type Files struct {
	Root string // absolute
	// Outside decides about a path outside Root, with its symbolic links resolved. A nil
	// error allows it. Without Outside, such paths are refused.
	Outside func(ctx context.Context, path string, write bool) error
	// Protected decides about a write to a file that makes programs run (see package
	// protect); why describes it. A nil error allows it. Without Protected, such writes
	// are refused.
	Protected func(ctx context.Context, path, why string) error
	// Sources are further directories to protect.
	Sources []string
	// Secrets are directories that are never read or written, whatever is allowed.
	Secrets []string
}

// Place is the target of a path: a file, a directory, or a name that is free. [Files.At] makes one
// and has checked that the path may be used. Its methods stay inside the directory that was
// checked. The caller must close it.
type Place struct {
	Path string // absolute, with its symbolic links
	Name string // for people: relative to the workspace if it lies there, else Path

	root *os.Root
	rel  string // path in root, with symbolic links resolved
}

// Close releases the directory that the place holds open. Only methods that return names may be
// called afterwards.
func (p *Place) Close() { _ = p.root.Close() }

// At finds the place of a path: an absolute one, one relative to the workspace, or a
// file:// URI. write announces that the caller will write there. The error tells the
// model why it may not use the path.
func (f Files) At(ctx context.Context, path string, write bool) (*Place, error) {
	abs, err := f.abs(path)
	if err != nil {
		return nil, err
	}
	resolved, err := protect.Resolve(abs)
	if err != nil {
		return nil, explain(path, err)
	}
	home, err := protect.Resolve(filepath.Clean(f.Root))
	if err != nil {
		return nil, fmt.Errorf("the workspace cannot be opened: %w", explain(f.Root, err))
	}
	for _, dir := range f.Secrets {
		if protect.Within(resolved, dir) {
			return nil,
				fmt.Errorf("%s lies where tapgw keeps tokens and conversations, which no tool uses",
					path)
		}
	}
	if write {
		if err := f.checkWrite(ctx, path, abs, resolved); err != nil {
			return nil, err
		}
	}
	p := &Place{Path: abs, Name: abs}
	base := home
	if rel, ok := relativeTo(home, resolved); ok {
		p.rel, p.Name = rel, rel
		if name, ok := relativeTo(filepath.Clean(f.Root), abs); ok {
			p.Name = name
		}
	} else {
		if f.Outside == nil {
			return nil, outsideError(path, abs, resolved,
				errors.New("only paths in it may be used here"))
		}
		if err := f.Outside(ctx, resolved, write); err != nil {
			return nil, outsideError(path, abs, resolved, err)
		}
		base = existingDir(resolved)
		p.rel, _ = relativeTo(base, resolved)
	}
	if p.root, err = os.OpenRoot(base); err != nil {
		if base == home {
			return nil, fmt.Errorf("the workspace cannot be opened: %w", explain(f.Root, err))
		}
		return nil, explain(path, err)
	}
	return p, nil
}

// checkWrite refuses a write to a protected place unless Protected allows it.
func (f Files) checkWrite(ctx context.Context, path, abs, resolved string) error {
	why := protect.Why(abs, f.Sources...)
	if why == "" {
		why = protect.Why(resolved, f.Sources...)
	}
	if why == "" {
		return nil
	}
	if f.Protected == nil {
		return fmt.Errorf(
			"%s is protected, %s; a person must allow such a write, and nobody can be asked here",
			path, why)
	}
	if err := f.Protected(ctx, resolved, why); err != nil {
		return fmt.Errorf("%s is protected, %s; %w", path, why, err)
	}
	return nil
}

func outsideError(path, abs, resolved string, why error) error {
	if abs != resolved {
		return fmt.Errorf("%s leads to %s, outside the workspace: %w", path, resolved, why)
	}
	return fmt.Errorf("%s is outside the workspace: %w", path, why)
}

// abs turns the path or URI that a tool got into a clean absolute path.
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
			return "",
				fmt.Errorf("%s is no file of this machine: give a path, or a file:///... URI", path)
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

// relativeTo returns path relative to dir; ok is false if path lies outside dir. Both
// are clean and absolute.
func relativeTo(dir, path string) (rel string, ok bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path,
		strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// existingDir returns the deepest directory of a path that exists.
func existingDir(path string) string {
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

// explain turns an error of the system into an [Error] with words for the model.
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

// Error is an error of the system in words for the model, which name the file. It wraps the
// original error, so that [errors.Is] finds fs.ErrNotExist, for example.
type Error struct {
	text string
	err  error
}

// Error implements error: a text for the model that names the file.
func (e *Error) Error() string { return e.text }

// Unwrap returns the system's error.
func (e *Error) Unwrap() error { return e.err }
