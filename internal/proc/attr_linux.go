package proc

import "syscall"

// childAttr puts a child into a group of its own, and makes the kernel end it when this process
// ends. The kernel ties that to the thread that started the child. Go ends a thread only if a
// goroutine that is locked to it returns, and no goroutine of ours does that.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
