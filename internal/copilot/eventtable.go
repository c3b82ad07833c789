package copilot

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// eventRow says how the events of one type are handled. Events of every type, known or not, are
// also kept raw for tapctl sessions log --events. docs/copilot.md is made from the texts.
type eventRow struct {
	typ      rpc.SessionEventType
	level    adminapi.LogLevel // of the timeline's line; "": no line
	timeline string            // the content of the line
	live     string            // callbacks
	event    string            // the session.event that subscribed providers get
	also     string
	do       func(*tracker, sdk.SessionEvent) // nil: only the raw log
}

// newRow is a row for events with data of type D.
func newRow[D rpc.SessionEventData](do func(*tracker, sdk.SessionEvent, D)) eventRow {
	var d D
	return eventRow{typ: d.Type(), do: func(t *tracker, e sdk.SessionEvent) {
		if d, ok := e.Data.(D); ok {
			do(t, e, d)
		}
	}}
}

// timelineRow is a row for events that become a line of the timeline. An event for which say
// returns "" gets no line.
func timelineRow[D rpc.SessionEventData](level adminapi.LogLevel, what string, say func(D) string) eventRow {
	row := newRow(func(t *tracker, _ sdk.SessionEvent, d D) {
		if text := say(d); text != "" {
			t.s.calls.Note(level, text)
		}
	})
	row.level, row.timeline = level, what
	return row
}

func (r eventRow) inTimeline(level adminapi.LogLevel, what string) eventRow {
	r.level, r.timeline = level, what
	return r
}

func (r eventRow) callbacks(names ...string) eventRow {
	r.live = strings.Join(names, ", ")
	return r
}

func (r eventRow) forwarded(name string) eventRow {
	r.event = name
	return r
}

func (r eventRow) withNote(also string) eventRow {
	r.also = also
	return r
}

// onlyRaw returns rows for events that only the raw log gets.
func onlyRaw(types ...rpc.SessionEventType) []eventRow {
	rows := make([]eventRow, len(types))
	for i, typ := range types {
		rows[i].typ = typ
	}
	return rows
}

// errorPersistence is the error type of a session that the runtime can't save.
const errorPersistence = "persistence"

// eventRows finds a row by its type. Only a Copilot session needs it.
var eventRows = sync.OnceValue(func() map[rpc.SessionEventType]eventRow {
	rows := map[rpc.SessionEventType]eventRow{}
	for _, row := range eventTable {
		rows[row.typ] = row
	}
	return rows
})

