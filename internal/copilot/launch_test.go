package copilot

import (
	"fmt"
	"os"
	"testing"

	"tapgw/internal/proc"
)

func TestGuardStdout(t *testing.T) {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	if GuardStdout() != stdout {
		t.Error("the program's standard output is another, want the one that it had")
	}
	if n, err := fmt.Printf("Error reading message\n"); n != 0 || err == nil {
		t.Errorf("the SDK prints %d bytes (%v), want none", n, err)
	}
}

func TestReadPID(t *testing.T) {
	path := pidFile(t.TempDir())
	if pid := proc.ReadPID(path); pid != 0 {
		t.Errorf("pid %d of no file, want 0", pid)
	}
	if err := writePID(path); err != nil {
		t.Fatal(err)
	}
	if pid := proc.ReadPID(path); pid != os.Getpid() {
		t.Errorf("pid %d, want %d", pid, os.Getpid())
	}
}
