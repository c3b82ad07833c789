package copilot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/visible"
)

// errorPersistence is the error type of a session that the runtime can't save.
const errorPersistence = "persistence"

// event handles an event by its type. Events of every type, known or not, are also kept raw for
// tapctl sessions log --events. The tables in docs/copilot.md say what becomes of each.
func (t *tracker) event(e sdk.SessionEvent) {
	if level, text := timelineLine(e.Data); text != "" {
		t.s.calls.Note(level, text)
	}
	switch d := e.Data.(type) {
	// Events of a turn.
	case *rpc.UserMessageData:
		t.userMessage(e, d)
	case *rpc.AssistantTurnStartData:
		t.turnStart(e, d)
	case *rpc.AssistantTurnEndData:
		if e.AgentID == nil {
			t.endAgent()
		}
	case *rpc.AssistantIntentData:
		t.emit(gateway.Event{Intent: d.Intent})
	case *rpc.AssistantReasoningDeltaData:
		t.delta(gateway.OnEndReasoning, d.ReasoningID, d.DeltaContent)
	case *rpc.AssistantReasoningData:
		t.complete(gateway.Event{Callback: gateway.OnEndReasoning, ID: d.ReasoningID,
			Content: d.Content})
	case *rpc.AssistantMessageDeltaData:
		t.delta(gateway.OnEndMessage, d.MessageID, d.DeltaContent)
	case *rpc.AssistantMessageData:
		t.message(d)
	case *rpc.ToolExecutionStartData:
		t.toolStart(d)
	case *rpc.ToolExecutionProgressData:
		t.toolDelta(d.ToolCallID, d.ProgressMessage)
	case *rpc.ToolExecutionPartialResultData:
		t.toolOutput(d.ToolCallID, d.PartialOutput)
	case *rpc.ToolExecutionCompleteData:
		t.toolEnd(d)
	case *rpc.RawSessionEventData:
		if d.EventType == toolTimeType {
			t.toolTime(d.Raw)
		}
	case *rpc.ExternalToolRequestedData:
		if c := t.conn(); c != nil {
			t.s.startCall(c, d)
		}
	case *rpc.ExternalToolCompletedData:
		t.s.cancelCall(d.RequestID)
	case *rpc.SystemNotificationData:
		t.notified(d)
	case *rpc.AbortData:
		t.abortReported()
	case *rpc.AssistantIdleData:
		t.assistantIdle(e)
	case *rpc.SessionIdleData:
		t.sessionIdle(deref(d.Aborted))
	case *rpc.SessionShutdownData:
		if t.s.joined != 0 && e.AgentID == nil {
			t.s.setOver()
		}

	// Questions to a person.
	case *rpc.PermissionRequestedData:
		if c := t.conn(); c != nil {
			t.s.answerPermission(c, d, t.toolUse(d.PermissionRequest))
		}
	case *rpc.PermissionCompletedData:
		t.s.cancelCall(d.RequestID)
	case *rpc.UserInputRequestedData:
		t.inputRequested(d)
	case *rpc.UserInputCompletedData:
		t.s.cancelCall(d.RequestID)
	case *rpc.ElicitationRequestedData:
		t.formRequested(d)
	case *rpc.ElicitationCompletedData:
		t.s.cancelCall(d.RequestID)

	// Errors, and the model's use of tokens and its context.
	case *rpc.SessionErrorData:
		switch d.ErrorType {
		case logType:
		case errorPersistence:
			t.reportUnsaved(d.Message)
		default:
			t.emit(gateway.Event{SessionError: t.s.errorText(d)})
			t.s.hideImages(t.conn(), d)
		}
	case *rpc.SessionInfoData:
		if d.InfoType == syncType {
			t.syncReached(d.Message)
		}
	case *rpc.AssistantUsageData:
		t.countModelCall(d)
	case *rpc.ModelCallFailureData:
		t.countFailedCall(d)
	case *rpc.SessionCompactionCompleteData:
		t.countCompaction(d)
	case *rpc.SessionUsageInfoData:
		if e.AgentID == nil {
			t.s.calls.SetContextWindow(t.prompt, adminapi.Context{
				Tokens: d.CurrentTokens, Limit: d.TokenLimit, System: deref(d.SystemTokens),
				Tools: deref(d.ToolDefinitionsTokens), Messages: deref(d.ConversationTokens),
			})
		}
	}
}

