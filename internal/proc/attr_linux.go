package proc

import "syscall"

// childAttr puts a child into a group of its own and ends it when we die. The
// kernel ties that to the thread that started it; Go ends threads only where a
// goroutine locked to one returns, which none of ours does.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
