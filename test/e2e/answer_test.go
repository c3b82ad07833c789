//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// asked waits for a question of a session, and returns it.
func (h *home) asked(session string) adminapi.Question {
	h.t.Helper()
	var q adminapi.Question
	eventually(h.t, patience, func() error {
		for _, q = range decode[[]adminapi.Question](h.t,
			h.tapctl("sessions", "answer", "--json")) {
			if q.Session == session {
				return nil
			}
		}
		return fmt.Errorf("session %s asks nothing", session)
	})
	return q
}

// TestAnswers asks for a permission and lets the model ask, by a config file and with
// the programs that people use: answered in each way, twice, and not at all.
func TestAnswers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	config :=
		"[copilot]\nanswer_timeout = \"1m\"\n[copilot.permissions]\nshell = \"ask\"\ndeny_commands = [\"rm\"]\n"
	if err := os.WriteFile(h.path("tapgw.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m)
	shell := func(command string) string {
		args, err := json.Marshal(map[string]string{"command": command, "description": "try it"})
		if err != nil {
			t.Fatal(err)
		}
		return "call:bash " + string(args)
	}
	answered := func(prompt string, answer ...string) string {
		turn := make(chan result, 1)
		go func() { turn <- h.run(tapctl, "sessions", "query", session, prompt) }()
		q := h.asked(session)
		h.tapctl(append([]string{"sessions", "answer", session, "--question", q.ID}, answer...)...)
		if r := h.run(tapctl, "sessions", "answer", session, "once", "--question",
			q.ID); r.code != 1 ||
			!strings.Contains(r.stderr, "is over") {
			t.Errorf(`answered twice: exit code %d %s, want code 1 and "is over" in it`, r.code,
				r.stderr)
		}
		r := <-turn
		if r.code != 0 {
			t.Errorf("%s: exit code %d %s, want 0", prompt, r.code, r.stderr)
		}
		return r.stdout
	}
	if got := answered(shell("echo one"), "once"); !strings.Contains(got, "one\n") {
		t.Errorf("allowed once: %q, want %q in it", got, "one\n")
	}
	if got := answered(shell("echo two"), "session"); !strings.Contains(got, "two\n") {
		t.Errorf("allowed for the session: %q, want %q in it", got, "two\n")
	}
	if got := h.ask(session, shell("echo two")); !strings.Contains(got, "two\n") {
		t.Errorf("the same again: %q, want %q in it", got, "two\n")
	}
	if got := answered(shell("echo three"), "deny", "--reason",
		"not on a Sunday"); !strings.Contains(got,
		"not on a Sunday") {
		t.Errorf(`denied: %q, want "not on a Sunday" in it`, got)
	}
	if got := h.ask(session, shell("rm -f x")); !strings.Contains(got,
		"deny_commands in [copilot.permissions]") {
		t.Errorf(`denied by a pattern: %q, want "deny_commands in [copilot.permissions]" in it`,
			got)
	}
	if got := answered(`call:ask_user {"question":"Which?","choices":["red","green"]}`,
		"green"); !strings.Contains(got,
		"User selected: green") {
		t.Errorf(`what the model asked: %q, want "User selected: green" in it`, got)
	}
	log := h.tapctl("sessions", "log", session)
	for _, want := range []string{"permission asked (", "answered by the user: once",
		"answered by the user: deny (not on a Sunday)", "input asked ("} {
		if !strings.Contains(log, want) {
			t.Errorf("the timeline, want %q in it:\n%s", want, log)
		}
	}
}

// TestNobodyAnswers: after the time in the config file an unanswered permission is refused, and the
// model gets the reason.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	if err := os.WriteFile(h.path("tapgw.toml"),
		[]byte("[copilot]\nanswer_timeout = \"1s\"\n[copilot.permissions]\nshell = \"ask\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m)
	if got := h.ask(session,
		`call:bash {"command":"echo ran","description":"try it"}`); !strings.Contains(got,
		"nobody answered in time (answer_timeout in [copilot] of tapgw.toml)") {
		t.Errorf(
			"a permission: %q, want %q in it",
			got, "nobody answered in time (answer_timeout in [copilot] of tapgw.toml)",
		)
	}
	if got := h.ask(session, `call:ask_user {"question":"Which?"}`); !strings.Contains(got,
		"nobody answered in time") {
		t.Errorf(`what the model asked: %q, want "nobody answered in time" in it`, got)
	}
	if got := h.tapctl("sessions", "answer", "--json"); got != "[]" {
		t.Errorf("still waiting: %s, want %q", got, "[]")
	}
}
