//go:build !linux

package console

import "golang.org/x/sys/unix"

// flushInput discards input that was typed on a terminal and not read yet.
func flushInput(fd uintptr) { _ = unix.IoctlSetPointerInt(int(fd), unix.TIOCFLUSH, unix.TCIFLUSH) }
