package supervisor

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// A restart leaves no moment without the tools, and ends the process before.
func TestRestartSwaps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("plain"))
	r.has(h, "t")
	before := r.child()
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan string)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if o := call(s, "t"); o.Failed() {
				failed <- o.Text()
				return
			}
		}
	}()
	for range 3 {
		if n, err := r.s.Restart(t.Context(), "a"); n != (adminapi.Restarted{Restarted: 1}) ||
			err != nil {
			t.Fatalf("restart: %+v, %v, want 1 and no error", n, err)
		}
		after := r.child()
		r.ended(before)
		before = after
		if o := call(s, "t"); !strings.HasPrefix(o.Text(), after.pid+" ") {
			t.Errorf("after the restart: %s, want an answer of process %s", o.Text(), after.pid)
		}
	}
	stop()
	if text, isFailed := <-failed; isFailed {
		t.Errorf("a call during the restart: %s, want none to fail", text)
	}
}

// A new process that fails at once is an error with its last line, and the one before goes on.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("alone", "SOCKET="+filepath.Join(t.TempDir(), "s")))
	r.has(h, "t")
	before := r.child()
	n, err := r.s.Restart(t.Context(), "a")
	for _, want := range []string{"INVALID_STATE", "the new process of a failed: process ",
		"exit status 7",
		"its last line: its port is taken", "the one before goes on",
		"tapctl providers stop a, then start"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restart: %+v, %v, want %q in the error", n, err, want)
		}
	}
	r.ended(r.child())
	if o := call(s, "t"); !strings.HasPrefix(o.Text(), before.pid+" ") {
		t.Errorf("a call: %s, want an answer of process %s", o.Text(), before.pid)
	}
	if faults := r.s.Faults(); len(faults) > 0 {
		t.Errorf("faults: %v, want none", faults)
	}
	if _, err := r.s.Stop("a"); err != nil {
		t.Fatal(err)
	}
	r.ended(before)
	if _, err := r.s.Start("a"); err != nil {
		t.Fatal(err)
	}
	r.has(h, "t")
}

// A provider that never joined is started anew, and its failure is reported.
func TestRestartOfWhatNeverJoined(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.session("one")
	r.put("a", r.file("start"))
	r.ended(r.child())
	_, err := r.s.Restart(t.Context(), "a")
	for _, want := range []string{"the new process of a failed: ", "exit status 3",
		"its last line: it is too much",
		"it is started again"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restart: %v, want %q in the error", err, want)
		}
	}
}

// A process that takes its time to join is not waited for without end: the one before goes on until
// it has.
func TestRestartThatIsSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("late"))
	before := r.child()
	if _, err := before.conn.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	r.has(h, "t")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if n, err := r.s.Restart(ctx, "a"); n != (adminapi.Restarted{Restarted: 1, Waiting: 1}) ||
		err != nil {
		t.Errorf("restart: %+v, %v, want one that is waited for, and no error", n, err)
	}
	if o := call(s, "t"); !strings.HasPrefix(o.Text(), before.pid+" ") {
		t.Errorf("meanwhile: %s, want an answer of process %s", o.Text(), before.pid)
	}
	after := r.child()
	if _, err := after.conn.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	r.ended(before)
	if o := call(s, "t"); !strings.HasPrefix(o.Text(), after.pid+" ") {
		t.Errorf("afterwards: %s, want an answer of process %s", o.Text(), after.pid)
	}
}
