package copilot

import (
	"fmt"
	"os"
	"testing"
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
