//go:build !linux && !darwin

package proc

import (
	"context"
	"errors"
	"syscall"
)

// processStat reports only whether there is a process: this system does not tell us more.
func processStat(pid int) (parent int, start uint64, ok bool) {
	if pid <= 0 {
		return 0, 0, false
	}
	err := syscall.Kill(pid, 0)
	return 0, 0, err == nil || errors.Is(err, syscall.EPERM)
}

// WaitEnd returns nil when the process has ended, or ctx's error when ctx ends first.
func (id ID) WaitEnd(ctx context.Context) error { return id.pollEnd(ctx) }
