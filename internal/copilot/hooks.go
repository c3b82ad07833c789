package copilot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/chans"
)

// A session starts without hooks. The runtime waits for the answer to each hook, at each prompt,
// call and end of a turn, and some sessions have no rule, gate, user hook or limited edit that
// needs one. The session gets its hooks once, when something needs them.

// lateHooksVersion is the only runtime version on which enabling hooks later was measured to be
// safe. On CLI 1.0.102 a running sub-agent that began without hooks stays without them. Sessions of
// any other version have hooks from the start.
const lateHooksVersion = "1.0.85"

// needsHooks reports whether something needs the session's hooks: the trusted project's language
// servers, limited reads, or, once the gateway knows the session, a rule, gate or user hook.
func (s *session) needsHooks() bool {
	return s.hasLSP || s.guardsEdits() || chans.IsClosed(s.ready) && s.calls.NeedsHooks()
}

// EnableHooks is [gateway.HostInfo].EnableHooks.
func (s *session) EnableHooks(ctx context.Context) error {
	if s.hooksEnabled() {
		return nil
	}
	if err := s.configLock.Lock(ctx); err != nil {
		return err
	}
	defer s.configLock.Unlock()
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

// hooksEnabled reports whether the runtime asks hooks about all that the session does. It is true
// while the runtime is down, because nothing happens then and the next turn begins with Send, which
// enables them.
func (s *session) hooksEnabled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil || s.conn.hooksEnabled
}

// hooks returns the hooks that the runtime asks during a turn. Each request runs on a goroutine of
// the SDK, so a hook may wait for the gateway.
func (s *session) hooks() *sdk.SessionHooks {
	return &sdk.SessionHooks{
		OnUserPromptSubmitted: s.promptSubmitted,
		OnPreToolUse:          s.toolHook,
		OnPostToolUse:         s.afterToolHook,
		OnPostToolUseFailure:  s.afterFailureHook,
		OnAgentStop:           s.stopHook,
	}
}

// promptSubmitted adds the providers' context to a prompt. A sub-agent's prompt comes from an agent
// and gets nothing.
func (s *session) promptSubmitted(
	in sdk.UserPromptSubmittedHookInput, _ sdk.HookInvocation,
) (*sdk.UserPromptSubmittedHookOutput, error) {
	if in.SessionID != s.id {
		return nil, nil
	}
	s.sections.dropAnswers() // the runtime has made its system message by now
	add := s.promptHook(in.Prompt)
	if add == "" {
		return nil, nil
	}
	return &sdk.UserPromptSubmittedHookOutput{AdditionalContext: add}, nil
}

// hookDeny is the decision of a hook that keeps the runtime from calling a tool.
const hookDeny = "deny"

// toolHook asks rules and gates about a call, and then the permissions for which the runtime does
// not ask. It never answers allow, which would bypass the permissions.
func (s *session) toolHook(
	in sdk.PreToolUseHookInput, _ sdk.HookInvocation,
) (*sdk.PreToolUseHookOutput, error) {
	if !s.awaitCalls() {
		return &sdk.PreToolUseHookOutput{PermissionDecision: hookDeny,
			PermissionDecisionReason: errEnded.Error()}, nil
	}
	tool, args := s.called(in.ToolName, rawJSON(in.ToolArgs))
	d := s.calls.PreToolUse(s.ctx, tool, args)
	if tool != in.ToolName && !d.Deny {
		s.noteAsked(tool, args)
	}
	denial := ""
	if !d.Deny {
		denial = s.unaskedDenial(s.ctx, toolUse{tool, args})
	}
	switch {
	case denial != "":
		return &sdk.PreToolUseHookOutput{PermissionDecision: hookDeny,
			PermissionDecisionReason: denial}, nil
	case d.Deny:
		return &sdk.PreToolUseHookOutput{PermissionDecision: hookDeny,
			PermissionDecisionReason: d.Denial()}, nil
	case d.Context != "":
		return &sdk.PreToolUseHookOutput{AdditionalContext: d.Context}, nil
	}
	return nil, nil
}

// unaskedDenial judges the part of a call of the runtime's own tools for which the runtime does not
// ask for permission. It returns the reason for a denial; "" allows the call to begin. In a
// terminal its person decides.
func (s *session) unaskedDenial(ctx context.Context, u toolUse) string {
	switch {
	case s.joined != 0:
		return ""
	case u.tool == lspTool && !s.o.trusts(s.cwd):
		return "the project's files have changed since the user trusted them: its language " +
			"servers may start again " +
			"after " + configs.TrustCommand(s.cwd)
	case u.tool == codeSearchTool:
		return s.codeSearchDenial(ctx, u)
	}
	return s.editDenial(ctx, u)
}

// codeSearchTool is the runtime's tool that sends a query to GitHub.
const codeSearchTool = "semantic_code_search"

// codeSearchDenial decides about a search of code on GitHub as about the address to which the query
// goes.
func (s *session) codeSearchDenial(ctx context.Context, u toolUse) string {
	var args struct{ Repo, Query string }
	if err := json.Unmarshal(u.args, &args); err != nil {
		return "the arguments of the search can't be read, so nothing is allowed"
	}
	address := "https://api.github.com/repos/" + args.Repo + "/embeddings/code/search?query=" +
		url.QueryEscape(args.Query)
	return denialOf(s.decide(ctx,
		&rpc.PermissionRequestURL{URL: address, Intention: "search code on GitHub"}, nil))
}

// awaitCalls waits until the session is registered. It returns false if the session ended first.
func (s *session) awaitCalls() bool {
	select {
	case <-s.ready:
	case <-s.ctx.Done():
	}
	return s.ctx.Err() == nil
}
