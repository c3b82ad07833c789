package copilot

import (
	"strings"
	"testing"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// noted is a gateway that only records the timeline and the model calls.
type noted struct {
	gateway.HostCalls
	lines []string
	used  []gateway.ModelCall
}

func (n *noted) Note(level adminapi.LogLevel, message string) {
	n.lines = append(n.lines, string(level)+": "+message)
}
func (n *noted) CountModelCall(c gateway.ModelCall) { n.used = append(n.used, c) }

// What people read of events that few runs have.
func TestEventLines(t *testing.T) {
	for _, tt := range []struct {
		d    rpc.SessionEventData
		want string // "" for no line
	}{
		{&rpc.AssistantTurnRetryData{TurnID: "1"}, "info: asking the model again"},
		{
			&rpc.AssistantTurnRetryData{TurnID: "1", Reason: new("empty answer")},
			"info: asking the model again: empty answer",
		},
		{&rpc.SessionCompactionStartData{CurrentTokens: new(int64(900)),
			TokenLimit: new(int64(1000)), Trigger: new(rpc.CompactionTriggerThreshold)},
			"info: compacting the conversation: 900 of 1000 tokens are used (threshold)"},
		{&rpc.SessionCompactionStartData{}, "info: compacting the conversation"},
		{&rpc.SessionCompactionCompleteData{Success: true, MessagesRemoved: new(int64(7)),
			PreCompactionTokens: new(int64(900)), PostCompactionTokens: new(int64(90))},
			"info: the conversation was compacted: 7 messages became a summary, 900 tokens became 90"},
		{
			&rpc.SessionCompactionCompleteData{Error: new("no model")},
			"warning: the conversation could not be compacted: no model",
		},
		{&rpc.SessionTruncationData{MessagesRemovedDuringTruncation: 3,
			TokensRemovedDuringTruncation: 300, TokenLimit: 1000},
			"warning: the conversation was cut: 3 messages of 300 tokens left out to fit into 1000"},
		{&rpc.SessionContextClearedData{MessagesCleared: 4},
			"info: the conversation was cleared of 4 messages"},
		{&rpc.SessionSnapshotRewindData{EventsRemoved: 5},
			"info: the session was rewound by 5 events"},
		{
			&rpc.SessionModelChangeData{NewModel: "b", PreviousModel: new("a"),
				ReasoningEffort: new("high")},
			"info: model b, was a, effort high",
		},
		{
			&rpc.SessionModelChangeData{NewModel: "b", PreviousModel: new("b"),
				Cause: new("rate limit")},
			"info: model b: rate limit",
		},
		{
			&rpc.SessionModeChangedData{NewMode: rpc.SessionModePlan,
				PreviousMode: rpc.SessionModeInteractive},
			"info: mode plan, was interactive",
		},
		{&rpc.SessionPlanChangedData{Operation: rpc.PlanChangedOperationCreate},
			"info: the plan was created"},
		{&rpc.SessionPlanChangedData{Operation: rpc.PlanChangedOperationUpdate},
			"info: the plan was updated"},
		{
			&rpc.SessionWorkspaceFileChangedData{Path: "notes.md",
				Operation: rpc.WorkspaceFileChangedOperationCreate},
			"info: workspace file notes.md was created",
		},
		{
			&rpc.AutoModeSwitchRequestedData{ErrorCode: new("rate_limited"),
				RetryAfterSeconds: new(int64(30))},
			"warning: the model's rate limit is used up: rate_limited; it ends in 30 s",
		},
		{
			&rpc.SessionLimitsExhaustedRequestedData{UsedAiCredits: 10.5, MaxAiCredits: 10},
			"warning: the session's limit is used up: 10.5 of 10 AI credits",
		},
		{
			&rpc.SubagentStartedData{AgentName: "explore", AgentDescription: "looks around"},
			"info: sub-agent explore began: looks around",
		},
		{&rpc.SubagentCompletedData{AgentName: "explore", TotalToolCalls: new(int64(2)),
			TotalTokens: new(int64(100)), DurationMs: new(int64(1500))},
			"info: sub-agent explore is done: 2 tool calls, 100 tokens, 1.5s"},
		{&rpc.SubagentFailedData{AgentName: "explore", Error: "lost"},
			"warning: sub-agent explore failed: lost"},
		{&rpc.SessionCustomAgentsUpdatedData{}, ""},
		{
			&rpc.SessionCustomAgentsUpdatedData{Errors: []string{"a.md: no name"},
				Warnings: []string{"b.md: odd"}},
			"warning: a.md: no name; b.md: odd",
		},
		{&rpc.SessionMCPServersLoadedData{Servers: []rpc.MCPServersLoadedServer{
			{Name: "a", Status: rpc.MCPServerStatusConnected},
		}}, ""},
		{&rpc.SessionMCPServersLoadedData{Servers: []rpc.MCPServersLoadedServer{
			{Name: "a", Status: rpc.MCPServerStatusFailed, Error: new("exit 1")},
			{Name: "b", Status: rpc.MCPServerStatusNeedsAuth},
		}}, "warning: MCP server a failed: exit 1; MCP server b wants a sign-in"},
		{&rpc.SessionMCPServerStatusChangedData{ServerName: "a",
			Status: rpc.MCPServerStatusPending}, ""},
		{
			&rpc.MCPOauthRequiredData{ServerName: "a", ServerURL: "https://a.example"},
			"warning: MCP server a wants a sign-in at https://a.example",
		},
		{&rpc.SkillInvokedData{Name: "review"}, "info: skill review"},
		{&rpc.HookEndData{HookType: "preToolUse", Success: true}, ""},
		{
			&rpc.HookEndData{HookType: "preToolUse",
				Error: &rpc.HookEndError{Message: "timed out"}},
			"warning: hook preToolUse failed: timed out",
		},
		{&rpc.SystemNotificationData{Content: "a task is done"}, "info: a task is done"},
		{&rpc.SessionScheduleCreatedData{Prompt: "look again"},
			"info: a prompt is scheduled: look again"},
		{&rpc.RawSessionEventData{EventType: "a.new.kind", Raw: []byte("{}")}, ""},
	} {
		n := &noted{}
		turn := &tracker{s: &session{calls: n}}
		turn.event(sdk.SessionEvent{Data: tt.d})
		switch {
		case tt.want == "" && len(n.lines) > 0:
			t.Errorf("%s: says %q, want none", tt.d.Type(), n.lines)
		case tt.want != "" && (len(n.lines) != 1 || n.lines[0] != tt.want):
			t.Errorf("%s: says %q, not %q", tt.d.Type(), n.lines, tt.want)
		}
	}
}

// A compaction is a call of the model that no other event tells of.
func TestCompactionIsCounted(t *testing.T) {
	n := &noted{}
	turn := &tracker{s: &session{calls: n}, prompt: "m1"}
	turn.event(sdk.SessionEvent{
		Data: &rpc.SessionCompactionCompleteData{
			Success: true,
			CompactionTokensUsed: &rpc.CompactionCompleteCompactionTokensUsed{
				Model: new(
					"gpt-5-mini",
				), InputTokens: new(int64(900)), OutputTokens: new(int64(90)),
				Duration: new(int64(1500)),
			},
		},
	})
	if len(n.used) != 1 || n.used[0].Model != "gpt-5-mini" || n.used[0].Input != 900 ||
		n.used[0].Prompt != "m1" || n.used[0].Duration.Milliseconds() != 1500 {
		t.Errorf(
			`was counted as %+v, want one of model "gpt-5-mini" with 900 tokens of input, prompt "m1" and 1500 ms`,
			n.used,
		)
	}
}

// ended is a gateway that only keeps how turns ended.
type ended struct {
	gateway.HostCalls
	cuts []string
}

func (e *ended) Event(gateway.Event)                  {}
func (e *ended) Busy()                                {}
func (e *ended) Idle()                                {}
func (e *ended) TurnEnded(prompts []string, c string) { e.cuts = append(e.cuts, prompts[0]+": "+c) }

// A busy runtime reports the end of an interrupted turn after the next one began.
// That report ends nothing: the next turn goes on, and ends whole.
func TestLateEndOfAnInterruptedTurn(t *testing.T) {
	e := &ended{}
	s := &session{calls: e, ctx: t.Context()}
	// sync took it for idle before the runtime said so
	tracker := &tracker{s: s, idleEarly: true, isBusy: true}
	tracker.turn.prompts, tracker.turn.limit = []string{"2"}, time.NewTimer(time.Hour)
	tracker.event(sdk.SessionEvent{Data: &rpc.AbortData{}})
	tracker.event(sdk.SessionEvent{Data: &rpc.SessionIdleData{Aborted: new(true)}})
	if len(e.cuts) != 0 {
		t.Errorf("the late end ended a turn: %q, want none", e.cuts)
	}
	tracker.event(sdk.SessionEvent{Data: &rpc.SessionIdleData{}})
	if got, want := strings.Join(e.cuts, ", "), "2: "; got != want {
		t.Errorf("turns ended %q, want %q", got, want)
	}
}

// A runtime that can't save does not report the session idle, so that sync ends an interrupted
// turn. It is one that was interrupted also if the event of the abort comes later.
func TestSyncEndsAnInterruptedTurn(t *testing.T) {
	for name, test := range map[string]struct {
		wasStopped, aborted bool
		want                string
	}{
		"sync after the abort":         {true, true, "2: interrupted"},
		"sync when the agent was done": {true, false, "2: interrupted"},
		"a turn that ended by itself":  {false, false, "2: "},
	} {
		e := &ended{}
		tracker := &tracker{s: &session{calls: e, ctx: t.Context()}, isBusy: true, agentDone: true}
		tracker.turn.prompts, tracker.turn.limit = []string{"2"}, time.NewTimer(time.Hour)
		tracker.turn.wasStopped = test.wasStopped
		tracker.pendingSyncs = map[string]syncPoint{"1": {aborted: test.aborted}}
		tracker.syncReached("1")
		tracker.event(sdk.SessionEvent{Data: &rpc.AbortData{}})
		if got := strings.Join(e.cuts, ", "); got != test.want {
			t.Errorf("%s: turns ended %q, want %q", name, got, test.want)
		}
	}
}
