package taptest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// LeakChecked is a [testing.M] for testscript.Main. Its Run fails a package whose tests leave
// goroutines behind, and prints those goroutines' stacks.
type LeakChecked struct{ M *testing.M }

// Run runs the tests, closes idle HTTP connections, and returns the exit code: that of the tests,
// or 1 if they passed and goroutines still run.
func (l LeakChecked) Run() int {
	code := l.M.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Exits is the script command "exits CODE COMMAND...": it runs the command and fails the script
// unless the exit code is CODE. A command that can't be started fails the script too.
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}
