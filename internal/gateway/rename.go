package gateway

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// A session's label, which people and hosts may change.

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
