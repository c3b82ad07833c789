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

// Files that providers keep, and that results of calls may name.

// Persist makes and reads the providers' directories (persistDir): one for each provider name,
// below Dir, which instances of the name share and no session's end removes (docs/protocol.md,
// "`hello.ack`").
type Persist struct{ Dir string }

// Make makes the directory of a provider if it is missing, with mode 0700 in any case, and returns
// its path with a separator at the end. provider is a normal name, which can't leave Dir.
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

// Read reads the file that is the result of a call (docs/protocol.md, "File"), of at most 64 MiB.
// It must be a regular file inside the provider's directory; symbolic links may not lead out. The
// type is the reference's, or else by the file's extension or content.
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
	// A root refuses all absolute links, so one that stays inside is resolved here.
	base := filepath.Base(name)
	if target, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
		if rel, err := within(dir, target); err == nil {
			name = rel
		}
	}
	// Opening a fifo would wait for its writer, and no timeout of the call would end that. The
	// file may become one after this check, so it is opened without blocking and checked again.
	if err := checkRegular(ref.Path, func() (os.FileInfo, error) {
		return root.Stat(name)
	}); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := checkRegular(ref.Path, f.Stat); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, protocol.MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > protocol.MaxFile {
		return nil, fmt.Errorf("%s is over 64 MiB", ref.Path)
	}
	mimeType := cmp.Or(ref.MimeType, mime.TypeByExtension(filepath.Ext(base)),
		http.DetectContentType(content))
	return &gateway.File{Name: base, MimeType: mimeType, Content: content}, nil
}

// checkRegular returns an error unless stat finds a regular file.
func checkRegular(path string, stat func() (os.FileInfo, error)) error {
	info, err := stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return err
}

// within returns the path of a file relative to dir. The file's path may go through the symbolic
// links of dir or not.
func within(dir, file string) (string, error) {
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("%q must be an absolute path", file)
	}
	dirs := []string{dir}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dirs = append(dirs, target)
	}
	for _, d := range dirs {
		if rel, err := filepath.Rel(d, filepath.Clean(file)); err == nil && filepath.IsLocal(rel) &&
			rel != "." {
			return rel, nil
		}
	}
	return "", errors.New("the path is not inside the provider's persistDir")
}
