package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Stat describes the file or directory at the place, symbolic links followed. The error wraps
// fs.ErrNotExist if there is neither.
func (p *Place) Stat() (fs.FileInfo, error) {
	info, err := p.root.Stat(p.rel)
	return info, explain(p.Name, err)
}

// Real returns the absolute path with its symbolic links resolved, as they were in [Files.At]. Two
// places with the same Real are the same file.
func (p *Place) Real() string { return filepath.Join(p.root.Name(), p.rel) }

// FS returns the directory at the place as a file system, which can't be left by symbolic links. It
// is an error if the place is no directory. It works until the place is closed.
func (p *Place) FS() (fs.FS, error) {
	if info, err := p.Stat(); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file, not a directory", p.Name)
	}
	if p.rel == "." {
		return p.root.FS(), nil
	}
	sub, err := fs.Sub(p.root.FS(), p.rel)
	return sub, explain(p.Name, err)
}

// Link reports whether the path itself is a symbolic link. The place is its target.
func (p *Place) Link() bool {
	info, err := os.Lstat(p.Path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// Open opens a regular file for reading and describes it; the caller closes it. It refuses
// directories, and pipes, sockets and devices, which could block for ever.
func (p *Place) Open() (*os.File, fs.FileInfo, error) {
	info, err := p.root.Stat(p.rel)
	if err != nil {
		return nil, nil, explain(p.Name, err)
	}
	if err := p.checkRegular(info); err != nil {
		return nil, nil, err
	}
	// The file may have become a pipe in between: opening must not wait for its writer.
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, explain(p.Name, err)
	}
	if info, err = f.Stat(); err == nil {
		err = p.checkRegular(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, explain(p.Name, err)
	}
	return f, info, nil
}

// checkRegular returns an error unless info describes a regular file.
func (p *Place) checkRegular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("%s is a directory, not a file", p.Name)
	case mode&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%s is a named pipe, not a file", p.Name)
	case mode&fs.ModeSocket != 0:
		return fmt.Errorf("%s is a socket, not a file", p.Name)
	default:
		return fmt.Errorf("%s is a device, not a file", p.Name)
	}
}

// MaxText is the size of the largest file that [Place.Read] and [Place.ReadText] read, in bytes: 16
// MiB.
const MaxText = 16 << 20

// ErrTooLarge means that a file is larger than [MaxText].
var ErrTooLarge = errors.New("too large to be read whole")

// Read returns the content of a regular file. The error wraps [ErrTooLarge] if that is longer than
// [MaxText] bytes, and fs.ErrNotExist if there is no file.
func (p *Place) Read() ([]byte, error) {
	f, _, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxText+1))
	if err != nil {
		return nil, explain(p.Name, err)
	}
	if len(data) > MaxText {
		return nil, fmt.Errorf("%s is larger than %d MB, %w", p.Name, MaxText>>20, ErrTooLarge)
	}
	return data, nil
}

// ReadText is [Place.Read] for a text: it returns an error for a binary file (see [Binary]). The
// text may still have bytes that are not UTF-8.
func (p *Place) ReadText() (string, error) {
	data, err := p.Read()
	if err != nil {
		return "", err
	}
	if Binary(data) {
		return "", p.binaryError(int64(len(data)))
	}
	return string(data), nil
}

// binaryError is the error about a binary file where a text is needed.
func (p *Place) binaryError(size int64) error {
	return fmt.Errorf("%s is a binary file of %d bytes: it has no text to work on", p.Name, size)
}

// probeSize is how many bytes of a file decide whether it is binary, as in git.
const probeSize = 8000

// Binary reports whether data is binary: its first 8000 bytes have a NUL, as git decides it. Empty
// data is text.
func Binary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), probeSize)], 0) >= 0
}

// List returns the entries of a directory, sorted by name, hidden ones too. It is an error if the
// place is no directory.
func (p *Place) List() ([]fs.DirEntry, error) {
	fsys, err := p.FS()
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(fsys, ".")
	return entries, explain(p.Name, err)
}
