package proc

import (
	"context"

	"golang.org/x/sys/unix"
)

// zombie is the state of a process that has ended, SZOMB of sys/proc.h.
const zombie = 5

// processStat asks the kernel for the parent and the start of a process. ok is false if it has
// ended.
func processStat(pid int) (parent int, start uint64, ok bool) {
	if pid <= 0 {
		return 0, 0, false
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return 0, 0, false
	}
	began := info.Proc.P_starttime
	//nolint:gosec // a time after 1970
	return int(info.Eproc.Ppid), uint64(began.Sec)*1_000_000 + uint64(began.Usec), true
}

// WaitEnd returns nil when the process has ended, or ctx's error when ctx ends first.
func (id ID) WaitEnd(ctx context.Context) error { return id.pollEnd(ctx) }
