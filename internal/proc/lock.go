package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often WaitLock tries to get a lock.
const lockRetry = 10 * time.Millisecond

// Lock is a lock on a file that this process has. The system releases it when the process ends, in
// whatever way. The file names the last owner: its process id, when it began, and where that id
// counts (see [FindHolder]). It does not say whether the lock is taken.
type Lock struct{ file *flock.Flock }

// TryLock takes a lock and does not wait. It creates the file with mode 0600 if it is missing. If
// another process has the lock, both results are nil. The error names the file.
func TryLock(path string) (*Lock, error) {
	f := newFlock(path)
	ok, err := f.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if !ok {
		return nil, nil
	}
	return newLock(f)
}

// WaitLock takes a lock as soon as it is free; it tries every 10 ms. When ctx ends before that, it
// returns an error that wraps the context's. It creates the file if it is missing.
func WaitLock(ctx context.Context, path string) (*Lock, error) {
	f := newFlock(path)
	if _, err := f.TryLockContext(ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return newLock(f)
}

// Locked reports whether a process, this one or another, has the lock on a file. It creates the
// file if it is missing, and takes a shared lock for a moment. The answer may be outdated at once.
func Locked(path string) (bool, error) {
	f := newFlock(path)
	ok, err := f.TryRLock()
	if err != nil {
		return false, fmt.Errorf("trying %s: %w", path, err)
	}
	_ = f.Close()
	return !ok, nil
}

// LockHolder returns the process id in a lock's file, of the process that took the lock last, or 0
// if the file has no id. That process may have ended; [Locked] says whether the lock is taken.
func LockHolder(path string) int { return readHolder(path).PID }

// holder is the content of a lock's file.
type holder struct {
	ID

	place string
}

func readHolder(path string) (h holder) {
	data, err := os.ReadFile(path)
	if err != nil {
		return holder{}
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	if h.PID, err = strconv.Atoi(first); err != nil {
		return holder{}
	}
	start, place, _ := strings.Cut(rest, " ")
	h.Start, _ = strconv.ParseUint(start, 10, 64) // 0: unknown
	h.place = place
	return h
}

// ErrElsewhere says that a process can't be identified from here: its number belongs to another PID
// namespace or machine, or by now to another process.
var ErrElsewhere = errors.New("it is not known to be a process that can be seen from here")

// FindHolder returns the process that took a lock last. The error is [ErrElsewhere] unless that
// process can be seen from here, with the start that the lock's file has: a number alone may be any
// process's.
func FindHolder(path string) (*os.Process, error) {
	h := readHolder(path)
	if h.PID <= 0 || h.Start == 0 || h.place != place() {
		return nil, ErrElsewhere
	}
	process, err := os.FindProcess(h.PID)
	if err != nil {
		return nil, ErrElsewhere
	}
	if !h.Alive() { // looked at with the handle open, so that the number can't change hands
		_ = process.Release()
		return nil, ErrElsewhere
	}
	return process, nil
}

func newLock(f *flock.Flock) (*Lock, error) {
	id, _ := IDOf(os.Getpid())
	text := fmt.Sprintf("%d %d %s\n", os.Getpid(), id.Start, place())
	//nolint:gosec // the caller names the file
	if err := os.WriteFile(f.Path(), []byte(text), privateFile); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("writing the lock: %w", err)
	}
	return &Lock{file: f}, nil
}

func newFlock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(privateFile))
}

// Unlock releases the lock. The file stays, because waiting processes have it open: a new file at
// its path would be another lock.
func (l *Lock) Unlock() { _ = l.file.Close() }
