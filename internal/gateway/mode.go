package gateway

import (
	"context"
	"errors"
	"fmt"
)

// Modes are the modes that a session may have: the agent asks before it acts, plans only, or works on without asking.
var Modes = []string{"interactive", "plan", "autopilot"}

// ErrNoModes is the error of [Session.Mode] and [Session.SetMode] for a session whose host has no modes.
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

// SetMode changes the session's mode, to one of [Modes]. The error is [ErrNoModes], or the host's, which has 30
// seconds. Whoever calls it has asked a person.
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
