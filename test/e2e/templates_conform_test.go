//go:build e2e && linux

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTemplatesConform lets the kit judge two providers of all sessions.
func TestTemplatesConform(t *testing.T) {
	t.Parallel()
	python := []string{"env", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + filepath.Join(repo, "providers", "python"),
		systemPython}
	for name, c := range map[string]struct {
		tool    string
		command func(h *home) []string
	}{
		"sast-triage": {"sast_summary", func(*home) []string {
			return append(python, filepath.Join(repo, "providers", "templates", "sast-triage", "sast_triage.py"))
		}},
		"browser": {"page_scripts", func(h *home) []string {
			return []string{"env", "BROWSER_PORT=0", "node", h.copyTemplate("browser")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			r := h.run(tapctl, append([]string{"conformance", "--tool", c.tool, "--"}, c.command(h)...)...)
			if r.code != 0 || !strings.Contains(r.stdout, " 0 failed") {
				t.Errorf("the kit ends with code %d, want 0 and no rule that failed:\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}
