package copilot

import (
	"context"
	"fmt"
	"strings"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/toolsearch"
)

// permissions returns the session's permissions at this moment, and notes in the timeline which of
// them a project's file has made stricter. They never get wider while the session runs, because its
// model may be able to change the file.
func (s *session) permissions() *configs.Permissions {
	p, stricter := s.tighten()
	if stricter != "" {
		s.note(adminapi.LogWarning, stricter)
	}
	return p
}

// tighten makes the session's permissions as strict as the files of the projects around it.
// stricter names the file and the permissions that have become stricter; "" for no change.
func (s *session) tighten() (p *configs.Permissions, stricter string) {
	if s.joined != 0 {
		return &s.o.Permissions, "" // the person at the terminal decides
	}
	s.mu.Lock()
	before := s.tightened
	s.mu.Unlock()
	if before == nil {
		before = &s.o.Permissions
	}
	now := *before
	file := now.TightenAt(s.cwd)
	if file == "" {
		return before, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tightened != nil && s.tightened != before {
		now.Tighten(*s.tightened) // another call has read the files meanwhile
	}
	s.tightened = &now
	return &now, fmt.Sprintf("%s, trusted or not, makes the session stricter until it ends: "+
		"[copilot.permissions] has now other values of %s", file,
		strings.Join(configs.Changed(*before, now), ", "))
}

// needsPermission reports whether a call of a provider's tool needs a permission for which the
// runtime has not asked: when the session started, such calls did not need one.
func (s *session) needsPermission(tool string) bool {
	return s.skipsPermission() && s.permissions().CustomTool != configs.Allow &&
		(tool == toolsearch.Call || !s.isSearcher(tool)) // the others only read the list
}

// permitted makes a call of a provider's tool if the policy, or a person, allows it.
func (s *session) permitted(
	ctx context.Context, c gateway.Call, call func(context.Context, gateway.Call) gateway.Outcome,
) gateway.Outcome {
	denial := denialOf(s.decide(ctx, &rpc.PermissionRequestCustomTool{ToolName: c.Name,
		Args: c.Args}, nil))
	if denial != "" {
		return gateway.Outcome{Error: denial, ErrorCode: protocol.CodeDenied}
	}
	return call(ctx, c)
}
