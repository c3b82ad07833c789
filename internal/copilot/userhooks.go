package copilot

import (
	"encoding/json"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// afterTool asks the user's hooks about a call that is over. What they say for
// the model goes with the tool's result.
func (s *session) afterTool(e gateway.HookEvent) string {
	if !s.awaitCalls() {
		return ""
	}
	e.On = gateway.HookPostToolUse
	return s.calls.Hook(s.ctx, e).Context
}

func (s *session) afterToolHook(in sdk.PostToolUseHookInput) *sdk.PostToolUseHookOutput {
	add := s.afterTool(
		gateway.HookEvent{Tool: in.ToolName, Args: rawJSON(in.ToolArgs), Result: resultText(in.ToolResult)},
	)
	if add == "" {
		return nil
	}
	return &sdk.PostToolUseHookOutput{AdditionalContext: add}
}

func (s *session) afterFailureHook(in sdk.PostToolUseFailureHookInput) *sdk.PostToolUseFailureHookOutput {
	add := s.afterTool(gateway.HookEvent{Tool: in.ToolName, Args: rawJSON(in.ToolArgs), Error: in.Error})
	if add == "" {
		return nil
	}
	return &sdk.PostToolUseFailureHookOutput{AdditionalContext: add}
}

// stopHook asks the user's hooks whether the agent may stop. If not, their reason
// is what it is asked next; the turn's budget bounds how often.
func (s *session) stopHook(in sdk.AgentStopHookInput) *sdk.AgentStopHookOutput {
	if !s.awaitCalls() {
		return nil
	}
	a := s.calls.Hook(
		s.ctx, gateway.HookEvent{On: gateway.HookAgentStop, Reason: in.StopReason, Again: in.StopHookActive},
	)
	if a.Decision != protocol.DecisionDeny || a.Reason == "" {
		return nil
	}
	return &sdk.AgentStopHookOutput{Decision: "block", Reason: a.Reason}
}

// resultText is what the model reads of a tool's result.
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
