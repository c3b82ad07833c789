package copilot

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// LaunchArg is the hidden first argument with which our own program becomes
// the runtime, see [ExecRuntime].
const LaunchArg = "__runtime"

// ExecRuntime turns the process into the Copilot runtime if its arguments say
// so. Call it first thing in main, with os.Args: it does not return when it
// worked, and when ran is true the program must exit with code.
//
// The SDK starts the runtime itself and can set nothing about the process but
// its arguments. So it starts us, and we move to a process group of our own
// (else Ctrl-C at the gateway's terminal kills the runtime before sessions can
// end), write down our pid and replace ourselves by the runtime.
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

// GuardStdout keeps what the SDK prints (diagnostics, with fmt.Printf) off the
// program's standard output, which it returns for the program's own use: from
// then on os.Stdout is the standard error. Call it in main, before any
// goroutine runs.
func GuardStdout() *os.File {
	stdout := os.Stdout
	os.Stdout = os.Stderr
	return stdout
}

// launcher is the command to put before the runtime's own, nil for none.
func (o Options) launcher() ([]string, error) {
	if len(o.Launcher) > 0 {
		return o.Launcher, nil
	}
	if !canLaunch {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	return []string{self, LaunchArg}, nil
}

// pidFile is where the launcher writes its pid, by rename, so that a file that
// is there is whole.
func pidFile(dir string) string { return filepath.Join(dir, "pid") }

func writePID(path string) error {
	part := path + ".part"
	if err := os.WriteFile(part, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil { //nolint:gosec // the path is the gateway's
		return err
	}
	return os.Rename(part, path) //nolint:gosec // as above
}
