package copilot

import (
	"context"
	"fmt"

	sdk "github.com/github/copilot-sdk/go"
)

// A session starts without hooks. The runtime waits for the answer to each hook, at each prompt, call and end of a
// turn, and most sessions have no rule, gate or user hook that needs one. The session gets its hooks once, when
// something needs them.

// lateHooksVersion is the only runtime version on which enabling hooks later was measured to be safe. On CLI 1.0.102 a
// running sub-agent keeps the hooks that it began with: none. Sessions of any other version have hooks from the start.
const lateHooksVersion = "1.0.85"

// needsHooks reports whether something needs the session's hooks. It is false until the gateway knows the session.
func (s *session) needsHooks() bool {
	select {
	case <-s.ready:
		return s.calls.NeedsHooks()
	default:
		return false
	}
}

// EnableHooks implements [gateway.HookHost].
func (s *session) EnableHooks(ctx context.Context) error {
	if s.hooksEnabled() {
		return nil
	}
	if err := s.configLock.lock(ctx); err != nil {
		return err
	}
	defer s.configLock.unlock()
	if s.hooksEnabled() {
		return nil
	}
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return nil // see hooksEnabled
	}
	err := s.resumeOn(ctx, c, s.appliedTools, true)
	if err != nil && !c.process.hasEnded() {
		return fmt.Errorf("having the Copilot runtime ask hooks: %w", err)
	}
	return nil
}

// hooksEnabled reports whether the runtime asks hooks about all that the session does. It is true while the runtime is
// down, because nothing happens then and the next turn begins with Send, which enables them.
func (s *session) hooksEnabled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil || s.conn.hooksEnabled
}

// hooks returns the hooks that the runtime asks during a turn. Each request runs on a goroutine of the SDK, so a hook
// may wait for the gateway.
func (s *session) hooks() *sdk.SessionHooks {
	return &sdk.SessionHooks{
		OnUserPromptSubmitted: func(in sdk.UserPromptSubmittedHookInput, _ sdk.HookInvocation) (*sdk.UserPromptSubmittedHookOutput, error) {
			if in.SessionID != s.id {
				return nil, nil // a sub-agent's prompt is no user's
			}
			s.sections.dropAnswers() // the runtime has made its message by now
			add := s.promptHook(in.Prompt)
			if add == "" {
				return nil, nil
			}
			return &sdk.UserPromptSubmittedHookOutput{AdditionalContext: add}, nil
		},
		OnPreToolUse: func(in sdk.PreToolUseHookInput, _ sdk.HookInvocation) (*sdk.PreToolUseHookOutput, error) {
			return s.toolHook(in), nil
		},
		OnPostToolUse: func(in sdk.PostToolUseHookInput, _ sdk.HookInvocation) (*sdk.PostToolUseHookOutput, error) {
			return s.afterToolHook(in), nil
		},
		OnPostToolUseFailure: func(in sdk.PostToolUseFailureHookInput, _ sdk.HookInvocation) (*sdk.PostToolUseFailureHookOutput, error) {
			return s.afterFailureHook(in), nil
		},
		// The runtime asks this at the end of a turn, before the next waiting prompt begins.
		OnAgentStop: func(in sdk.AgentStopHookInput, _ sdk.HookInvocation) (*sdk.AgentStopHookOutput, error) {
			if in.SessionID != s.id {
				return nil, nil
			}
			s.expirePrompt()
			return s.stopHook(in), nil
		},
	}
}

// hookDeny is the decision of a hook that keeps the runtime from calling a tool.
const hookDeny = "deny"

// toolHook asks rules and gates about a call. It never answers allow, which would bypass the permissions.
func (s *session) toolHook(in sdk.PreToolUseHookInput) *sdk.PreToolUseHookOutput {
	if !s.awaitCalls() {
		return &sdk.PreToolUseHookOutput{PermissionDecision: hookDeny, PermissionDecisionReason: errEnded.Error()}
	}
	d := s.calls.PreToolUse(s.ctx, in.ToolName, rawJSON(in.ToolArgs))
	switch {
	case d.Deny:
		return &sdk.PreToolUseHookOutput{PermissionDecision: hookDeny, PermissionDecisionReason: d.Reason}
	case d.Context != "":
		return &sdk.PreToolUseHookOutput{AdditionalContext: d.Context}
	}
	return nil
}

// awaitCalls waits until the session is registered. It returns false if the session ended first.
func (s *session) awaitCalls() bool {
	select {
	case <-s.ctx.Done():
		return false
	default:
	}
	select {
	case <-s.ready:
		return true
	case <-s.ctx.Done():
		return false
	}
}
