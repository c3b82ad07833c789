//go:build runtime

package copilot

import (
	"testing"
)

// The mode of a session of the real runtime is read and changed, to each of the modes.
func TestMode(t *testing.T) {
	g := newRig(t)
	s := g.start()
	h := s.info
	if mode, err := h.Mode(g.ctx); err != nil || mode != "interactive" {
		t.Errorf("at first: got %q, %v, want interactive", mode, err)
	}
	for _, mode := range []string{"plan", "autopilot", "interactive"} {
		if err := h.SetMode(g.ctx, mode); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if got, err := h.Mode(g.ctx); err != nil || got != mode {
			t.Errorf("got %q, %v, want %s", got, err, mode)
		}
	}
	if err := h.SetMode(g.ctx, "none"); err == nil {
		t.Error("a mode that there is not: got no error, want one")
	}
}