// eventTable has a row for each type of event that the SDK knows, and for toolTimeType.
var eventTable = append([]eventRow{
	// Events of a turn.
	newRow(func(t *tracker, e sdk.SessionEvent, d *rpc.UserMessageData) { t.userMessage(e, d) }).
		inTimeline(adminapi.LogInfo, "the prompt; a provider's was shown when it was pushed").
		forwarded(protocol.EventUserMessage).withNote("the session is busy; the turn's budget begins"),
	newRow(func(t *tracker, e sdk.SessionEvent, d *rpc.AssistantTurnStartData) { t.turnStart(e, d) }).
		callbacks(gateway.OnAgentStart).withNote("counts against `max_rounds`"),
	newRow(func(t *tracker, e sdk.SessionEvent, _ *rpc.AssistantTurnEndData) {
		if e.AgentID == nil {
			t.endAgent()
		}
	}).callbacks(gateway.OnAgentEnd),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantIntentData) {
		t.emit(gateway.Event{Intent: d.Intent})
	}).
		forwarded(protocol.EventAssistantIntent),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantReasoningDeltaData) {
		t.delta(gateway.OnEndReasoning, d.ReasoningID, d.DeltaContent)
	}).callbacks(gateway.OnStartReasoning, gateway.OnReasoning),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantReasoningData) {
		t.complete(gateway.Event{Callback: gateway.OnEndReasoning, ID: d.ReasoningID, Content: d.Content})
	}).callbacks(gateway.OnEndReasoning),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantMessageDeltaData) {
		t.delta(gateway.OnEndMessage, d.MessageID, d.DeltaContent)
	}).callbacks(gateway.OnStartMessage, gateway.OnMessage),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantMessageData) { t.message(d) }).
		inTimeline(adminapi.LogInfo, "what the model said").callbacks(gateway.OnEndMessage).
		forwarded(protocol.EventAssistantMessage).withNote("what it intends with a call: `assistant.intent`"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ToolExecutionStartData) { t.toolStart(d) }).
		callbacks(gateway.OnStartToolExecution),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ToolExecutionProgressData) {
		t.toolDelta(d.ToolCallID, d.ProgressMessage)
	}).callbacks(gateway.OnToolExecution),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ToolExecutionPartialResultData) {
		t.toolOutput(d.ToolCallID, d.PartialOutput)
	}).callbacks(gateway.OnToolExecution),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ToolExecutionCompleteData) { t.toolEnd(d) }).
		callbacks(gateway.OnEndToolExecution).forwarded(protocol.EventToolComplete),
	{typ: toolTimeType, also: "`durationMs` of the call in the live feed", do: (*tracker).toolTime},
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ExternalToolRequestedData) {
		if c := t.conn(); c != nil {
			t.s.startCall(c, d)
		}
	}).withNote("`tool.call` to the provider"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ExternalToolCompletedData) { t.s.cancelCall(d.RequestID) }).
		withNote("`tool.cancel`, if the provider has not answered"),
	newRow(func(t *tracker, _ sdk.SessionEvent, _ *rpc.AbortData) { t.abortReported() }).
		withNote("ends callbacks that are open, calls in flight and questions"),

	// Questions to a person.
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.PermissionRequestedData) {
		if c := t.conn(); c != nil {
			t.s.answerPermission(c, d, t.toolUse(d.PermissionRequest))
		}
	}).inTimeline(adminapi.LogWarning, "a denial with its reason; what is asked, and the answer").
		withNote("answered by the policy, or a question of kind `permission`"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.PermissionCompletedData) { t.s.cancelCall(d.RequestID) }).
		withNote("ends the question"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.UserInputRequestedData) { t.inputRequested(d) }).
		inTimeline(adminapi.LogWarning, "what is asked, and the answer").withNote("a question of kind `input`"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.UserInputCompletedData) { t.s.cancelCall(d.RequestID) }).
		withNote("ends the question"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ElicitationRequestedData) { t.formRequested(d) }).
		inTimeline(adminapi.LogWarning, "what is asked, and the answer").withNote("a question of kind `form`"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ElicitationCompletedData) { t.s.cancelCall(d.RequestID) }).
		withNote("ends the question"),
	newRow(func(t *tracker, e sdk.SessionEvent, _ *rpc.AssistantIdleData) { t.assistantIdle(e) }).
		withNote("ends the turn of a session that can't be saved, which is never said to be idle"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SessionIdleData) {
		t.sessionIdle(d.Aborted != nil && *d.Aborted)
	}).
		callbacks(gateway.OnIdle).withNote("`session.lifecycle` idle, once no prompt waits"),

	// Errors and warnings.
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SessionErrorData) {
		switch d.ErrorType {
		case logType:
		case errorPersistence:
			t.reportUnsaved(d.Message)
		default:
			t.emit(gateway.Event{SessionError: t.s.errorText(d)})
			t.s.hideImages(t.conn(), d)
		}
	}).inTimeline(adminapi.LogError, "its message; that the session can't be saved once, while it lasts").
		callbacks("sessionError").forwarded(protocol.EventSessionError),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SessionWarningData) {
		if d.WarningType != logType {
			t.s.calls.Note(adminapi.LogWarning, d.Message)
		}
	}).inTimeline(adminapi.LogWarning, "its message"),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SessionInfoData) {
		if d.InfoType == syncType {
			t.syncReached(d.Message)
		}
	}),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.ModelCallFailureData) {
		t.s.calls.Note(adminapi.LogWarning, failureText(d))
		t.countFailedCall(d)
	}).inTimeline(adminapi.LogWarning, "model, status and message of a call that failed, each time").
		withNote("usage: a failure"),
	timelineRow(adminapi.LogInfo, "that the model is asked again, and why", func(d *rpc.AssistantTurnRetryData) string {
		return "asking the model again" + because(deref(d.Reason))
	}),
	timelineRow(adminapi.LogWarning, "which hook failed, and how; nothing where it did not",
		func(d *rpc.HookEndData) string {
			if d.Success || d.Error == nil {
				return ""
			}
			return fmt.Sprintf("hook %s failed: %s", d.HookType, d.Error.Message)
		}),
	timelineRow(adminapi.LogWarning, "that a rate limit was met, and when it ends",
		func(d *rpc.AutoModeSwitchRequestedData) string {
			text := "the model's rate limit is used up" + because(deref(d.ErrorCode))
			if s := d.RetryAfterSeconds; s != nil {
				text += fmt.Sprintf("; it ends in %d s", *s)
			}
			return text
		}),
	timelineRow(adminapi.LogWarning, "that the session's AI credits are used up",
		func(d *rpc.SessionLimitsExhaustedRequestedData) string {
			return fmt.Sprintf("the session's limit is used up: %g of %g AI credits", d.UsedAiCredits, d.MaxAiCredits)
		}),
	timelineRow(adminapi.LogWarning, "what an administrator's policy changed",
		func(d *rpc.SessionManagedSettingsEnforcedData) string {
			return "an administrator's policy applies: " + d.Message
		}),
	timelineRow(adminapi.LogWarning, "that the kind of model could not be changed",
		func(d *rpc.SessionAutoTierSwitchFailedData) string {
			return "the kind of model stays as it is" + because(string(d.Reason))
		}),
	timelineRow(adminapi.LogWarning, "which model is used instead", func(d *rpc.SessionFusionRouteFailedData) string {
		return fmt.Sprintf("model %s is used instead of %s%s", d.FallbackModel, d.SyntheticModel, because(d.Reason))
	}),
	timelineRow(adminapi.LogWarning, "which of several models failed",
		func(d *rpc.AssistantFusionPhaseFailedData) string {
			return fmt.Sprintf(
				"model %s failed as %s%s", d.Model, d.Role, because(cmp.Or(deref(d.ErrorMessage), d.Reason)),
			)
		}),

	// The model's use of tokens and its context.
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.AssistantUsageData) { t.countModelCall(d) }).
		withNote("usage: tokens, cost, time of one call"),
	newRow(func(t *tracker, e sdk.SessionEvent, d *rpc.SessionUsageInfoData) {
		if e.AgentID == nil {
			t.s.calls.SetContextWindow(t.prompt, adminapi.Context{
				Tokens: d.CurrentTokens, Limit: d.TokenLimit, System: int64OrZero(d.SystemTokens),
				Tools: int64OrZero(d.ToolDefinitionsTokens), Messages: int64OrZero(d.ConversationTokens),
			})
		}
	}).withNote("usage: how full the context is, by part"),
	timelineRow(adminapi.LogInfo, "that the conversation is being summed up, and why",
		func(d *rpc.SessionCompactionStartData) string {
			text := "compacting the conversation"
			if d.CurrentTokens != nil && d.TokenLimit != nil {
				text += fmt.Sprintf(": %d of %d tokens are used", *d.CurrentTokens, *d.TokenLimit)
			}
			if d.Trigger != nil {
				text += fmt.Sprintf(" (%s)", *d.Trigger)
			}
			return text
		}),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SessionCompactionCompleteData) {
		t.countCompaction(d)
		if !d.Success {
			t.s.calls.Note(adminapi.LogWarning, "the conversation could not be compacted"+because(deref(d.Error)))
			return
		}
		t.s.calls.Note(
			adminapi.LogInfo,
			fmt.Sprintf(
				"the conversation was compacted: %s became a summary, %s became %d",
				visible.Count(int64OrZero(d.MessagesRemoved), "message"),
				visible.Count(int64OrZero(d.PreCompactionTokens), "token"), int64OrZero(d.PostCompactionTokens),
			),
		)
	}).inTimeline(adminapi.LogInfo, "how much it became; a warning where it failed").
		withNote("usage: the call that it took"),
	timelineRow(adminapi.LogWarning, "how much of the conversation was left out",
		func(d *rpc.SessionTruncationData) string {
			return fmt.Sprintf("the conversation was cut: %s of %s left out to fit into %d",
				visible.Count(d.MessagesRemovedDuringTruncation, "message"),
				visible.Count(d.TokensRemovedDuringTruncation, "token"), d.TokenLimit)
		}),
	timelineRow(adminapi.LogInfo, "how many messages were taken away", func(d *rpc.SessionContextClearedData) string {
		return "the conversation was cleared of " + visible.Count(d.MessagesCleared, "message")
	}),
	timelineRow(adminapi.LogInfo, "how many events were taken back", func(d *rpc.SessionSnapshotRewindData) string {
		return "the session was rewound by " + visible.Count(d.EventsRemoved, "event")
	}),

	// Changes of the session.
	timelineRow(adminapi.LogInfo, "from which model to which", func(d *rpc.SessionModelChangeData) string {
		text := "model " + d.NewModel
		if was := deref(d.PreviousModel); was != "" && was != d.NewModel {
			text += ", was " + was
		}
		if effort := deref(d.ReasoningEffort); effort != "" {
			text += ", effort " + effort
		}
		return text + because(deref(d.Cause))
	}),
	timelineRow(adminapi.LogInfo, "which model auto chose", func(d *rpc.SessionAutoModeResolvedData) string {
		return "auto chose model " + d.ChosenModel
	}),
	timelineRow(adminapi.LogInfo, "from which mode to which", func(d *rpc.SessionModeChangedData) string {
		return fmt.Sprintf("mode %s, was %s", d.NewMode, d.PreviousMode)
	}),
	timelineRow(adminapi.LogInfo, "what was done to the plan", func(d *rpc.SessionPlanChangedData) string {
		return "the plan was " + pastTense(string(d.Operation))
	}),
	timelineRow(adminapi.LogInfo, "the plan in short", func(d *rpc.ExitPlanModeRequestedData) string {
		return "the model wants to carry out its plan: " + d.Summary
	}),
	timelineRow(adminapi.LogInfo, "which file of the session's workspace was written",
		func(d *rpc.SessionWorkspaceFileChangedData) string {
			return fmt.Sprintf("workspace file %s was %s", d.Path, pastTense(string(d.Operation)))
		}),
	timelineRow(adminapi.LogInfo, "that it goes on elsewhere", func(d *rpc.SessionHandoffData) string {
		return "the session was handed over: " + cmp.Or(deref(d.Summary), string(d.SourceType))
	}),
	timelineRow(adminapi.LogInfo, "the prompt and that it comes by itself",
		func(d *rpc.SessionScheduleCreatedData) string {
			return "a prompt is scheduled: " + cmp.Or(deref(d.DisplayPrompt), d.Prompt)
		}),
	timelineRow(adminapi.LogInfo, "that a scheduled prompt does not come",
		func(*rpc.SessionScheduleCancelledData) string {
			return "a scheduled prompt was cancelled"
		}),
	newRow(func(t *tracker, _ sdk.SessionEvent, d *rpc.SystemNotificationData) {
		if d.Content != "" {
			t.s.calls.Note(adminapi.LogInfo, d.Content)
		}
		t.notified(d)
	}).inTimeline(adminapi.LogInfo, "what the runtime tells the model"),
	timelineRow(
		adminapi.LogInfo,
		"the skill's name",
		func(d *rpc.SkillInvokedData) string { return "skill " + d.Name },
	),

	// Agents and servers beside it.
	timelineRow(adminapi.LogInfo, "which sub-agent began, and what it is for", func(d *rpc.SubagentStartedData) string {
		return fmt.Sprintf("sub-agent %s began: %s", cmp.Or(d.AgentDisplayName, d.AgentName), d.AgentDescription)
	}),
	timelineRow(adminapi.LogInfo, "which sub-agent is done, and what it took",
		func(d *rpc.SubagentCompletedData) string {
			return fmt.Sprintf(
				"sub-agent %s is done: %d tool calls, %d tokens, %s", cmp.Or(d.AgentDisplayName, d.AgentName),
				int64OrZero(d.TotalToolCalls), int64OrZero(d.TotalTokens),
				time.Duration(int64OrZero(d.DurationMs))*time.Millisecond,
			)
		}),
	timelineRow(adminapi.LogWarning, "which sub-agent failed, and how", func(d *rpc.SubagentFailedData) string {
		return fmt.Sprintf("sub-agent %s failed: %s", cmp.Or(d.AgentDisplayName, d.AgentName), d.Error)
	}),
	timelineRow(adminapi.LogInfo, "which agent answers from now on", func(d *rpc.SubagentSelectedData) string {
		return "agent " + cmp.Or(d.AgentDisplayName, d.AgentName)
	}),
	timelineRow(
		adminapi.LogInfo, "that no agent was chosen",
		func(*rpc.SubagentDeselectedData) string { return "the usual agent" },
	),
	timelineRow(adminapi.LogWarning, "what is wrong with the files of custom agents",
		func(d *rpc.SessionCustomAgentsUpdatedData) string {
			return strings.Join(append(append([]string(nil), d.Errors...), d.Warnings...), "; ")
		}),
	timelineRow(adminapi.LogWarning, "which MCP servers failed; nothing where none did",
		func(d *rpc.SessionMCPServersLoadedData) string {
			var failed []string
			for _, server := range d.Servers {
				if text := serverText(server.Name, server.Status, server.Error); text != "" {
					failed = append(failed, text)
				}
			}
			return strings.Join(failed, "; ")
		}),
	timelineRow(adminapi.LogWarning, "that an MCP server failed or wants a sign-in; nothing else",
		func(d *rpc.SessionMCPServerStatusChangedData) string {
			return serverText(d.ServerName, d.Status, d.Error)
		}),
	timelineRow(adminapi.LogWarning, "which MCP server was lost",
		func(d *rpc.SessionMCPServerNeedsReconnectData) string {
			return fmt.Sprintf("MCP server %s has to be connected again", d.ServerName)
		}),
	timelineRow(adminapi.LogInfo, "which MCP server is gone", func(d *rpc.SessionMCPServerRemovedData) string {
		return fmt.Sprintf("MCP server %s is gone", d.ServerName)
	}),
	timelineRow(adminapi.LogWarning, "which MCP server wants a sign-in, which a daemon can't give",
		func(d *rpc.MCPOauthRequiredData) string {
			return fmt.Sprintf("MCP server %s wants a sign-in at %s", d.ServerName, d.ServerURL)
		}),
}, onlyRaw(
	// Followers see these in another way: by callbacks, by the questions API, by the calls
	// themselves.
	rpc.SessionEventTypeAssistantMessageStart,
	rpc.SessionEventTypeAssistantStreamingDelta,
	rpc.SessionEventTypeAssistantToolCallDelta,
	rpc.SessionEventTypeAssistantServerToolProgress,
	rpc.SessionEventTypeModelCallStart,
	rpc.SessionEventTypeModelCallFinished,
	rpc.SessionEventTypeHookStart,
	rpc.SessionEventTypeHookProgress,
	rpc.SessionEventTypeAgentInterrupted,
	rpc.SessionEventTypeExitPlanModeCompleted,
	rpc.SessionEventTypeAutoModeSwitchCompleted,
	rpc.SessionEventTypeSessionLimitsExhaustedCompleted,
	rpc.SessionEventTypeMCPOauthCompleted,
	rpc.SessionEventTypeToolUserRequested,
	rpc.SessionEventTypeSessionUsageCheckpoint,
	// The runtime's own bookkeeping.
	rpc.SessionEventTypeSessionStart,
	rpc.SessionEventTypeSessionResume,
	rpc.SessionEventTypeSessionShutdown,
	rpc.SessionEventTypeSystemMessage,
	rpc.SessionEventTypePendingMessagesModified,
	rpc.SessionEventTypePromptCacheBreak,
	rpc.SessionEventTypeSandboxDecision,
	rpc.SessionEventTypeSessionBackgroundTasksChanged,
	rpc.SessionEventTypeSessionBinaryAsset,
	rpc.SessionEventTypeSessionCompletionReceipt,
	rpc.SessionEventTypeSessionContextChanged,
	rpc.SessionEventTypeSessionCustomNotification,
	rpc.SessionEventTypeSessionExtensionsAttachmentsPushed,
	rpc.SessionEventTypeSessionExtensionsLoaded,
	rpc.SessionEventTypeSessionManagedSettingsResolved,
	rpc.SessionEventTypeSessionModeNoticeDelivered,
	rpc.SessionEventTypeSessionPermissionsChanged,
	rpc.SessionEventTypeSessionRemoteSteerableChanged,
	rpc.SessionEventTypeSessionScheduleRearmed,
	rpc.SessionEventTypeSessionSessionLimitsChanged,
	rpc.SessionEventTypeSessionSkillsLoaded,
	rpc.SessionEventTypeSessionTaskComplete,
	rpc.SessionEventTypeSessionTitleChanged,
	rpc.SessionEventTypeSessionTodosChanged,
	rpc.SessionEventTypeSessionToolsUpdated,
	rpc.SessionEventTypeSessionAutopilotObjectiveChanged,
	rpc.SessionEventTypeSessionAutoTierRecommendation,
	rpc.SessionEventTypeSkillContextDelivered,
	rpc.SessionEventTypeSkillContextDeliveredRef,
	rpc.SessionEventTypeSkillInvokedRef,
	rpc.SessionEventTypeSubagentConfigured,
	rpc.SessionEventTypeToolSearchActivated,
	rpc.SessionEventTypePermissionAssentDetected,
	rpc.SessionEventTypePermissionCarriedForward,
	rpc.SessionEventTypePermissionContextualAuthorization,
	rpc.SessionEventTypePermissionMessageAuthorization,
	rpc.SessionEventTypePermissionMessageAuthorizationDegraded,
	rpc.SessionEventTypePermissionMessageAuthorizationRead,
	rpc.SessionEventTypeMCPAppToolCallComplete,
	rpc.SessionEventTypeMCPHeadersRefreshCompleted,
	rpc.SessionEventTypeMCPHeadersRefreshRequired,
	rpc.SessionEventTypeMCPPromptsListChanged,
	rpc.SessionEventTypeMCPResourcesListChanged,
	rpc.SessionEventTypeMCPToolsListChanged,
	rpc.SessionEventTypeAssistantFusionPhaseActivity,
	rpc.SessionEventTypeAssistantFusionPhaseCompleted,
	rpc.SessionEventTypeAssistantFusionPhaseStarted,
	rpc.SessionEventTypeSessionFusionCompleted,
	rpc.SessionEventTypeSessionFusionResolved,
	rpc.SessionEventTypeSessionFusionRouteStarted,
	// These belong to a terminal or an editor, which a daemon does not have.
	rpc.SessionEventTypeCapabilitiesChanged,
	rpc.SessionEventTypeCommandCompleted,
	rpc.SessionEventTypeCommandExecute,
	rpc.SessionEventTypeCommandQueued,
	rpc.SessionEventTypeCommandsChanged,
	rpc.SessionEventTypeUIEphemeralQuery,
	rpc.SessionEventTypeSamplingCompleted,
	rpc.SessionEventTypeSamplingRequested,
	rpc.SessionEventTypeFactoryRunSettled,
	rpc.SessionEventTypeFactoryRunStarted,
	rpc.SessionEventTypeFactoryRunUpdated,
	rpc.SessionEventTypeSessionCanvasClosed,
	rpc.SessionEventTypeSessionCanvasOpened,
	rpc.SessionEventTypeSessionCanvasRecorded,
	rpc.SessionEventTypeSessionCanvasRegistryChanged,
	rpc.SessionEventTypeSessionCanvasRemoved,
	rpc.SessionEventTypeSessionCanvasUnavailable,
)...)
