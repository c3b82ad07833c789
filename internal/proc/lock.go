package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often a lock is tried that another process holds.
const lockRetry = 10 * time.Millisecond

// Lock is a lock on a file that the system lets go when its process ends,
// however that ends. The file holds the process's id, for people: that it holds
// one says nothing about the lock.
type Lock struct{ file *flock.Flock }

// TryLock takes a lock if nobody else has it; else it returns nil and no error.
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

// WaitLock takes a lock as soon as nobody else has it.
func WaitLock(ctx context.Context, path string) (*Lock, error) {
	f := newFlock(path)
	if _, err := f.TryLockContext(ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return newLock(f)
}

// Locked reports whether another process has a lock.
func Locked(path string) (bool, error) {
	f := newFlock(path)
	ok, err := f.TryRLock()
	if err != nil {
		return false, fmt.Errorf("trying %s: %w", path, err)
	}
	_ = f.Close()
	return !ok, nil
}

// LockHolder returns the process that took a lock last, 0 if there is none. That process may have ended.
func LockHolder(path string) int { return ReadPID(path) }

// ReadPID returns the process id that a file holds as decimal text, 0 if it holds none.
func ReadPID(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

func newLock(f *flock.Flock) (*Lock, error) {
	//nolint:gosec // the caller names the file
	if err := os.WriteFile(f.Path(), []byte(strconv.Itoa(os.Getpid())+"\n"), privateFile); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("writing the lock: %w", err)
	}
	return &Lock{file: f}, nil
}

func newFlock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(privateFile))
}

// Unlock lets the lock go. The file stays: whoever waits has it open.
func (l *Lock) Unlock() { _ = l.file.Close() }
