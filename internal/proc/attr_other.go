//go:build !linux

package proc

import "syscall"

// childAttr puts a child into a group of its own. Nothing on this system ends the child if this process is killed, but
// its stdin ends.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
