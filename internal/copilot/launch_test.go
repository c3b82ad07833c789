package copilot

import (
	"os"
	"testing"

	"tapgw/internal/proc"
)

func TestGuardStdout(t *testing.T) {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	if GuardStdout() != stdout {
		t.Error("the program lost its standard output")
	}
	if os.Stdout != os.Stderr {
		t.Error("what others print goes to the standard output")
	}
}

func TestReadPID(t *testing.T) {
	path := pidFile(t.TempDir())
	if pid := proc.ReadPID(path); pid != 0 {
		t.Errorf("pid %d of no file", pid)
	}
	if err := writePID(path); err != nil {
		t.Fatal(err)
	}
	if pid := proc.ReadPID(path); pid != os.Getpid() {
		t.Errorf("pid %d, want %d", pid, os.Getpid())
	}
}
