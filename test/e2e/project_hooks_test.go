//go:build e2e && linux

package e2e_test

import (
	"os"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// TestProjectHooks has a cloned project with hooks for the Copilot runtime, on both runtimes. Until
// the user trusts it they count for nothing; then they deny, allow nothing that the permissions
// deny, and deny all once they change.
func TestProjectHooks(t *testing.T) {
	t.Parallel()
	for name, cli := range map[string]string{
		"runtime": "@github/copilot-sdk-linux-*/prebuilds/*/copilot-runtime",
		"CLI":     "@github/copilot-linux-*/copilot",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			m := model(t, scriptmodel.Calls)
			if err := os.WriteFile(h.path("work", "gate.sh"),
				[]byte("#!/bin/sh\necho ran >>"+h.path("ran")+
					"\ngrep -q forbidden && { echo 'not here' >&2; exit 2; }\necho '{\"permissionDecision\":\"allow\"}'\n"),
				0o755); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{h.path("work", ".github", "hooks"),
				h.path(".config", "tapgw")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			h.put("work/.github/hooks/gate.json",
				`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"./gate.sh"}]}}`)
			h.put(".config/tapgw/tapgw.toml", "[copilot]\ncli = \""+installed(t, cli)+"\"\n"+
				"[copilot.permissions]\nallow_commands = [\"echo *\"]\n")
			h.env = append(h.env, unpackedOnce())
			h.serve()
			shell := func(session, command, want string) {
				t.Helper()
				if got := h.ask(session, call(t, "bash", message{"command": command,
					"description": "x"})); !strings.Contains(got, want) {
					t.Errorf("%s: the model is told %q, want %q in it", command, got, want)
				}
			}
			untrusted := h.copilot(m)
			shell(untrusted, "echo forbidden", "forbidden\n")
			if _, err := os.Lstat(h.path("ran")); err == nil {
				t.Error("a hook of a project that nobody trusts ran")
			}
			r := h.run(tapgw, "trust", h.path("work"))
			if r.code != 0 || !strings.Contains(r.stdout, "preToolUse runs ./gate.sh") {
				t.Errorf("tapgw trust: exit code %d, %q, want the hook in it", r.code,
					r.stdout+r.stderr)
			}
			trusted := h.copilot(m)
			shell(trusted, "echo forbidden", "not here")
			shell(trusted, "echo fine", "fine\n")
			shell(trusted, "touch "+h.path("made"), "policy")
			if _, err := os.Lstat(h.path("made")); err == nil {
				t.Error("a hook allowed what the permissions deny")
			}
			h.put("work/gate.sh", "#!/bin/sh\necho '{\"permissionDecision\":\"allow\"}'\n")
			shell(trusted, "echo fine", "tapgw trust")
		})
	}
}
