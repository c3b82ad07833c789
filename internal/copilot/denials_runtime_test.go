//go:build runtime

package copilot

import (
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// TestDenialSaysItsReason: whatever denies a call, the model, the timeline and the followers of the
// session get the reason.
func TestDenialSaysItsReason(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) {
		o.Permissions = configs.Permissions{Shell: configs.Ask, DenyCommands: []string{"rm"}}
	}))
	h.provide(h.s, "tests")
	h.gate("guard")
	for _, tt := range []struct {
		who, prompt, by, reason string
		person                  bool
	}{
		{"a pattern", shellCall("rm x"), "",
			`deny_commands in [copilot.permissions] of tapgw.toml forbids it: "rm" matches`, false},
		{
			"the policy", `call:create {"path":"made","file_text":"x"}`, "",
			`allow_write_paths in [copilot.permissions] of tapgw.toml has no pattern for this file; set write = "allow"`, false,
		},
		{"a person", shellCall("echo x"), "", "that is enough", true},
		{"a gate", `call:say {"x":"1"}`, "provider guard: ", "not past guard", false},
	} {
		before, begun := timeline(h.s), h.s.LiveCursor()
		turn := h.asking(tt.prompt)
		if tt.person {
			h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideDeny, Text: tt.reason})
		}
		if said := <-turn; !strings.Contains(said, tt.by+tt.reason) {
			t.Errorf("%s: the model says %q, want %q in it", tt.who, said, tt.by+tt.reason)
		}
		told := ""
		lines, _ := h.s.Live(begun)
		for _, l := range lines {
			if l.Event.Callback == gateway.OnEndToolExecution && l.Event.Error != nil {
				told = l.Event.Error.Code + ": " + l.Event.Error.Message
			}
		}
		if !strings.HasPrefix(told, "denied: ") || !strings.Contains(told, tt.reason) {
			t.Errorf(`%s: who follows is told %q, want "denied: " at its start and %q in it`,
				tt.who, told, tt.reason)
		}
		shown := ""
		for line := range strings.Lines(strings.TrimPrefix(timeline(h.s), before)) {
			if strings.Contains(line, tt.reason) && !strings.Contains(line, " assistant: ") {
				shown = line
			}
		}
		if !strings.Contains(shown, "den") {
			t.Errorf(`%s: the timeline has %q, want "den" in it`, tt.who, shown)
		}
	}
}

// TestDenialNamesThePart: the model reads what of its line no pattern allows, and the key for
// patterns before the setting that allows every command.
func TestDenialNamesThePart(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.Permissions = configs.Permissions{AllowCommands: []string{"echo", "git log"}}
	})
	s := g.start()
	for line, part := range map[string]string{
		"echo x > redirected.txt":      `the redirection "> redirected.txt"`,
		"git log --output=y":           `the option "--output" of "git log"`,
		"git --no-pager log | tee log": `the command "tee" (command 2 of 2)`,
	} {
		s.turn(shellCall(line))
		want := "allow_commands in [copilot.permissions] of tapgw.toml has no pattern for " + part +
			`; set shell = "allow" there to allow every command`
		if said := s.lastSaid(); !strings.Contains(said, want) {
			t.Errorf("%s: the model reads %q, want %q in it", line, said, want)
		}
	}
}
