package proc

import (
	"context"
	"time"

	"tapgw/internal/chans"
)

// ID names one process for as long as the machine runs: the system gives a PID again to another
// process, but not with the same start.
type ID struct {
	PID   int
	Start uint64 // when the process began, in a unit of the system's; 0: unknown
}

// IDOf returns the id of the process that has a PID now. ok is false if there is no such process.
func IDOf(pid int) (id ID, ok bool) {
	_, start, ok := processStat(pid)
	return ID{pid, start}, ok
}

// ParentOf returns the PID of a process's parent. ok is false if the process has ended, or if this
// system does not tell.
func ParentOf(pid int) (parent int, ok bool) {
	parent, _, ok = processStat(pid)
	return parent, ok && parent > 0
}

// Alive reports whether the process still runs. A process that has ended is not alive, even if its
// parent has not waited for it yet.
func (id ID) Alive() bool {
	now, ok := IDOf(id.PID)
	return ok && now == id
}

// pollInterval is how often a process is looked at on systems that do not report its end.
const pollInterval = time.Second

// pollEnd is [ID.WaitEnd] by looking again and again.
func (id ID) pollEnd(ctx context.Context) error {
	for id.Alive() {
		if err := chans.Sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
	return nil
}
