//go:build !linux

package proc

import "syscall"

// childAttr puts a child into a group of its own. If this process is killed, this system does not
// end the child, but the child's stdin ends.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
