package checkpoint

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
)

// place is where a file of the journal lies. No part of the path may be a symbolic link by now: the
// journal has paths without links, so a link has come since and leads elsewhere.
type place struct {
	root *os.Root
	rel  string
}

// open opens the place of a path. Files of the workspace are reached through its root, which no
// link leaves.
func (w *Workspace) open(path string) (*place, error) {
	base := w.root
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(base, "/")+"/")
	if !ok {
		base, rel = "/", strings.TrimPrefix(path, "/")
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	return &place{root, rel}, nil
}

func (p *place) close() { _ = p.root.Close() }

// state is the present content of a place. Hash is "" if there is no file.
type state struct {
	hash    string
	content *string
	info    fs.FileInfo
}

// read returns the content of the place. The error says for people why it can't be changed.
func (p *place) read() (state, error) {
	if err := p.checkParents(); err != nil {
		return state{}, err
	}
	info, err := p.root.Lstat(p.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state{}, nil
	case err != nil:
		return state{}, err
	case !info.Mode().IsRegular():
		return state{}, errors.New("it is no regular file any more")
	case info.Size() > MaxFile:
		return state{}, errChanged
	}
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file any more")
	}
	if err != nil {
		return state{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return state{}, err
	}
	content := string(data)
	return state{hashOf(&content), &content, info}, nil
}

// errChanged means that a file holds something that no edit has written.
var errChanged = errors.New("it was changed since")

// checkParents refuses a path that leads through a symbolic link.
func (p *place) checkParents() error {
	for i, c := range p.rel {
		if c != filepath.Separator {
			continue
		}
		info, err := p.root.Lstat(p.rel[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // nor does the rest
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link now", p.rel[:i])
		case !info.IsDir():
			return fmt.Errorf("%s is no directory any more", p.rel[:i])
		}
	}
	return nil
}

// replace brings the place from a state that [place.read] returned to a content; nil deletes the
// file. The file gets the mode. If it changes in between, it stays and the error is errChanged.
func (p *place) replace(was state, content *string, mode fs.FileMode) error {
	if was.info != nil && was.info.Mode()&0o200 == 0 {
		return errors.New("it is read-only")
	}
	temp := ""
	if content != nil {
		var err error
		if temp, err = p.stage(was, *content, mode); err != nil {
			return err
		}
	}
	now, err := p.read() // again, as late as possible
	switch {
	case err == nil && now.hash != was.hash:
		err = errChanged
	case err == nil && temp != "":
		err = p.root.Rename(temp, p.rel)
	case err == nil:
		err = p.root.Remove(p.rel)
	}
	if err != nil && temp != "" {
		_ = p.root.Remove(temp)
	}
	return err
}

// stage writes a content to a temporary file beside the file.
func (p *place) stage(was state, content string, mode fs.FileMode) (temp string, err error) {
	if err := p.root.MkdirAll(filepath.Dir(p.rel), 0o777); err != nil {
		return "", err
	}
	temp = filepath.Join(filepath.Dir(p.rel), ".tapgw-"+rand.Text())
	f, err := p.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(content)
	if was.info != nil {
		if owner, ok := was.info.Sys().(*syscall.Stat_t); ok {
			// only root can do this, and only root needs it
			_ = f.Chown(int(owner.Uid), int(owner.Gid))
		}
	}
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		_ = p.root.Remove(temp)
		return "", err
	}
	return temp, nil
}
