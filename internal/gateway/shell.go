package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// ShellCommand is a command that a provider is to run for the session's model.
type ShellCommand struct {
	Text string
	Dir  string // where it runs, an absolute path; "" for the session's directory
	Why  string // the purpose, for a person: which provider runs it, where and when
	Call string // id of the tool.call that asks for it
}

// Line is the command line that does the same in a shell that begins in the session's directory.
func (c ShellCommand) Line() string {
	if c.Dir == "" {
		return c.Text
	}
	return "cd '" + strings.ReplaceAll(c.Dir, "'", `'\''`) + "' && " + c.Text
}

// PermitShell decides whether a provider may run a command for the session's model. It asks
// everything that also guards the host's own shell: rules and gates, and then the host's rules. For
// a host without rules of its own it asks a person, whose answer may hold for the session. The
// error names the party that denied it, in one line for the model.
func (s *Session) PermitShell(ctx context.Context, c ShellCommand) error {
	args, err := json.Marshal(struct {
		Command string `json:"command"`
		CWD     string `json:"cwd,omitempty"`
	}{c.Text, c.Dir})
	if err != nil {
		return err
	}
	if d := s.PreToolUse(ctx, s.OwnTool("shell"), args); d.Deny {
		return errorf(protocol.CodeDenied, "the command is denied: %s", d.Denial())
	}
	if s.info.PermitShell != nil {
		if denial := s.info.PermitShell(ctx, c); denial != "" {
			return errorf(protocol.CodeDenied, "the command is denied: %s", denial)
		}
		return nil
	}
	line := c.Line()
	s.mu.Lock()
	isPermitted := s.permitted[line]
	s.mu.Unlock()
	if isPermitted {
		return nil
	}
	a, err := s.Ask(ctx, Question{
		Kind: adminapi.QuestionPermission, Detail: line, Call: c.Call,
		Message: fmt.Sprintf(
			"May the session run this command? It is to: %s (session: this very "+
				"command from now on)",
			c.Why),
	})
	switch {
	case err != nil:
		return fmt.Errorf("asking the person about the command: %w", err)
	case a.Denied():
		return errorf(protocol.CodeDenied, "%s",
			strings.TrimSuffix("the person refused the command: "+a.Text, ": "))
	case a.Decision == adminapi.DecideSession:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.permitted[line] = true
	}
	return nil
}
