package copilot

import (
	"context"
	"fmt"

	sdk "github.com/github/copilot-sdk/go"
)

// A session is made without hooks: each is a question that the runtime waits for, at
// each prompt, call and end, while most sessions have nobody who wants to be asked. It
// gets them, once, when somebody does.

// lateHooksVersion is the runtime of which that was measured to be safe. On CLI 1.0.102
// a sub-agent that runs goes on with the hooks that it began with, none: sessions of any
// other runtime have theirs from the start.
const lateHooksVersion = "1.0.85"

// needsHooks reports whether somebody wants to be asked. Of a session that the gateway
// does not know yet nobody does.
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
		return nil // see hooked
	}
	err := s.resumeOn(ctx, c, s.appliedTools, true)
	if err != nil && !c.process.hasEnded() {
		return fmt.Errorf("having the Copilot runtime ask hooks: %w", err)
	}
	return nil
}

// hooksEnabled reports whether the runtime asks hooks about all that the session does. While
// the runtime is down, that is nothing: a turn begins with Send, which sees to it.
func (s *session) hooksEnabled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil || s.conn.hooksEnabled
}

// hooks are what the runtime asks on its way through a turn. Each request runs
// on a goroutine of the SDK's, so they may wait for the gateway.
func (s *session) hooks() *sdk.SessionHooks {
	return &sdk.SessionHooks{
		OnUserPromptSubmitted: func(in sdk.UserPromptSubmittedHookInput, _ sdk.HookInvocation) (*sdk.UserPromptSubmittedHookOutput, error) {
			if in.SessionID != s.id {
				return nil, nil // of a sub-agent: nobody said that
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
		// Comes at the end of a turn, before a prompt that waits begins.
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

// toolHook asks the providers about a call. It never allows one: that would
// pass over the permissions.
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

// awaitCalls waits until the session is registered; false if it ended.
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
