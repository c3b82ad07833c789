//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestStopInAnotherContainer: a gateway and a tapgw stop in two PID namespaces share a home. The
// gateway ends by its own port; the process that has its number beside the command, the main
// program of that container, gets no signal.
func TestStopInAnotherContainer(t *testing.T) {
	unshare := []string{"--pid", "--fork", "--mount-proc"}
	if os.Getuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	// The shell is process 1 there, as the gateway is in its own namespace.
	const beside = `trap 'echo TRAPPED' TERM; "$0" "$1"; echo "exit $?"; kill -0 1 && echo still here`
	for name, hangs := range map[string]bool{"it answers": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.in = append([]string{"unshare"}, unshare...)
			gateway := h.start(tapgw, "serve", "--listen", "127.0.0.1:0")
			gateway.expect("ws://")
			if hangs {
				task := fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", gateway.pid())
				children, err := os.ReadFile(task)
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			}
			for _, command := range []string{"stop", "restart"} {
				if command == "restart" && !hangs {
					continue // it has ended
				}
				r := h.run("sh", "-c", beside, tapgw, command)
				text := r.stdout + r.stderr
				if r.code != 0 || strings.Contains(text, "TRAPPED") ||
					!strings.Contains(text, "still here") {
					t.Errorf("%s beside: exit %d\n%s, want no signal", command, r.code, text)
				}
				want, said := "exit 0", "stopped the gateway of process 1"
				if hangs {
					want, said = "exit 1", "process 1"
				}
				if !strings.Contains(text, want) || !strings.Contains(text, said) {
					t.Errorf("%s beside: %s, want %s and %q", command, text, want, said)
				}
			}
		})
	}
}
