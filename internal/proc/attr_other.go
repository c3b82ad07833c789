//go:build !linux

package proc

import "syscall"

// childAttr puts a child into a group of its own. Nothing here ends it when we
// are killed; its stdin does end then.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
