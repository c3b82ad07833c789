// Package checkpoint keeps the content that files had before a conversation's tools changed them,
// so that a person can undo the edits of a turn and redo them. It does not use git.
//
// Each workspace has a directory with a journal, one JSON object a line, and the contents, named by
// their hashes. A line of the journal has the hashes of all files before and after an edit, and is
// written before the edit is made. So a file's content shows whether an edit was made: a crash at
// any point leaves nothing in doubt. Undo changes a file only if it has exactly the content that an
// edit wrote. Any other content was written since by a person or another program, and stays.
package checkpoint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tapgw/internal/proc"
)

// MaxFile is the size of the largest file that is kept, in bytes: 16 MiB.
const MaxFile = 16 << 20

// lockTimeout bounds the wait for another process that edits in the same workspace.
const lockTimeout = 10 * time.Second

// Workspace has the checkpoints of one workspace. Its methods may be called from several goroutines
// and processes at the same time.
type Workspace struct {
	root   string // with symbolic links resolved
	dir    string // of the journal
	limits limits

	mu     sync.Mutex // guards the field that follows
	pruned Place      // the turn at which too old checkpoints were removed last
}

// In returns the checkpoints of a workspace in a store, a directory that holds those of all
// workspaces. root is the workspace's path with its symbolic links resolved. Nothing is written
// before the first edit.
func In(store, root string) *Workspace {
	sum := sha256.Sum256([]byte(root))
	return &Workspace{root: filepath.Clean(root),
		dir: filepath.Join(store, hex.EncodeToString(sum[:16])), limits: defaultLimits}
}

// Place says to which turn of which conversation an edit belongs. Turns count from 1.
type Place struct {
	Conversation string
	Turn         int
}

// Change is one file's part of an edit to come. Was and Now are its content before and after; nil
// means that there is no file.
type Change struct {
	Path           string // absolute, with symbolic links resolved
	Was, Now       *string
	Mode           fs.FileMode // of the file before
	TooLarge       bool        // Was or Now is larger than [MaxFile]; Was may be nil then
	Dir            bool        // a directory is made; Was and Now are nil
	Added, Removed int         // lines, for lists
}

// Edit is an edit that is being made. Its [Edit.Done] must be called: until then no other process
// edits or undoes anything in the workspace.
type Edit struct {
	w    *Workspace
	id   string
	lock *proc.Lock
}

// Begin keeps the content of the files and notes the edit in the journal. The caller then makes the
// edit and calls [Edit.Done]. After an error nothing is noted, and the edit can't be undone if it
// is made. Files of unknown content are noted as such.
func (w *Workspace) Begin(ctx context.Context, at Place, changes []Change) (*Edit, error) {
	lock, err := w.lock(ctx)
	if err != nil {
		return nil, err
	}
	e := &Edit{w, rand.Text(), lock}
	if err := w.note(at, e.id, changes); err != nil {
		lock.Unlock()
		return nil, err
	}
	return e, nil
}

func (w *Workspace) note(at Place, id string, changes []Change) error {
	if err := w.prune(at); err != nil {
		return err
	}
	r := record{Type: typeEdit, ID: id, Conversation: at.Conversation, Turn: at.Turn,
		At: time.Now().UTC()}
	for _, c := range changes {
		r.Dirs = append(r.Dirs, missingDirs(c)...)
		if c.Dir {
			continue
		}
		f := file{
			Path:    c.Path,
			Mode:    c.Mode,
			Unknown: c.TooLarge,
			Now:     hashOf(c.Now),
			Added:   c.Added,
			Removed: c.Removed,
		}
		if c.Was != nil && !c.TooLarge {
			var err error
			if f.Was, err = w.put(*c.Was); err != nil {
				return fmt.Errorf("keeping what %s holds: %w", c.Path, err)
			}
		}
		r.Files = append(r.Files, f)
	}
	return w.append(r)
}

// missingDirs returns the directories that a change is about to make, the outermost first.
func missingDirs(c Change) (dirs []string) {
	dir := filepath.Dir(c.Path)
	if c.Dir {
		dir = c.Path
	} else if c.Now == nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return dirs
		}
		dirs = append([]string{dir}, dirs...)
	}
}

// Done says that the edit was made or, with an error, that it was not.
func (e *Edit) Done(err error) {
	defer e.lock.Unlock()
	if err != nil {
		// Without this line the edit looks like one that was undone by hand, which does no harm.
		_ = e.w.append(record{Type: typeVoid, ID: e.id})
	}
}

// lock waits until no other process edits or undoes in the workspace.
func (w *Workspace) lock(ctx context.Context) (*proc.Lock, error) {
	if err := proc.PrivateDir(w.dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	return proc.WaitLock(ctx, filepath.Join(w.dir, "lock"))
}

// name is a path as people read it: relative to the workspace if it lies there.
func (w *Workspace) name(path string) string {
	if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(w.root, "/")+"/"); ok {
		return rel
	}
	return path
}
