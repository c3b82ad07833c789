package workspace

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Stat describes what the place holds. An error wraps fs.ErrNotExist where that
// is nothing.
func (p *Place) Stat() (fs.FileInfo, error) {
	info, err := p.root.Stat(p.rel)
	return info, explain(p.Name, err)
}

// Real is the path without symbolic links, as they were when it was resolved.
func (p *Place) Real() string { return filepath.Join(p.root.Name(), p.rel) }

// FS is the directory that the place is, and nothing above it.
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

// Link reports whether the path itself is a symbolic link, which the place is not.
func (p *Place) Link() bool {
	info, err := os.Lstat(p.Path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// Open opens a regular file for reading. Others are refused: a pipe or a device
// could block for ever.
func (p *Place) Open() (*os.File, fs.FileInfo, error) {
	info, err := p.root.Stat(p.rel)
	if err != nil {
		return nil, nil, explain(p.Name, err)
	}
	if err := p.regular(info); err != nil {
		return nil, nil, err
	}
	// What it is may change in between: opening must not wait for a pipe's writer.
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, explain(p.Name, err)
	}
	if info, err = f.Stat(); err == nil {
		err = p.regular(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, explain(p.Name, err)
	}
	return f, info, nil
}

// regular refuses what is no regular file.
func (p *Place) regular(info fs.FileInfo) error {
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

// MaxText is the size of the largest file that is read whole.
const MaxText = 16 << 20

// Read returns all of a file, at most [MaxText] bytes.
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
		return nil, fmt.Errorf("%s is larger than %d MB, too large to be read whole", p.Name, MaxText>>20)
	}
	return data, nil
}

// ReadText is [Place.Read] for a text; a binary file is refused.
func (p *Place) ReadText() (string, error) {
	data, err := p.Read()
	if err != nil {
		return "", err
	}
	if Binary(data) {
		return "", p.binary(int64(len(data)))
	}
	return string(data), nil
}

// binary is the refusal of a file that is no text.
func (p *Place) binary(size int64) error {
	return fmt.Errorf("%s is a binary file of %d bytes: it has no text to work on", p.Name, size)
}

// probe is how much of a file tells whether it is binary, as in git.
const probe = 8000

// Binary reports whether data, or the beginning of it, is no text: it has a NUL.
func Binary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), probe)], 0) >= 0
}

// List returns the entries of a directory, sorted by name.
func (p *Place) List() ([]fs.DirEntry, error) {
	fsys, err := p.FS()
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(fsys, ".")
	return entries, explain(p.Name, err)
}
