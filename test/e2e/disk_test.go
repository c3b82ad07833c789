//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"tapgw/internal/adminapi"
	"tapgw/internal/copilot"
	"tapgw/internal/scriptmodel"
)

// TestDiskFullIsSaid: if the runtime can't write a session to disk, a prompt is still answered, and
// the caller, the status and the log get the error.
func TestDiskFullIsSaid(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	// A limit on the size of files stands for the full disk: it needs no rights.
	cli, config := h.path("copilot-cli"), h.path("tapgw.toml")
	for file, text := range map[string]string{
		cli:    fmt.Sprintf("#!/bin/sh\ntrap '' XFSZ\nexec %q \"$@\"\n", copilot.Installed(repo)),
		config: fmt.Sprintf("[copilot]\ncli = %q\n", cli),
	} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g := h.serve("--config", config)
	session := h.copilot(m)
	limit := func(bytes uint64) { t.Helper(); limitFiles(t, h.runtime(), bytes) }
	faults := func() []adminapi.Fault {
		return decode[adminapi.Status](t, h.tapctl("status", "--json")).Faults
	}

	h.ask(session, "zero") // half a line at the beginning of a file can't be mended
	limit(1)
	r := h.run(tapctl, "sessions", "query", session, "one")
	if !strings.Contains(r.stdout, "You said: one") {
		t.Errorf(`the answer: %+v, want "You said: one" in it`, r)
	}
	h.waitTimeline(session, "the session can't be saved")
	if f := faults(); len(f) != 1 || !strings.Contains(f[0].Message, session) ||
		!strings.Contains(f[0].Message, "disk full") {
		t.Errorf(`faults: %+v, want one of %q with "disk full"`, f, session)
	}
	if !strings.Contains(g.output(), "the session can't be saved") {
		t.Errorf(`the log: %s, want "the session can't be saved" in it`, g.output())
	}
	if got := h.ask(session, "two"); got != "You said: two" {
		t.Errorf("the session answers %q, want %q", got, "You said: two")
	}
	limit(^uint64(0))
	h.ask(session, "three")
	h.waitTimeline(session, "the session is saved again")
	if f := faults(); len(f) != 0 {
		t.Errorf("faults: %+v, want none", f)
	}
}

// limitFiles limits the size of the files that a process writes.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	const resource = 1 // RLIMIT_FSIZE
	limits := syscall.Rlimit{Cur: bytes, Max: ^uint64(0)}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), resource,
		uintptr(unsafe.Pointer(&limits)), 0, 0, 0); errno != 0 {
		t.Fatalf("limiting the files of process %d: %v, want no error", pid, errno)
	}
}

// TestRecordsWithoutRoom: while records can't be written, a session goes on and the status says it;
// later ones are written behind the line that was cut off. A clock that is behind the records is
// said, too.
func TestRecordsWithoutRoom(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	session := h.local()
	push := func(text string) {
		t.Helper()
		h.tapctl("push", "--session", session, "--provider", "ci", "--stream", "builds", "--level",
			"keep", text)
	}
	waitFault := func(want string) {
		t.Helper()
		eventually(t, patience, func() error {
			faults := decode[adminapi.Status](t, h.tapctl("status", "--json")).Faults
			for _, f := range faults {
				if want != "" && strings.Contains(f.Message, want) {
					return nil
				}
			}
			if want == "" && len(faults) == 0 {
				return nil
			}
			return fmt.Errorf("the faults are %+v, want %q", faults, want)
		})
	}
	push("first")
	h.recorded("push", session) // written now
	file := h.state("records/00000001.jsonl")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	limitFiles(t, g.pid(), uint64(info.Size())+30)
	push("lost")
	waitFault("1 record since the start could not be written")
	expectLines(t, "the streams of a full disk", h.streams(session), "ci builds first",
		"ci builds lost")
	limitFiles(t, g.pid(), ^uint64(0))
	push("third")
	expectLines(t, "pushes", h.recorded("push", session), "ci builds stored first",
		"ci builds stored third")

	g.kill()
	future := time.Now().Add(48 * time.Hour)
	if err := os.Chtimes(file, future, future); err != nil {
		t.Fatal(err)
	}
	h.serve()
	session = h.local()
	push("behind the clock")
	waitFault("records: the clock went back")
	expectLines(t, "pushes then", h.recorded("push", session), "ci builds stored behind the clock")
}
