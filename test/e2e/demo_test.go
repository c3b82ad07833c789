//go:build e2e && linux

package e2e_test

import (
	"os"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	steps := []string{"gateway", "session", "provider", "tool listed", "tool called", "result",
		"timeline", "push", "tools.update", "provider leaves"}
	for host, want := range map[string][]string{
		"copilot": append([]string{"model endpoint"}, steps...),
		"local":   steps,
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			r := h.run(tapgw, "demo", "--host", host, "--json")
			if r.code != 0 {
				t.Errorf("exit code %d\n%s\n%s, want 0", r.code, r.stdout, r.stderr)
			}
			var done []string
			for _, s := range decodeLines[struct{ Step, Status, Detail string }](t, r.stdout) {
				if done = append(done, s.Step); s.Status != "ok" || s.Detail == "" {
					t.Errorf(`step %s: %s: %s, want "ok" with a detail`, s.Step, s.Status, s.Detail)
				}
			}
			if strings.Join(done, ", ") != strings.Join(want, ", ") {
				t.Errorf("the demo shows %q, want %q", done, want)
			}
			h.tidy()
		})
	}
	t.Run("auto", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		r := h.run(tapgw, "demo")
		if r.code != 0 || r.stderr != "" {
			t.Errorf("exit code %d\n%s\n%s, want %q", r.code, r.stdout, r.stderr, "")
		}
		for _, text := range []string{"✓ session: a Copilot session runs", "✓ provider leaves: ",
			"That is all"} {
			if !strings.Contains(r.stdout, text) {
				t.Errorf("the demo's output, want %q in it:\n%s", text, r.stdout)
			}
		}
		h.tidy()
	})
}

// tidy checks that nothing is left in the directory for temporary files, and
// nothing was written to the user's own directory.
func (h *home) tidy() {
	h.t.Helper()
	for _, dir := range []string{"tmp", "copilot", "work"} {
		left, err := os.ReadDir(h.path(dir))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, f := range left {
			h.t.Errorf("%s is left over in %s, want nothing", f.Name(), dir)
		}
	}
}
