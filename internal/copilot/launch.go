package copilot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"tapgw/internal/proc"
)

// LaunchArg is the hidden first argument that makes this program become the runtime; see
// [ExecRuntime].
const LaunchArg = "__runtime"

// ExecRuntime turns this process into the Copilot runtime if its arguments say so. Call it first in
// main, with os.Args. It does not return on success. If ran is true, the program must exit with
// code: 1 when the runtime could not be started, 2 for wrong arguments.
//
// The SDK starts the runtime itself and can set only the arguments of the process. So the SDK
// starts this program, which moves to a process group of its own, exchanges its output with the
// gateway (see [outlet]) and replaces itself by the runtime. Without the group, Ctrl-C at the
// gateway's terminal would kill the runtime before its sessions can end.
func ExecRuntime(args []string) (code int, ran bool) {
	if len(args) < 2 || args[1] != LaunchArg {
		return 0, false
	}
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, LaunchArg+" is for the gateway's own use")
		return 2, true
	}
	err := launch(args[2], args[3], args[4:])
	fmt.Fprintf(os.Stderr, "starting %s: %v\n", args[3], err)
	return 1, true
}

// launch replaces this process by the runtime. It returns only an error.
//
// There is no death signal for the case that the gateway dies: the runtime ends by itself when its
// stdin ends, and saves its sessions first.
func launch(socket, path string, args []string) error {
	// EPERM: leads a session already
	if err := syscall.Setpgid(0, 0); err != nil && !errors.Is(err, syscall.EPERM) {
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
	// The program that the gateway found.
	return syscall.Exec(path, argv, os.Environ()) //nolint:gosec
}

// kill ends the runtime and the processes that are left in its group.
func kill(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// GuardStdout drops the diagnostics that the SDK prints with fmt.Printf: each terminal that leaves
// causes one, and it does not name the session. The gateway's own log does. It returns the
// program's standard output, for the program's own use. Call it in main before any goroutine runs.
func GuardStdout() *os.File {
	stdout := os.Stdout
	os.Stdout = nil // a nil file drops writes, and returns an error
	return stdout
}

// launcher returns the command to put before the runtime's own.
func (o Options) launcher() ([]string, error) {
	if len(o.Launcher) > 0 {
		return o.Launcher, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	return []string{self, LaunchArg}, nil
}

// outletSocket is where the launcher finds the [outlet] of a runtime whose private directory is
// dir.
func outletSocket(dir string) string { return filepath.Join(dir, "output") }
