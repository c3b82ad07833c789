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

// Change is one file of a [Commit].
type Change struct {
	At  *Place
	Was *string // the text that the change was made for; nil: there was no file
	Any bool    // whatever the file holds now, or nothing; Was is not looked at
	Now *string // what it is to hold; nil: it is to be gone
	// Perm are the permissions of a file that is new, before the umask; 0: 0666.
	Perm fs.FileMode

	Created bool // set by Commit: there was no file

	old     fs.FileInfo // nil: there is no file
	staged  string      // in At.root: holds Now
	backup  string      // in At.root: the old file
	parents []string    // directories that were made for it, the outermost first
	done    bool
}

// Write makes the file hold content, whatever it held before, and its parents
// where they are missing. It is never seen half written and keeps its mode; a
// symbolic link stays one. It is not synced to the disk, as in every editor.
func (p *Place) Write(content string) (created bool, err error) {
	c := &Change{At: p, Any: true, Now: &content}
	err = Commit([]*Change{c})
	return c.Created, err
}

// ErrChanged is the error of a [Commit] that came too late.
var ErrChanged = errors.New("changed in the meantime")

// committing lets one Commit at a time look at the files and replace them.
var committing sync.Mutex

// Commit makes all of the changes, or none: it fails where a file no longer holds
// what its change was made for, and puts back what it wrote when a later write
// fails.
func Commit(changes []*Change) (err error) {
	seen := make(map[string]bool)
	for _, c := range changes {
		real := c.At.Real()
		if seen[real] {
			return fmt.Errorf("%s is changed twice", c.At.Name)
		}
		seen[real] = true
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
		if err := c.unchanged(); err != nil {
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

// finish takes back what was done if it is to be undone, and clears away. Its
// error says what could not be put back.
func finish(changes []*Change, undo bool) (err error) {
	for _, c := range slices.Backward(changes) {
		root := c.At.root
		if undo && c.done {
			if back := c.undo(); back != nil {
				err = errors.Join(err, back)
				continue // the backup holds what is lost else
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

// stage writes the new content beside the file, and keeps the old.
func (c *Change) stage(keep bool) error {
	p := c.At
	info, err := p.root.Lstat(p.rel)
	switch {
	case err == nil:
		if err := p.regular(info); err != nil {
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
	if keep && c.old != nil {
		if err := c.keep(); err != nil {
			return explain(p.Name, err)
		}
	}
	if c.Now == nil {
		return nil
	}
	if c.old == nil {
		if c.parents, err = p.makeParents(); err != nil {
			return err
		}
	}
	perm := c.Perm
	if perm == 0 {
		perm = 0o666
	}
	temp := p.temp()
	f, err := p.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return explain(p.Name, err)
	}
	c.staged = temp
	_, err = f.WriteString(*c.Now)
	if c.old != nil {
		if was, ok := c.old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(was.Uid), int(was.Gid)) // only root may, and only root needs it
		}
		err = errors.Join(err, f.Chmod(c.old.Mode()))
	}
	return explain(p.Name, errors.Join(err, f.Close()))
}

// keep holds on to the old file under another name.
func (c *Change) keep() error {
	p := c.At
	temp := p.temp()
	if err := p.root.Link(p.rel, temp); err == nil {
		c.backup = temp
		return nil
	}
	// Not every file system has links.
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

// unchanged reports where the file no longer is what the change was made for.
func (c *Change) unchanged() error {
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
	c.done = true
	return nil
}

// temp is a name beside the file that nobody has.
func (p *Place) temp() string {
	return filepath.Join(filepath.Dir(p.rel), ".tapgw-"+rand.Text())
}

// makeParents makes the directories that lead to the place and returns those that
// were missing, the outermost first.
func (p *Place) makeParents() (made []string, err error) {
	return p.makeAll(filepath.Dir(p.rel))
}

func (p *Place) makeAll(dir string) (made []string, err error) {
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

// Mkdir makes the place a directory, and its parents where they are missing.
func (p *Place) Mkdir() (created bool, err error) {
	made, err := p.makeAll(p.rel)
	if err == nil {
		var info fs.FileInfo
		if info, err = p.Stat(); err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file, not a directory", p.Name)
		}
	}
	return len(made) > 0, err
}

// Remove removes a regular file.
func (p *Place) Remove() error {
	return Commit([]*Change{{At: p, Any: true}})
}
