//go:build e2e && linux

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
)

// TestTemplatesConform lets the kit judge three providers of all sessions, and what tapgw new
// writes.
func TestTemplatesConform(t *testing.T) {
	t.Parallel()
	python := []string{"env", "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH=" + filepath.Join(repo, "providers", "python"), systemPython}
	for name, c := range map[string]struct {
		tool    string
		command func(h *home) []string
	}{
		"sast-triage": {"sast_summary", func(*home) []string {
			return append(python, filepath.Join(repo, "providers", "templates", "sast-triage",
				"sast_triage.py"))
		}},
		"browser": {"page_scripts", func(h *home) []string {
			return []string{"env", "BROWSER_PORT=0", "node", h.copyTemplate("browser")}
		}},
		"chat": {"", func(h *home) []string {
			c := h.chat("telegram")
			return []string{"env", "CHAT_SERVICE=telegram", "CHAT_USERS=1", "CHAT_API=" + c.url,
				"TELEGRAM_BOT_TOKEN=" + chatTokens[0], "node", c.program}
		}},
		"new in Go":     {"greet_mine", func(h *home) []string { return h.newProvider("go") }},
		"new in Node":   {"greet_mine", func(h *home) []string { return h.newProvider("node") }},
		"new in Python": {"greet_mine", func(h *home) []string { return h.newProvider("python") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			args := []string{"conformance"}
			if c.tool != "" {
				args = append(args, "--tool", c.tool)
			}
			r := h.run(tapctl, append(append(args, "--"), c.command(h)...)...)
			if r.code != 0 || !strings.Contains(r.stdout, " 0 broken, 0 advice,") {
				t.Errorf("the kit ends with code %d, want 0, nothing broken and no advice:\n%s%s",
					r.code, r.stdout, r.stderr)
			}
		})
	}
}

// newProvider writes a provider and returns the command that starts it, as its provider file has
// it.
func (h *home) newProvider(lang string) []string {
	h.t.Helper()
	if lang == "node" {
		h.nodeModules()
	}
	cmd := h.command([]string{"GOPROXY=off", "GOFLAGS="}, tapgw, "new", "provider", "mine",
		"--lang", lang)
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		dir, err := exec.Command("go", "env", name).Output()
		if err != nil {
			h.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(dir)))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("tapgw new provider mine --lang %s: %v\n%s", lang, err, out)
	}
	file := h.path(".config", "tapgw", "providers", "mine.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	p, faults := configs.ParseProvider(file, text)
	if len(faults) > 0 {
		h.t.Fatal(faults)
	}
	return append([]string{"env", "-C", p.CWD}, p.Command...)
}
