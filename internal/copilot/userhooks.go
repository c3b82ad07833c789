package copilot

import (
	"encoding/json"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// afterTool asks the user's hooks about a call that has ended. Their context for the model goes
// with the tool's result.
func (s *session) afterTool(e gateway.HookEvent) string {
	if !s.awaitCalls() {
		return ""
	}
	e.On = gateway.HookPostToolUse
	return s.calls.Hook(s.ctx, e).Context
}

func (s *session) afterToolHook(
	in sdk.PostToolUseHookInput, _ sdk.HookInvocation,
) (*sdk.PostToolUseHookOutput, error) {
	tool, args := s.called(in.ToolName, rawJSON(in.ToolArgs))
	e := gateway.HookEvent{Tool: tool, Args: args, Result: resultText(in.ToolResult)}
	if add := s.afterTool(e); add != "" {
		return &sdk.PostToolUseHookOutput{AdditionalContext: add}, nil
	}
	return nil, nil
}

func (s *session) afterFailureHook(
	in sdk.PostToolUseFailureHookInput, _ sdk.HookInvocation,
) (*sdk.PostToolUseFailureHookOutput, error) {
	tool, args := s.called(in.ToolName, rawJSON(in.ToolArgs))
	e := gateway.HookEvent{Tool: tool, Args: args, Error: in.Error}
	if add := s.afterTool(e); add != "" {
		return &sdk.PostToolUseFailureHookOutput{AdditionalContext: add}, nil
	}
	return nil, nil
}

// stopHook asks the user's hooks whether the agent may stop. The runtime asks at the end of a turn,
// before the next waiting prompt begins. If a hook denies, its reason is the agent's next prompt;
// the turn's budget bounds how often.
func (s *session) stopHook(
	in sdk.AgentStopHookInput, _ sdk.HookInvocation,
) (*sdk.AgentStopHookOutput, error) {
	if in.SessionID != s.id {
		return nil, nil // a sub-agent stops
	}
	s.expirePrompt()
	if !s.awaitCalls() {
		return nil, nil
	}
	e := gateway.HookEvent{On: gateway.HookAgentStop, Reason: in.StopReason,
		Again: in.StopHookActive}
	a := s.calls.Hook(s.ctx, e)
	if a.Decision != protocol.DecisionDeny || a.Reason == "" {
		return nil, nil
	}
	return &sdk.AgentStopHookOutput{Decision: "block", Reason: a.Reason}, nil
}

// resultText returns the text of a tool's result that the model reads.
func resultText(result any) string {
	var r struct {
		Text *string `json:"textResultForLlm"`
	}
	data := rawJSON(result)
	if json.Unmarshal(data, &r) == nil && r.Text != nil {
		return *r.Text
	}
	return string(data)
}
