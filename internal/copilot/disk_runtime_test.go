//go:build runtime && linux

package copilot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"tapgw/internal/gateway"
)

// onSmallDisk has the runtime be told that it wrote too much where a file grows, as on a
// disk that is full, once limit says so: the system ends a process that does not ignore
// its signal.
func onSmallDisk(t *testing.T) (change func(*Options), limit func(g *rig, bytes uint64)) {
	t.Helper()
	change = func(o *Options) {
		script := filepath.Join(t.TempDir(), "copilot")
		body := fmt.Sprintf("#!/bin/sh\ntrap '' XFSZ\nexec %q \"$@\"\n", o.CLI)
		if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
		o.CLI = script
	}
	limit = func(g *rig, bytes uint64) {
		t.Helper()
		const resource = 1 // RLIMIT_FSIZE
		limits := syscall.Rlimit{Cur: bytes, Max: ^uint64(0)}
		_, _, errno := syscall.RawSyscall6(
			syscall.SYS_PRLIMIT64, uintptr(g.runtimePID()), resource,
			uintptr(unsafe.Pointer(&limits)), 0, 0, 0,
		)
		if errno != 0 {
			t.Fatalf("limiting the runtime: %v", errno)
		}
	}
	return change, limit
}

// TestDiskFull: where the runtime can't write a session down, turns end as ever, a turn
// that is interrupted ends too, and it is said once in the timeline and as a fault for as
// long as it lasts.
func TestDiskFull(t *testing.T) {
	change, limit := onSmallDisk(t)
	g := newRig(t, change)
	s := g.start()
	s.tool("wait", func(ctx context.Context, _ string) gateway.Outcome {
		<-ctx.Done()
		return gateway.Outcome{Error: "ended"}
	})
	s.turn("hello")
	if f := g.r.Faults(); len(f) != 0 {
		t.Errorf("faults: %v, want none", f)
	}
	limit(g, 1)
	for i := range 3 {
		s.prompt(gateway.Prompt{ID: fmt.Sprint(i), Text: fmt.Sprint("prompt ", i)})
		s.waitIdle(i + 2)
		if cut, over := s.over[fmt.Sprint(i)]; !over || cut != "" ||
			s.lastSaid() != fmt.Sprint("You said: prompt ", i) {
			t.Errorf(
				`prompt %d: over %v, %q, the model said %q, want an end, "" and %q`,
				i, over, cut, s.lastSaid(), fmt.Sprint("You said: prompt ", i),
			)
		}
		s.wait("the error", func() bool {
			return strings.Contains(describe(s.events), "can't be saved")
		})
		if f := g.r.Faults(); len(f) != 1 || !strings.Contains(f[0].Message, s.id) ||
			!strings.Contains(f[0].Message, "disk full") {
			t.Errorf(`faults: %v, want 1 of them, %q and "disk full" in it`, f, s.id)
		}
	}
	s.prompt(gateway.Prompt{ID: "waits", Text: "call:wait"})
	s.wait("the call", func() bool { return s.count(gateway.OnStartToolExecution) == 1 })
	if _, err := s.host.Interrupt(g.ctx, "test"); err != nil {
		t.Error(err)
	}
	s.waitIdle(5)
	if s.over["waits"] != "interrupted" {
		t.Errorf(`the turn that was interrupted: %q, want "interrupted"`, s.over)
	}
	if errs := s.errors(); len(errs) != 1 {
		t.Errorf("it was said %d times: %q, want once", len(errs), errs)
	}
	limit(g, ^uint64(0))
	s.turn("there is room")
	s.wait("that it is saved", func() bool {
		return strings.Contains(strings.Join(s.notes, "\n"), "saved again")
	})
	s.turn("and again")
	if f := g.r.Faults(); len(f) != 0 || s.lastSaid() != "You said: and again" || s.busy != s.idle {
		t.Errorf(
			`faults: %v, said %q, busy %d times, idle %d times, want none, "You said: and again", both equal`,
			f, s.lastSaid(), s.busy, s.idle,
		)
	}
}

// TestStartOnAFullDisk: a session that can't be begun is refused, with the reason, and one
// that can't be saved ends when it is told to, and says that it was not.
func TestStartOnAFullDisk(t *testing.T) {
	change, limit := onSmallDisk(t)
	g := newRig(t, change)
	s := g.start()
	limit(g, 1)
	err := g.r.start(g.ctx, gateway.StartRequest{Host: Kind, Model: "scripted", CWD: g.cwd},
		func(gateway.SessionSpec, gateway.HostInfo, gateway.Host) (gateway.HostCalls, error) {
			t.Error("a session that could not be saved was registered, want none")
			return s, nil
		})
	if err == nil || !strings.Contains(err.Error(), "starting a Copilot session: ") ||
		!strings.Contains(err.Error(), "too large") {
		t.Errorf(
			`starting a session: %v, want an error, "starting a Copilot session: " and "too large" in it`, err)
	}
	s.prompt(gateway.Prompt{ID: "last", Text: "hello"})
	s.waitIdle(1)
	s.wait("the error", func() bool {
		return strings.Contains(describe(s.events), "can't be saved")
	})
	if err := s.host.Close(g.ctx, "test"); err == nil ||
		!strings.Contains(err.Error(), "it could not be saved: ") {
		t.Errorf(
			`ending one that can't be saved: %v, want an error and "it could not be saved: " in it`,
			err)
	}
	if f := g.r.Faults(); len(f) != 0 {
		t.Errorf("faults of a session that has ended: %v, want none", f)
	}
}
