package proc

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processStat reads the parent and the start of a process. ok is false if it has ended.
func processStat(pid int) (parent int, start uint64, ok bool) {
	if pid <= 0 {
		return 0, 0, false
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	return parseStat(data)
}

// parseStat reads the content of /proc/PID/stat. The name of the program, in parentheses, may hold
// any character.
func parseStat(data []byte) (parent int, start uint64, ok bool) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	// proc_pid_stat(5) counts from 1, and the state is number 3.
	const state, ppid, starttime = 0, 4 - 3, 22 - 3
	if len(fields) <= starttime || fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0, 0, false
	}
	parent, err := strconv.Atoi(string(fields[ppid]))
	if err != nil {
		return 0, 0, false
	}
	start, err = strconv.ParseUint(string(fields[starttime]), 10, 64)
	return parent, start, err == nil
}

// WaitEnd returns nil when the process has ended, or ctx's error when ctx ends first. It needs no
// thread: the kernel tells the runtime's poller.
func (id ID) WaitEnd(ctx context.Context) error {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return id.pollEnd(ctx) // it has ended, or the kernel is too old
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	if !id.Alive() { // the descriptor may be of another process
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return id.pollEnd(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		// A descriptor.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec
		return err == nil && n > 0
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return id.pollEnd(ctx)
}
