package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Change is the change of one file in a [Commit]: from the content Was, which is checked, to Now.
// The caller sets the exported fields but Created, and keeps At open until Commit has returned.
type Change struct {
	At  *Place
	Was *string // content that the change is based on; nil: the file did not exist
	Any bool    // the content before does not matter; Was is ignored
	Now *string // new content; nil: the file is deleted
	// Perm are the permissions of a new file, before the umask; 0: 0666.
	Perm fs.FileMode

	Created bool // set by Commit: the file did not exist

	old     fs.FileInfo // nil: the file does not exist
	staged  string      // path in At.root of a file with the content Now
	backup  string      // path in At.root of a copy of the old file
	parents []string    // directories that were created for it, the outermost first
	isDone  bool
}

// Write replaces the content of the file, and creates missing parents. Readers see
// the old or the new content, never a part. The file keeps its mode, and a symbolic
// link stays one. The content is not synced to the disk, as in every editor.
func (p *Place) Write(content string) (created bool, err error) {
	c := &Change{At: p, Any: true, Now: &content}
	err = Commit([]*Change{c})
	return c.Created, err
}

// ErrChanged means that another program wrote a file between the read and the [Commit], which then
// wrote no file. The model may read the file again and repeat its change.
var ErrChanged = errors.New("changed in the meantime")

// committing is held while a Commit compares the files and replaces them.
var committing sync.Mutex

// Commit makes all of the changes, or leaves all files as they are. The error wraps [ErrChanged] if
// a file no longer has the content that its change is based on. Two changes of one file are an
// error. If a write fails, Commit restores the files that it has already replaced.
func Commit(changes []*Change) (err error) {
	seen := make(map[string]bool)
	for _, c := range changes {
		resolved := c.At.Real()
		if seen[resolved] {
			return fmt.Errorf("%s is changed twice", c.At.Name)
		}
		seen[resolved] = true
	}
	defer func() { err = errors.Join(err, finish(changes, err != nil)) }()
	for _, c := range changes {
		if err := c.stage(len(changes) > 1); err != nil {
			return err
		}
	}
	committing.Lock()
	defer committing.Unlock()
	for _, c := range changes {
		if err := c.checkUnchanged(); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := c.apply(); err != nil {
			return err
		}
	}
	return nil
}

// finish removes temporary files, and undoes the changes if undo is set. The error
// names the files that it could not restore.
func finish(changes []*Change, undo bool) (err error) {
	for _, c := range slices.Backward(changes) {
		root := c.At.root
		if undo && c.isDone {
			if undoErr := c.undo(); undoErr != nil {
				err = errors.Join(err, undoErr)
				continue // the backup has the only copy of the old content
			}
		}
		for _, temp := range []string{c.staged, c.backup} {
			if temp != "" {
				_ = root.Remove(temp)
			}
		}
		if undo {
			for _, dir := range slices.Backward(c.parents) {
				_ = root.Remove(dir)
			}
		}
	}
	return err
}

func (c *Change) undo() error {
	var err error
	if c.old == nil {
		err = c.At.root.Remove(c.At.rel)
	} else {
		err = c.At.root.Rename(c.backup, c.At.rel)
	}
	if err != nil && c.backup != "" {
		return fmt.Errorf("%s could not be put back: what it held is in %s", c.At.Name,
			filepath.Join(c.At.root.Name(), c.backup))
	}
	return explain(c.At.Name, err)
}

// stage writes the new content to a temporary file beside the file. With backUp it also
// keeps a copy of the old one.
func (c *Change) stage(backUp bool) error {
	p := c.At
	info, err := p.root.Lstat(p.rel)
	switch {
	case err == nil:
		if err := p.checkRegular(info); err != nil {
			return err
		}
		if info.Mode()&0o200 == 0 {
			return fmt.Errorf("%s is read-only: it was not changed", p.Name)
		}
		c.old = info
	case !errors.Is(err, fs.ErrNotExist):
		return explain(p.Name, err)
	}
	c.Created = c.old == nil
	if backUp && c.old != nil {
		if err := c.backUp(); err != nil {
			return explain(p.Name, err)
		}
	}
	if c.Now == nil {
		return nil
	}
	if c.old == nil {
		if c.parents, err = p.mkdirAll(filepath.Dir(p.rel)); err != nil {
			return err
		}
	}
	perm := c.Perm
	if perm == 0 {
		perm = 0o666
	}
	temp := p.tempName()
	f, err := p.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return explain(p.Name, err)
	}
	c.staged = temp
	_, err = f.WriteString(*c.Now)
	if c.old != nil {
		if was, ok := c.old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(was.Uid), int(was.Gid)) // only root may and must do this
		}
		err = errors.Join(err, f.Chmod(c.old.Mode()))
	}
	return explain(p.Name, errors.Join(err, f.Close()))
}

// backUp links or copies the old file to a temporary name.
func (c *Change) backUp() error {
	p := c.At
	temp := p.tempName()
	if err := p.root.Link(p.rel, temp); err == nil {
		c.backup = temp
		return nil
	}
	// Some file systems have no links.
	data, err := p.root.ReadFile(p.rel)
	if err != nil {
		return err
	}
	c.backup = temp
	if err := p.root.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return p.root.Chmod(temp, c.old.Mode())
}

// checkUnchanged returns an error if the file is not the one that the change is based on.
func (c *Change) checkUnchanged() error {
	p := c.At
	if c.Any {
		return nil
	}
	if c.Was == nil {
		if _, err := p.root.Lstat(p.rel); err == nil {
			return fmt.Errorf("%s exists already", p.Name)
		}
		return nil
	}
	now, err := p.Read()
	if err != nil {
		return err
	}
	if string(now) != *c.Was {
		return fmt.Errorf("%s %w: read it again", p.Name, ErrChanged)
	}
	return nil
}

func (c *Change) apply() error {
	p := c.At
	var err error
	if c.Now == nil {
		err = p.root.Remove(p.rel)
	} else if err = p.root.Rename(c.staged, p.rel); err == nil {
		c.staged = ""
	}
	if err != nil {
		return explain(p.Name, err)
	}
	c.isDone = true
	return nil
}

// tempName returns an unused name beside the file.
func (p *Place) tempName() string {
	return filepath.Join(filepath.Dir(p.rel), ".tapgw-"+rand.Text())
}

// mkdirAll creates a directory in the root and its parents. It returns the directories that it
// created, the outermost first.
func (p *Place) mkdirAll(dir string) (made []string, err error) {
	at := "."
	for part := range strings.SplitSeq(dir, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		switch err := p.root.Mkdir(at, 0o777); {
		case err == nil:
			made = append(made, at)
		case !errors.Is(err, fs.ErrExist):
			return made, explain(p.Name, err)
		}
	}
	return made, nil
}

// Mkdir creates a directory at the place, and missing parents. It is an error if the place is a
// file; created is false if the directory existed before.
func (p *Place) Mkdir() (created bool, err error) {
	made, err := p.mkdirAll(p.rel)
	if err == nil {
		var info fs.FileInfo
		if info, err = p.Stat(); err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file, not a directory", p.Name)
		}
	}
	return len(made) > 0, err
}

// Remove deletes a regular file with any content. It returns an error for anything else, a missing
// file included.
func (p *Place) Remove() error {
	return Commit([]*Change{{At: p, Any: true}})
}
