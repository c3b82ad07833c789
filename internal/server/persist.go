package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// maxFile is the largest file, in bytes, that is taken as a result.
const maxFile = 64 << 20

// Persist keeps the providers' directories, one for each name below Dir.
type Persist struct{ Dir string }

// Make makes a provider's directory, for its user alone, and names it.
func (p Persist) Make(provider string) (string, error) {
	dir := filepath.Join(p.Dir, provider)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the provider's directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return "", fmt.Errorf("making the provider's directory private: %w", err)
	}
	return dir + string(filepath.Separator), nil
}

// Read reads a result that a provider left in its directory. Symbolic links may
// lead about inside it, but not out.
func (p Persist) Read(provider string, ref protocol.FileRef) (*gateway.File, error) {
	dir := filepath.Join(p.Dir, provider)
	name, err := within(dir, ref.Path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the provider's directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	// A root follows no absolute link, also none that leads to another place in it.
	base := filepath.Base(name)
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
		if rel, err := within(dir, real); err == nil {
			name = rel
		}
	}
	// Opening a fifo would wait for its writer, also one that took the file's
	// place a moment ago: the call's timeout is over with its result.
	if info, err := root.Stat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", ref.Path)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", ref.Path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is over 64 MiB", ref.Path)
	}
	typ := cmp.Or(ref.MimeType, mime.TypeByExtension(filepath.Ext(base)), http.DetectContentType(content))
	return &gateway.File{Name: base, MimeType: typ, Content: content}, nil
}

// within is the path of a file relative to the directory, which may itself be
// named through symbolic links or without them.
func within(dir, file string) (string, error) {
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("%q must be an absolute path", file)
	}
	dirs := []string{dir}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dirs = append(dirs, real)
	}
	for _, d := range dirs {
		if rel, err := filepath.Rel(d, filepath.Clean(file)); err == nil && filepath.IsLocal(rel) && rel != "." {
			return rel, nil
		}
	}
	return "", errors.New("the path is not inside the provider's persistDir")
}