// timelineLine returns the timeline's line for an event. An event that gets none has the text "".
func timelineLine(data rpc.SessionEventData) (level adminapi.LogLevel, text string) {
	info := func(format string, args ...any) (adminapi.LogLevel, string) {
		return adminapi.LogInfo, fmt.Sprintf(format, args...)
	}
	warning := func(format string, args ...any) (adminapi.LogLevel, string) {
		return adminapi.LogWarning, fmt.Sprintf(format, args...)
	}
	switch d := data.(type) {
	// Warnings.
	case *rpc.SessionWarningData:
		if d.WarningType != logType {
			return adminapi.LogWarning, d.Message
		}
	case *rpc.ModelCallFailureData:
		return adminapi.LogWarning, failureText(d)
	case *rpc.AssistantTurnRetryData:
		return info("asking the model again%s", because(deref(d.Reason)))
	case *rpc.HookEndData:
		if !d.Success && d.Error != nil {
			return warning("hook %s failed: %s", d.HookType, d.Error.Message)
		}
	case *rpc.AutoModeSwitchRequestedData:
		ends := ""
		if s := d.RetryAfterSeconds; s != nil {
			ends = fmt.Sprintf("; it ends in %d s", *s)
		}
		return warning("the model's rate limit is used up%s%s", because(deref(d.ErrorCode)), ends)
	case *rpc.SessionLimitsExhaustedRequestedData:
		return warning("the session's limit is used up: %g of %g AI credits", d.UsedAiCredits,
			d.MaxAiCredits)
	case *rpc.SessionManagedSettingsEnforcedData:
		return warning("an administrator's policy applies: %s", d.Message)
	case *rpc.SessionAutoTierSwitchFailedData:
		return warning("the kind of model stays as it is%s", because(string(d.Reason)))
	case *rpc.SessionFusionRouteFailedData:
		return warning("model %s is used instead of %s%s", d.FallbackModel, d.SyntheticModel,
			because(d.Reason))
	case *rpc.AssistantFusionPhaseFailedData:
		return warning("model %s failed as %s%s", d.Model, d.Role,
			because(cmp.Or(deref(d.ErrorMessage), d.Reason)))

	// The model's context.
	case *rpc.SessionCompactionStartData:
		text := "compacting the conversation"
		if d.CurrentTokens != nil && d.TokenLimit != nil {
			text += fmt.Sprintf(": %d of %d tokens are used", *d.CurrentTokens, *d.TokenLimit)
		}
		if d.Trigger != nil {
			text += fmt.Sprintf(" (%s)", *d.Trigger)
		}
		return adminapi.LogInfo, text
	case *rpc.SessionCompactionCompleteData:
		if !d.Success {
			return warning("the conversation could not be compacted%s", because(deref(d.Error)))
		}
		return info("the conversation was compacted: %s became a summary, %s became %d",
			visible.Count(deref(d.MessagesRemoved), "message"),
			visible.Count(deref(d.PreCompactionTokens), "token"), deref(d.PostCompactionTokens))
	case *rpc.SessionTruncationData:
		return warning("the conversation was cut: %s of %s left out to fit into %d",
			visible.Count(d.MessagesRemovedDuringTruncation, "message"),
			visible.Count(d.TokensRemovedDuringTruncation, "token"), d.TokenLimit)
	case *rpc.SessionContextClearedData:
		return info("the conversation was cleared of %s",
			visible.Count(d.MessagesCleared, "message"))
	case *rpc.SessionSnapshotRewindData:
		return info("the session was rewound by %s", visible.Count(d.EventsRemoved, "event"))

	// Changes of the session.
	case *rpc.SessionModelChangeData:
		text := "model " + d.NewModel
		if was := deref(d.PreviousModel); was != "" && was != d.NewModel {
			text += ", was " + was
		}
		if effort := deref(d.ReasoningEffort); effort != "" {
			text += ", effort " + effort
		}
		return adminapi.LogInfo, text + because(deref(d.Cause))
	case *rpc.SessionAutoModeResolvedData:
		return info("auto chose model %s", d.ChosenModel)
	case *rpc.SessionModeChangedData:
		return info("mode %s, was %s", d.NewMode, d.PreviousMode)
	case *rpc.SessionPlanChangedData:
		return info("the plan was %s", pastTense(string(d.Operation)))
	case *rpc.ExitPlanModeRequestedData:
		return info("the model wants to carry out its plan: %s", d.Summary)
	case *rpc.SessionWorkspaceFileChangedData:
		return info("workspace file %s was %s", d.Path, pastTense(string(d.Operation)))
	case *rpc.SessionHandoffData:
		return info("the session was handed over: %s",
			cmp.Or(deref(d.Summary), string(d.SourceType)))
	case *rpc.SessionScheduleCreatedData:
		return info("a prompt is scheduled: %s", cmp.Or(deref(d.DisplayPrompt), d.Prompt))
	case *rpc.SessionScheduleCancelledData:
		return info("a scheduled prompt was cancelled")
	case *rpc.SystemNotificationData:
		return adminapi.LogInfo, d.Content
	case *rpc.SkillInvokedData:
		return info("skill %s", d.Name)

	// Agents and servers beside it.
	case *rpc.SubagentStartedData:
		return info("sub-agent %s began: %s", cmp.Or(d.AgentDisplayName, d.AgentName),
			d.AgentDescription)
	case *rpc.SubagentCompletedData:
		return info("sub-agent %s is done: %d tool calls, %d tokens, %s",
			cmp.Or(d.AgentDisplayName, d.AgentName),
			deref(d.TotalToolCalls), deref(d.TotalTokens),
			time.Duration(deref(d.DurationMs))*time.Millisecond)
	case *rpc.SubagentFailedData:
		return warning("sub-agent %s failed: %s", cmp.Or(d.AgentDisplayName, d.AgentName), d.Error)
	case *rpc.SubagentSelectedData:
		return info("agent %s", cmp.Or(d.AgentDisplayName, d.AgentName))
	case *rpc.SubagentDeselectedData:
		return info("the usual agent")
	case *rpc.SessionCustomAgentsUpdatedData:
		return adminapi.LogWarning, strings.Join(slices.Concat(d.Errors, d.Warnings), "; ")
	case *rpc.SessionMCPServersLoadedData:
		var failed []string
		for _, server := range d.Servers {
			if text := serverText(server.Name, server.Status, server.Error); text != "" {
				failed = append(failed, text)
			}
		}
		return adminapi.LogWarning, strings.Join(failed, "; ")
	case *rpc.SessionMCPServerStatusChangedData:
		return adminapi.LogWarning, serverText(d.ServerName, d.Status, d.Error)
	case *rpc.SessionMCPServerNeedsReconnectData:
		return warning("MCP server %s has to be connected again", d.ServerName)
	case *rpc.SessionMCPServerRemovedData:
		return info("MCP server %s is gone", d.ServerName)
	case *rpc.MCPOauthRequiredData:
		return warning("MCP server %s wants a sign-in at %s", d.ServerName, d.ServerURL)
	}
	return "", ""
}
