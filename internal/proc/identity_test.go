package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// A process has a name of its own for as long as it runs, and whoever waits for its end hears of
// it.
func TestIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	id, ok := IDOf(cmd.Process.Pid)
	if !ok || id.PID != cmd.Process.Pid || !id.Alive() {
		t.Fatalf("IDOf: %+v, %v, want a process that is alive", id, ok)
	}
	if parent, ok := ParentOf(id.PID); ok && parent != os.Getpid() {
		t.Errorf("ParentOf: %d, want %d", parent, os.Getpid())
	}
	if other := (ID{id.PID, id.Start + 1}); other.Alive() || other.WaitEnd(t.Context()) != nil {
		t.Errorf("%+v is alive, want that the PID is another process's by now", other)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := id.WaitEnd(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitEnd: %v, want that it was cancelled", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- id.WaitEnd(t.Context()) }()
	_ = cmd.Process.Kill() // it stays a zombie until the test waits for it
	if err := <-ended; err != nil {
		t.Errorf("WaitEnd: %v, want that it has ended", err)
	}
	if id.Alive() {
		t.Error("a process that was killed is alive, want that it is not")
	}
	_ = cmd.Wait()
	if _, ok := IDOf(id.PID); ok {
		t.Error("IDOf: a process that has ended is there, want none")
	}
	if _, ok := IDOf(0); ok {
		t.Error("IDOf(0): want none")
	}
}
