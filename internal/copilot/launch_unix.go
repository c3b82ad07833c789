//go:build unix

package copilot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"tapgw/internal/proc"
)

const canLaunch = true

// launch replaces this process by the runtime. It returns only an error.
//
// There is no death signal for the case that the gateway dies: the runtime ends by itself when its stdin ends, and
// saves its sessions first.
func launch(socket, path string, args []string) error {
	if err := syscall.Setpgid(0, 0); err != nil && !errors.Is(err, syscall.EPERM) { // EPERM: leads a session already
		return fmt.Errorf("making a process group: %w", err)
	}
	if err := exchangeOutput(socket); err != nil {
		return fmt.Errorf("giving the output to the gateway: %w", err)
	}
	argv := append([]string{path}, args...)
	if proc.IsScript(path) {
		node, err := exec.LookPath("node")
		if err != nil {
			return fmt.Errorf("finding node: %w", err)
		}
		path, argv = node, append([]string{node}, argv...)
	}
	return syscall.Exec(path, argv, os.Environ()) //nolint:gosec // the program that the gateway found
}

// kill ends the runtime and the processes that are left in its group.
func kill(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
