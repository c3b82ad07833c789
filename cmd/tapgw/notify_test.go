package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/proc"
	"tapgw/internal/taptest"
)

// A gateway that a service manager starts tells it when it is ready, when it
// reads its files again, and when it ends.
func TestServeNotifies(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	next := taptest.ListenNotify(t, socket)
	p, err := proc.Start(proc.Command{
		Path: "tapgw", Args: []string{"serve", "--listen=127.0.0.1:0"}, Dir: dir,
		Env: []string{
			"HOME=" + dir,
			"COPILOT_HOME=" + dir,
			"NOTIFY_SOCKET=" + socket,
			"GORACE=atexit_sleep_ms=0",
			"PATH=" + os.Getenv("PATH"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	is := func(want string) {
		t.Helper()
		if got := next(); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if got := next(); !strings.HasPrefix(got, "READY=1\nSTATUS=listening at ws://127.0.0.1:") {
		t.Errorf("told %q, want %q at its start", got,
			"READY=1\nSTATUS=listening at ws://127.0.0.1:")
	}
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(p.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGHUP)
	is("RELOADING=1")
	is("READY=1")
	send(syscall.SIGTERM)
	is("STOPPING=1")
	<-p.Done()
	if p.Err() != nil {
		t.Errorf("it ended with %v: %q", p.Err(), p.Tail())
	}
}
