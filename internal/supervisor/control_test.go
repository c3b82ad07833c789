package supervisor

import (
	"strings"
	"testing"
)

// Stop, start and restart by the user.
func TestControl(t *testing.T) {
	r := newRig(t)
	_, h := r.session("one")
	r.put("a", r.file("plain"))
	r.has(h, "t")
	p := r.child()
	if n, err := r.s.Restart(t.Context(), "a"); n.Restarted != 1 || err != nil {
		t.Errorf("restart: %+v, %v, want 1 and no error", n, err)
	}
	r.ended(p)
	p = r.child()
	r.has(h, "t")
	if n, err := r.s.Stop("a"); n != 1 || err != nil {
		t.Errorf("stop: %d, %v, want 1 and no error", n, err)
	}
	r.ended(p)
	r.has(h)
	r.s.Reload()
	if len(r.beats) > 0 {
		t.Error("it runs though it was stopped, want no process")
	}
	if n, err := r.s.Start("a"); n != 1 || err != nil {
		t.Errorf("start: %d, %v, want 1 and no error", n, err)
	}
	r.has(h, "t")
	if lines, err := logged(r.s, "a"); err != nil ||
		!strings.Contains(strings.Join(lines, "\n"), "tapgw: started ") {
		t.Errorf(`log: %q, %v, want no error and "tapgw: started " in it`, lines, err)
	}
	for name, f := range map[string]func(string) (int, error){
		"stop": r.s.Stop, "start": r.s.Start,
		"restart": func(name string) (int, error) {
			done, err := r.s.Restart(t.Context(), name)
			return done.Restarted, err
		},
	} {
		if _, err := f("nobody"); err == nil || !strings.Contains(err.Error(), "NOT_FOUND") {
			t.Errorf(`%s: %v, want an error and "NOT_FOUND" in it`, name, err)
		}
	}
	if _, err := logged(r.s, "nobody"); err == nil {
		t.Error("the log of a provider that there is not: no error, want one")
	}
}

// The name that a program connects with stands for its file if exactly one file has it, and never
// for the connection that would come again.
func TestControlByTheNameOfTheProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, h := r.session("one")
	r.put("a", r.file("plain", "TOOL=first"))
	r.has(h, "first")
	p := r.child()
	if n, err := r.s.Stop("child"); n != 1 || err != nil {
		t.Errorf("stop: %d, %v, want 1 and no error", n, err)
	}
	r.ended(p)
	r.has(h)
	if n, err := r.s.Stop("child"); err == nil || !strings.Contains(err.Error(), "not connected") {
		t.Errorf(`stop again: %d, %v, want an error and "not connected" in it`, n, err)
	}
	// One that no file is behind is disconnected.
	ended := connect(t, r, r.g.AdminToken())
	r.has(h, "t")
	if n, err := r.s.Stop("ed"); n != 1 || err != nil {
		t.Errorf("stop of another: %d, %v, want 1 and no error", n, err)
	}
	<-ended
	if lines, err := logged(r.s, "child"); err != nil || len(lines) == 0 {
		t.Errorf("log: %q, %v, want lines and no error", lines, err)
	}
	if n, err := r.s.Start("child"); n != 1 || err != nil {
		t.Errorf("start: %d, %v, want 1 and no error", n, err)
	}
	r.has(h, "first")
	r.child()
	r.put("b", r.file("plain", "TOOL=second"))
	r.has(h, "first", "second")
	for verb, f := range map[string]func(string) (int, error){
		"stop": r.s.Stop, "start": r.s.Start,
		"restart": func(name string) (int, error) {
			done, err := r.s.Restart(t.Context(), name)
			return done.Restarted, err
		},
	} {
		if n, err := f("child"); n != 0 || err == nil ||
			!strings.Contains(err.Error(), "NOT_FOUND") ||
			!strings.Contains(err.Error(),
				"child is run by files a, b: tapctl providers "+verb+" a") {
			t.Errorf(
				`%s: %d, %v, want 0, an error, "NOT_FOUND" and %q in it`,
				verb, n, err, "child is run by files a, b: tapctl providers "+verb+" a",
			)
		}
	}
	if _, err := logged(r.s, "child"); err == nil ||
		!strings.Contains(err.Error(), "tapctl providers log a") {
		t.Errorf(`log: %v, want an error and "tapctl providers log a" in it`, err)
	}
	r.has(h, "first", "second")
}
