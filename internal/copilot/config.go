package copilot

import (
	"reflect"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
)

// clientName says who we are in the runtime's requests.
const clientName = "tapgw"

// createConfig and resumeConfig describe the session to the runtime. They say
// the same: a resume replaces all that a creation set.
func (s *session) createConfig(gen int) *sdk.SessionConfig {
	c := *s.fixed
	c.SessionID = s.id
	model, effort := s.chosenModel()
	c.Model, c.ReasoningEffort = s.told(model), effort
	c.Provider = s.provider
	c.GitHubToken = s.githubToken
	c.ModelCapabilities = s.capabilities()
	c.SystemMessage = s.systemMessage()
	c.Hooks = s.hooks()
	c.OnPermissionRequest = leave
	c.OnUserInputRequest, c.OnElicitationRequest = s.asker()
	c.OnEvent = s.onEvent(gen)
	return &c
}

func (s *session) resumeConfig(gen int) *sdk.ResumeSessionConfig {
	c := &sdk.ResumeSessionConfig{}
	// The SDK has two types with the same fields.
	from, to := reflect.ValueOf(s.createConfig(gen)).Elem(), reflect.ValueOf(c).Elem()
	for i := range to.NumField() {
		if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() && f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
	c.ContinuePendingWork = new(false) // its calls have ended
	return c
}

// onEvent queues the events of one life of the session.
func (s *session) onEvent(gen int) sdk.SessionEventHandler {
	return func(e sdk.SessionEvent) { s.items.push(item{gen: gen, event: e}) }
}

// notFound recognises that the runtime has no such session on disk.
func notFound(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "session not found")
}

// hooks are what the runtime asks on its way through a turn. Each request runs
// on a goroutine of the SDK's, so they may wait for the gateway.
func (s *session) hooks() *sdk.SessionHooks {
	return &sdk.SessionHooks{
		OnUserPromptSubmitted: func(in sdk.UserPromptSubmittedHookInput, _ sdk.HookInvocation) (*sdk.UserPromptSubmittedHookOutput, error) {
			if in.SessionID != s.id {
				return nil, nil // of a sub-agent: nobody said that
			}
			s.sections.forget() // the runtime has made its message by now
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
			s.promptSpent()
			return s.stopHook(in), nil
		},
	}
}

// toolHook asks the providers about a call. It never allows one: that would
// pass over the permissions.
func (s *session) toolHook(in sdk.PreToolUseHookInput) *sdk.PreToolUseHookOutput {
	if !s.awaitCalls() {
		return &sdk.PreToolUseHookOutput{PermissionDecision: Deny, PermissionDecisionReason: errEnded.Error()}
	}
	d := s.calls.PreToolUse(s.ctx, in.ToolName, rawJSON(in.ToolArgs))
	switch {
	case d.Deny:
		return &sdk.PreToolUseHookOutput{PermissionDecision: Deny, PermissionDecisionReason: d.Reason}
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
