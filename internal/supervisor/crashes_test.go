package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// A provider that gave up is tried again when its file changes, even back to an earlier content.
func TestChangeOfOneThatGaveUp(t *testing.T) {
	s := New(Options{Gateway: gateway.New(gateway.Options{})})
	s.launch["x"] = func(ctx context.Context, _ *Run) error {
		<-ctx.Done()
		return nil
	}
	a, b := &configs.Provider{Name: "p", Kind: "x"},
		&configs.Provider{Name: "p", Kind: "x", CWD: "b"}
	gaveUp := errors.New("gave up")
	pl := &placement{now: s.start(a, placementKey{}, nil)}
	pl.next = s.start(b, placementKey{}, []*unit{pl.now})
	pl.now.gaveUpReason.Store(&gaveUp)
	old := pl.now
	s.updatePlacement(placementKey{name: "p"}, pl, a)
	if pl.now == old || pl.next != nil || !sameConfig(pl.now.spec, a) {
		t.Error("the new config did not start what gave up, want a new start with it")
	}
	s.Close()
}

// A provider that fails is started again, five times in a minute at most, and the
// fault says so.
func TestCrashes(t *testing.T) {
	for _, tt := range []struct{ mode, why string }{
		{"start", "exit status 3"},
		{"bound", "exit status 4"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.session("one")
			r.put("a", r.file(tt.mode))
			for range maxFailures {
				r.ended(r.child())
			}
			var message string
			for deadline := time.Now().Add(patience); message == "" &&
				time.Now().Before(deadline); {
				for _, f := range r.s.Faults() {
					message = f.Error()
				}
			}
			if !strings.Contains(
				message,
				"a.toml:1:1: not started again after 5 failures in a minute, the last: process ",
			) ||
				!strings.Contains(message, tt.why) {
				t.Errorf(
					`the fault: %q, want "not started again after 5 failures in a minute" and %q in it`,
					message, tt.why,
				)
			}
			lines, err := logged(r.s, "a")
			if text := strings.Join(lines, "\n"); err != nil ||
				!strings.Contains(text, "started again in ") || tt.mode == "start" &&
				!strings.Contains(text, "it is too much") {
				t.Errorf(`log %q, %v, want "started again in ", and for a failed start its reason`,
					lines, err)
			}
			if n, err := r.s.Start("a"); n != 1 || err != nil {
				t.Errorf("start: %d, %v, want 1 and no error", n, err)
			}
			r.ended(r.child())
		})
	}
}

func TestCrashInCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("call"))
	r.has(h, "t")
	p := r.child()
	if o := call(s, "t"); o.ErrorCode != "DISCONNECTED" {
		t.Errorf(`the call: %s %s, want "DISCONNECTED"`, o.ErrorCode, o.Text())
	}
	r.ended(p)
	r.child() // it comes again
	r.has(h)
	r.has(h, "t")
}

// The children of a provider end with it, also processes that ignore SIGTERM.
func TestEndsWhateverItDoes(t *testing.T) {
	for _, mode := range []string{"fork", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, h := r.session("one")
			r.put("a", r.file(mode))
			r.has(h, "t")
			all := []*beat{r.child()}
			if mode == "fork" {
				all = append(all, r.child())
			}
			if err := os.Remove(filepath.Join(r.dir, "a.toml")); err != nil {
				t.Fatal(err)
			}
			for _, b := range all {
				r.ended(b)
			}
			r.has(h)
		})
	}
}

// A provider that floods its output loses only old lines of its own.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("flood"))
	r.has(h, "t")
	for range 20 {
		if o := call(s, "t"); o.Failed() {
			t.Fatalf("the call: %s, want success", o.Text())
		}
	}
	lines, err := logged(r.s, "a")
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	if err != nil || len(lines) > maxLines || size > maxLines*(maxLineBytes+len("…")) {
		t.Errorf(
			"%d lines of %d bytes, %v, want at most %d lines and %d bytes",
			len(lines), size, err, maxLines, maxLines*(maxLineBytes+len("…")),
		)
	}
}
