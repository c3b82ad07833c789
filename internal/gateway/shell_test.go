package gateway

import (
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// permitted asks whether a command may run. Each question that waits gets the decision; asked are
// their details.
func permitted(
	t *testing.T, s *Session, c ShellCommand, decision string,
) (asked []string, err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.PermitShell(t.Context(), c) }()
	synctest.Wait()
	for _, q := range s.g.Questions() {
		asked = append(asked, q.Detail)
		if !strings.Contains(q.Message,
			"It is to: "+c.Why+" (session: this very command from now on)") {
			t.Errorf(
				"the question is %q, want the purpose %q and what an answer for the session covers",
				q.Message, c.Why)
		}
		if err := s.Answer(q.ID, Answer{Decision: decision}); err != nil {
			t.Error(err)
		}
	}
	return asked, <-done
}

// The answer "session" holds for this very command in its directory, and "once" for nothing else.
func TestPermissionOfACommandForTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, other := asking(t)
		for i, step := range []struct {
			session  *Session
			command  ShellCommand
			decision string
			asked    string
			denial   string
		}{
			{s, ShellCommand{Text: "make"}, adminapi.DecideDeny, "make",
				"DENIED: the person refused the command"},
			{s, ShellCommand{Text: "make"}, adminapi.DecideOnce, "make", ""},
			{s, ShellCommand{Text: "make"}, adminapi.DecideSession, "make", ""},
			{s, ShellCommand{Text: "make", Why: "run again"}, "", "", ""},
			{s, ShellCommand{Text: "make x"}, adminapi.DecideOnce, "make x", ""},
			{s, ShellCommand{Text: "make", Dir: "/p/it's"}, adminapi.DecideSession,
				`cd '/p/it'\''s' && make`, ""},
			{s, ShellCommand{Text: "make", Dir: "/p/it's"}, "", "", ""},
			{s, ShellCommand{Text: "make", Dir: "/p"}, adminapi.DecideOnce, "cd '/p' && make", ""},
			{other, ShellCommand{Text: "make"}, adminapi.DecideOnce, "make", ""},
		} {
			asked, err := permitted(t, step.session, step.command, step.decision)
			if got := strings.Join(asked, "|"); got != step.asked {
				t.Errorf("step %d: asked %q, want %q", i, got, step.asked)
			}
			if got := errorText(err); got != step.denial {
				t.Errorf("step %d: got the error %q, want %q", i, got, step.denial)
			}
		}
	})
}

// Rules see the directory of a command, and a person's word does not overrule them.
func TestRulesSeeTheDirectoryOfACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		version := protocol.Version
		guard := connectWith(g, g.InstanceToken())
		guard.conn.Receive(protocol.Append(nil, &protocol.Hello{
			Name: "guard", ProtocolVersion: &version, Session: "one", Hooks: &protocol.Hooks{
				OnPreToolUse: []protocol.Rule{{
					Match:  protocol.Match{Tool: s.OwnTool("shell"), Args: `"cwd":"/p/secret"`},
					Action: protocol.ActionDeny, Reason: "it is secret",
				}},
			},
		}))
		if len(guard.errs) > 0 {
			t.Fatal(guard.errs[0])
		}
		const denial = "DENIED: the command is denied: provider guard: it is secret"
		for dir, want := range map[string]string{"": "", "/p": "", "/p/secret": denial} {
			_, err := permitted(t, s, ShellCommand{Text: "ls", Dir: dir}, adminapi.DecideSession)
			if got := errorText(err); got != want {
				t.Errorf("in %q: got the error %q, want %q", dir, got, want)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
