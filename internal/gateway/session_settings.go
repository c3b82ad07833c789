package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// A session's label, model and mode, which people may change.

// maxLabel bounds a session's label, in characters.
const maxLabel = 200

// labelOf returns a label in the form that is shown: one line, without characters that hide or
// reverse others. Names of directories, branches and the hosts' sessions may have such characters.
func labelOf(text string) string {
	return visible.Controls(strings.NewReplacer("\n", " ", "\t", " ").Replace(text))
}

// Rename changes the session's label and announces it to providers. The error is
// INVALID_JSON for a label that is empty, longer than 200 characters or has control
// characters, or that of a host that can't store it; the session is renamed all the same
// then.
func (s *Session) Rename(ctx context.Context, label string) error {
	label = strings.TrimSpace(label)
	switch {
	case label == "":
		return errorf(protocol.CodeInvalidJSON, "label: is required")
	case utf8.RuneCountInString(label) > maxLabel:
		return errorf(protocol.CodeInvalidJSON, "label: is longer than %d characters", maxLabel)
	case strings.ContainsFunc(label, unicode.IsControl):
		return errorf(protocol.CodeInvalidJSON, "label: must not hold control characters")
	}
	s.Update(label, "")
	s.note(adminapi.LogInfo, sourceGateway, "renamed to "+s.label())
	if s.info.SetLabel == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	if err := s.info.SetLabel(ctx, label); err != nil {
		return fmt.Errorf("the session is renamed, but not on disk: %w", err)
	}
	return nil
}

// Effort returns how hard the session's model reasons, as its host says it. It is "" if it was not
// chosen, and for a host that does not know it.
func (s *Session) Effort() string {
	if s.info.Effort != nil {
		return s.info.Effort()
	}
	return ""
}

// SetModel changes the session's model from the next request on; an empty effort is the
// host's choice. The error is INVALID_STATE if the host has no model, or the host's, which
// has 30 seconds.
func (s *Session) SetModel(ctx context.Context, model, effort string) error {
	if s.info.SetModel == nil {
		return errorf(protocol.CodeInvalidState, "a session of host %s has no model to change",
			s.info.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	if err := s.info.SetModel(ctx, model, effort); err != nil {
		return err
	}
	s.Update("", model)
	return nil
}

// Modes are the modes that a session may have: the agent asks before it acts, plans only, or works
// on without asking.
var Modes = []string{"interactive", "plan", "autopilot"}

// ErrNoModes is the error of [Session.Mode] and [Session.SetMode] for a session whose host has no
// modes.
var ErrNoModes = errors.New("sessions of this host have no modes")

// Mode returns the session's mode. The error is [ErrNoModes], or the host's, which has 30 seconds.
func (s *Session) Mode(ctx context.Context) (string, error) {
	if s.info.Mode == nil {
		return "", ErrNoModes
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	mode, err := s.info.Mode(ctx)
	if err != nil {
		return "", fmt.Errorf("asking for the mode: %w", err)
	}
	return mode, nil
}

// SetMode changes the session's mode, to one of [Modes]. The error is [ErrNoModes], or the host's,
// which has 30 seconds. Whoever calls it has asked a person.
func (s *Session) SetMode(ctx context.Context, mode string) error {
	if s.info.SetMode == nil {
		return ErrNoModes
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	if err := s.info.SetMode(ctx, mode); err != nil {
		return fmt.Errorf("changing the mode: %w", err)
	}
	return nil
}

// OwnTool returns the name of the host's own tool for shell, edit or read, under which
// [Session.PreToolUse] judges a provider that does the same thing. It is the alias itself if the
// host has no name for it.
func (s *Session) OwnTool(alias string) string {
	if names := s.info.Aliases[alias]; len(names) > 0 {
		return names[0]
	}
	return alias
}
