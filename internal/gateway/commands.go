package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Commands of a session's host, which people run.

// commandTimeout bounds a command of a host: one may ask the model, as a summary of the
// conversation does.
const commandTimeout = 5 * time.Minute

// maxCommandText bounds a command's text in the timeline, in bytes.
const maxCommandText = 64 << 10

// CommandResult is the result of a command: a text for people, a prompt for the agent, or neither.
type CommandResult struct {
	Text   string
	Prompt string // "": the command makes no prompt
	Shown  string // shown to people instead of Prompt
}

// Commands lists the commands of the session's host. The list is empty if the host has no commands.
// The error is the host's, which has 30 seconds.
func (s *Session) Commands(ctx context.Context) ([]adminapi.Command, error) {
	if s.info.Commands == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	list, err := s.info.Commands(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the commands: %w", err)
	}
	return list, nil
}

// RunCommand runs a command of the session's host for a person, and writes its text into the
// timeline. If the command makes a prompt, the session gets that. The error is NOT_FOUND if the
// session has no such command, or the host's, which has five minutes.
func (s *Session) RunCommand(
	ctx context.Context, name, input, traceparent string,
) (adminapi.CommandRan, error) {
	if s.info.RunCommand == nil {
		return adminapi.CommandRan{}, errorf(protocol.CodeNotFound,
			"sessions of host %s have no commands", s.info.Kind)
	}
	limited, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	r, err := s.info.RunCommand(limited, name, input)
	if err != nil {
		return adminapi.CommandRan{}, fmt.Errorf("running /%s: %w", name, err)
	}
	if len(r.Text) > maxCommandText {
		r.Text = strings.ToValidUTF8(r.Text[:maxCommandText], "") + "\n… the rest is left out"
	}
	if r.Text != "" || r.Prompt == "" {
		s.note(adminapi.LogInfo, SourceSession,
			strings.TrimSpace("/"+name+" "+input)+"\n"+stripEscapes(r.Text))
	}
	if r.Prompt == "" {
		return adminapi.CommandRan{Text: stripEscapes(r.Text)}, nil
	}
	_, err = s.Prompt(ctx, Prompt{Text: r.Prompt, Shown: r.Shown, Source: SourceUser,
		Traceparent: traceparent})
	return adminapi.CommandRan{Text: stripEscapes(r.Text), Prompted: true}, err
}
