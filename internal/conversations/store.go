package conversations

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/internal/proc"
)

// Store is a directory of conversations. The directory need not exist. Methods of several processes
// may run at the same time.
type Store struct{ dir string }

// In returns the store in a directory, which the first conversation makes, for its owner alone.
func In(dir string) Store { return Store{dir} }

const (
	suffix     = ".jsonl"
	lockSuffix = ".lock"
)

func (s Store) path(id string) string { return filepath.Join(s.dir, id+suffix) }

// UnknownError is the error for an id, or the beginning of one, that no conversation has.
type UnknownError struct{ ID string }

// Error implements error.
func (e *UnknownError) Error() string { return fmt.Sprintf("there is no conversation %q", e.ID) }

// AmbiguousError is the error for the beginning of several ids. IDs has them, in order.
type AmbiguousError struct {
	Beginning string
	IDs       []string
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the beginning of %s", e.Beginning, strings.Join(e.IDs, ", "))
}

// BusyError is the error for a conversation that another process writes. PID is its process id; 0:
// unknown.
type BusyError struct {
	ID  string
	PID int
}

// Error implements error.
func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process has conversation %s open", e.ID)
	}
	return fmt.Sprintf("process %d has conversation %s open", e.PID, e.ID)
}

// file is a conversation's file in the directory.
type file struct {
	id   string
	used time.Time
}

// files returns the conversations' files, the last used first.
func (s Store) files() ([]file, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the conversations: %w", err)
	}
	var list []file
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || id == "" {
			continue
		}
		if info, err := e.Info(); err == nil {
			list = append(list, file{id, info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b file) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(a.id, b.id))
	})
	return list, nil
}

// Find returns the id of the conversation that a word means, as [Match] does.
func (s Store) Find(word string) (string, error) {
	files, err := s.files()
	if err != nil {
		return "", err
	}
	var ids []string
	for _, f := range files {
		ids = append(ids, f.id)
	}
	return Match(word, ids)
}

// Match returns the id that a word means: the id itself, or the only one that begins with it, in
// any case of letters. The error is an [UnknownError] or an [AmbiguousError].
func Match(word string, ids []string) (string, error) {
	var found []string
	for _, id := range ids {
		switch {
		case id == word:
			return id, nil
		case len(id) >= len(word) && strings.EqualFold(id[:len(word)], word):
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 0 || word == "":
		return "", &UnknownError{word}
	case len(found) > 1:
		slices.Sort(found)
		return "", &AmbiguousError{word, found}
	}
	return found[0], nil
}

// Latest returns the id of the conversation of a workspace that was used last, or "" if the
// workspace has no conversation. It skips files that can't be read.
func (s Store) Latest(workspace string) (string, error) {
	files, err := s.files()
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if i, err := skim(s.path(f.id), true); err == nil && i.Workspace == workspace {
			return f.id, nil
		}
	}
	return "", nil
}

// List describes the conversations, the last used first. faults has a [FileError] for each file
// that can't be read.
func (s Store) List() (list []Info, faults []error, err error) {
	files, err := s.files()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		i, err := skim(s.path(f.id), false)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			faults = append(faults, err)
		default:
			i.ID = f.id
			list = append(list, i)
		}
	}
	return list, faults, nil
}

// Read reads a conversation by its whole id, also while another process writes it. The error is an
// [UnknownError] or a [FileError].
func (s Store) Read(id string) (Conversation, error) {
	c, _, err := s.read(id)
	return c, err
}

func (s Store) read(id string) (c Conversation, good int64, err error) {
	f, err := openFile(s.path(id), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return c, 0, &UnknownError{id}
	}
	if err != nil {
		return c, 0, fmt.Errorf("opening a conversation: %w", err)
	}
	defer func() { _ = f.Close() }()
	c, good, err = read(f, f.Name())
	c.ID = id
	return c, good, err
}

// lock reserves a conversation for this process, else the error is a [BusyError].
func (s Store) lock(id string) (*proc.Lock, error) {
	path := filepath.Join(s.dir, id+lockSuffix)
	lock, err := proc.TryLock(path)
	if lock == nil && err == nil {
		err = &BusyError{id, proc.LockHolder(path)}
	}
	return lock, err
}

// Delete removes a conversation by its whole id. The error is an [UnknownError], or a [BusyError]
// while a process writes it.
func (s Store) Delete(id string) error {
	if _, err := os.Lstat(s.path(id)); err != nil {
		return &UnknownError{id}
	}
	lock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting a conversation: %w", err)
	}
	_ = os.Remove(filepath.Join(s.dir, id+lockSuffix))
	return nil
}

// Retention limits the stored conversations: to the last Days days, and to the newest Count. 0
// means no limit.
type Retention struct{ Days, Count int }

// Prune deletes the conversations that are too many or too old, except conversations that a process
// writes.
func (s Store) Prune(r Retention) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	oldest := time.Now().AddDate(0, 0, -r.Days)
	for n, f := range files {
		if r.Count > 0 && n >= r.Count || r.Days > 0 && f.used.Before(oldest) {
			if err := s.Delete(f.id); err != nil && !isGone(err) {
				return err
			}
		}
	}
	return nil
}

// isGone reports whether an error of Delete means that Prune need not delete the conversation any
// more.
func isGone(err error) bool {
	_, busy := errors.AsType[*BusyError](err)
	_, unknown := errors.AsType[*UnknownError](err)
	return busy || unknown
}

// Lines returns the whole lines of a conversation's file, as they are, by its whole id. The error
// is an [UnknownError] or a [FileError].
func (s Store) Lines(id string) ([]byte, error) {
	_, good, err := s.read(id)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(s.path(id))
	if err != nil {
		return nil, fmt.Errorf("reading a conversation: %w", err)
	}
	return data[:min(good, int64(len(data)))], nil
}
