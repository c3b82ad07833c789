package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// commandHost is a host whose only command says a text or makes a prompt.
type commandHost struct {
	result CommandResult
	err    error
}

func (h *commandHost) commands(context.Context) ([]adminapi.Command, error) {
	return []adminapi.Command{{Name: "say"}}, h.err
}

func (h *commandHost) runCommand(context.Context, string, string) (CommandResult, error) {
	return h.result, h.err
}

// TestCommands: what a command says is in the timeline, without what makes a terminal do more; what
// it makes for the agent is a prompt of which people see other words, that waits like others and
// can't be changed.
func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &commandHost{}
		s, h := turning(t, HostInfo{Turns: true, Commands: host.commands,
			RunCommand: host.runCommand})
		r := &queueRig{t, s, h}
		run := func(result CommandResult) adminapi.CommandRan {
			t.Helper()
			host.result = result
			ran, err := s.RunCommand(t.Context(), "say", "it", "")
			if err != nil {
				t.Fatal(err)
			}
			return ran
		}
		last := func() string {
			lines, _ := s.Timeline(0)
			return lines[len(lines)-1].Source + ": " + lines[len(lines)-1].Message
		}
		if ran := run(CommandResult{Text: "done\x1b[2J"}); ran.Text != "done" || ran.Prompted ||
			last() != "session: /say it\ndone" {
			t.Errorf("%+v and %q, want its text in both", ran, last())
		}
		if run(CommandResult{}); last() != "session: /say it\n" {
			t.Errorf("the timeline ends with %q, want the command", last())
		}
		if run(CommandResult{Text: strings.Repeat("é",
			maxCommandText)}); len(last()) > maxCommandText+100 ||
			!strings.HasSuffix(last(), "é\n… the rest is left out") {
			t.Errorf("the timeline ends with %d bytes, want a part", len(last()))
		}
		if ran := run(CommandResult{Prompt: "long words for the agent",
			Shown: "/say it"}); !ran.Prompted {
			t.Errorf("%+v, want a prompt", ran)
		}
		r.gave("long words for the agent")
		s.Busy()
		run(CommandResult{Prompt: "more words", Shown: "/say more"})
		r.waits("user: /say more")
		if err := s.EditQueued(s.Queue()[0].ID, "else"); !hasCode(err, protocol.CodeInvalidState) {
			t.Errorf("changing a command's prompt: %v, want INVALID_STATE", err)
		}
		host.err = errorf(protocol.CodeInvalidState, "not now")
		if _, err := s.RunCommand(t.Context(), "say", "", ""); !hasCode(err,
			protocol.CodeInvalidState) {
			t.Errorf("a command that is refused: %v, want INVALID_STATE", err)
		}
		if _, err := s.Commands(t.Context()); !hasCode(err, protocol.CodeInvalidState) {
			t.Errorf("a list that is refused: %v, want INVALID_STATE", err)
		}
	})
}

// TestNoCommands: a host without commands has none to list and to run.
func TestNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := turning(t, HostInfo{})
		if list, err := s.Commands(t.Context()); len(list) > 0 || err != nil {
			t.Errorf("%+v, %v; want none", list, err)
		}
		if _, err := s.RunCommand(t.Context(), "say", "", ""); !hasCode(err,
			protocol.CodeNotFound) {
			t.Errorf("running one: %v, want NOT_FOUND", err)
		}
	})
}

func hasCode(err error, code protocol.Code) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	return ok && e.Code == code
}
