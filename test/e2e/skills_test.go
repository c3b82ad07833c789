//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
	"tapgw/skills"
)

// TestSkillsInCopilot installs the skills for the user, and in a project. The Copilot CLI lists
// them, the model of a session hears of them and reads one, and after uninstall none is left.
func TestSkillsInCopilot(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	for _, scope := range []string{"user", "project"} {
		if r := h.run(tapgw, "install", "skills", "--"+scope); r.code != 0 {
			t.Fatalf("installing for the %s: exit code %d, want 0: %s", scope, r.code, r.stderr)
		}
		if got := h.listedSkills(scope); len(got) != len(skills.All()) {
			t.Errorf("the CLI lists of the %s %q, want the %d skills of tapgw", scope, got,
				len(skills.All()))
		}
		if scope == "user" {
			h.put("tapgw.toml", "[copilot]\nconfig_discovery = true\n")
			h.serve("--config", h.path("tapgw.toml"))
			session := h.copilot(m)
			h.ask(session, "hello")
			body := string(m.Requests()[0].Body)
			for _, s := range skills.All() {
				description, _, _ := strings.Cut(strings.SplitAfterN(s.Text, "\ndescription: ",
					2)[1], "\n")
				if !strings.Contains(body, description) {
					t.Errorf("the model was not told of %s, want its description %q", s.Name,
						description)
				}
			}
			if got := h.ask(session, `call:skill {"skill":"tap-loop"}`); !strings.Contains(got,
				"tap-loop") {
				t.Errorf("using the skill brings %q, want that it is loaded", got)
			}
			requests := m.Requests()
			if last := string(requests[len(requests)-1].Body); !strings.Contains(last,
				"A loop is an emitter") {
				t.Error("the model used the skill, and its next request lacks the text of it")
			}
		}
		if r := h.run(tapgw, "uninstall", "skills", "--"+scope); r.code != 0 {
			t.Errorf("uninstalling: exit code %d, want 0: %s", r.code, r.stderr)
		}
		if got := h.listedSkills(scope); len(got) > 0 {
			t.Errorf("after uninstall the CLI lists %q, want none", got)
		}
	}
}

// listedSkills returns tapgw's skills as the Copilot CLI lists them in the directory of work.
func (h *home) listedSkills(scope string) (names []string) {
	h.t.Helper()
	r := h.run(installed(h.t, "@github/copilot-linux-*/copilot"), "skill", "list", "--json")
	source := map[string]string{"user": "personal-copilot", "project": "project"}[scope]
	for _, s := range decode[[]struct{ Name, Source string }](h.t, r.stdout) {
		if strings.HasPrefix(s.Name, "tap-") && s.Source == source {
			names = append(names, s.Name)
		}
	}
	return names
}
