package copilot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A session's past when it is resumed: its history, and the calls that were pending.

// providerWait is how long a call that was pending when its gateway died waits for a provider with
// its tool. Providers reconnect within seconds.
const providerWait = time.Minute

// maxHistory is how many events of a resumed session's past are kept for its followers.
const maxHistory = 2000

// past is what a resumed session did before.
type past struct {
	history   []sdk.SessionEvent
	isCut     bool                             // history is not all of it
	continues bool                             // a turn ran when the session's gateway ended
	pending   []*rpc.ExternalToolRequestedData // the calls that this turn waits for
}

// readHistory reads the past of a session that was resumed. With carryOn, it also finds the calls
// that the session waited for, because the runtime does not ask for them again.
func (s *session) readHistory(ctx context.Context, c *conn, carryOn bool) error {
	events, err := ask(ctx, c.process, createTimeout, c.sdk.GetEvents)
	if err != nil {
		return fmt.Errorf("reading the session's history: %w", err)
	}
	was := past{history: events[max(0, len(events)-maxHistory):], isCut: len(events) > maxHistory}
	defer s.pushChange(func(t *tracker) {
		t.gen = c.gen
		t.replay(&was)
	})
	if !carryOn {
		return nil
	}
	was.pending = pendingCalls(events)
	activity, err := ask(ctx, c.process, askTimeout, c.sdk.RPC.Metadata.Activity)
	if err != nil && !methodNotFound(err) {
		return fmt.Errorf("asking what the session does: %w", err)
	}
	was.continues = len(was.pending) > 0 || activity != nil && activity.HasActiveWork
	return nil
}

// pendingCalls returns the calls of providers' tools that have no answer in events.
func pendingCalls(events []sdk.SessionEvent) []*rpc.ExternalToolRequestedData {
	type request = rpc.ExternalToolRequestedData
	var pending []*request
	for _, e := range events {
		switch d := e.Data.(type) {
		case *rpc.ExternalToolRequestedData:
			pending = append(pending, d)
		case *rpc.ExternalToolCompletedData:
			pending = slices.DeleteFunc(pending, func(p *request) bool {
				return p.RequestID == d.RequestID
			})
		case *rpc.ToolExecutionCompleteData:
			pending = slices.DeleteFunc(pending, func(p *request) bool {
				return p.ToolCallID == d.ToolCallID
			})
		}
	}
	return pending
}

// replay shows the past of the session. If a turn ran when the gateway ended, it continues
// that turn.
func (t *tracker) replay(was *past) {
	var lines []adminapi.TimelineLine
	for _, e := range was.history {
		t.s.recordRaw(e)
		if l, ok := t.s.historyLine(e); ok {
			lines = append(lines, l)
		}
	}
	if len(lines) > 0 {
		t.s.calls.RestoreTimeline(lines, !was.isCut)
	}
	if !was.continues {
		return
	}
	t.reportBusy()
	c := t.conn()
	for _, d := range was.pending {
		d = t.s.pendingOf(d)
		t.s.calls.Note(
			adminapi.LogInfo,
			fmt.Sprintf("tool %s, which was called before the session was lost, is called again",
				d.ToolName),
		)
		if c != nil {
			t.s.runCall(c, d, t.s.callAgain)
		}
	}
}

// historyLine returns the timeline's line for an event of the session's past: messages, failures,
// and the lines that the gateway wrote, pushes included.
func (s *session) historyLine(e sdk.SessionEvent) (l adminapi.TimelineLine, ok bool) {
	if e.AgentID != nil {
		return l, false
	}
	l = adminapi.TimelineLine{TS: e.Timestamp, Level: adminapi.LogInfo,
		Source: gateway.SourceSession}
	ours := func(level adminapi.LogLevel, text string) {
		l.Level, l.Message = level, text
		// A line with another source than the session begins with that source.
		if source, rest, found := strings.Cut(text, ": "); found &&
			!strings.ContainsAny(source, " \n") {
			l.Source, l.Message = source, rest
		}
	}
	switch d := e.Data.(type) {
	case *rpc.UserMessageData:
		// a provider's prompt was shown when it was pushed
		if promptSource(d.Source) == gateway.SourceUser {
			l.Source, l.Message = gateway.SourceUser, d.Content
		}
	case *rpc.AssistantMessageData:
		l.Source, l.Message = gateway.SourceAssistant, d.Content
	case *rpc.SessionInfoData:
		if d.InfoType == logType {
			ours(adminapi.LogInfo, d.Message)
		}
	case *rpc.SessionWarningData:
		switch text, failed := strings.CutPrefix(d.Message, errorPrefix); {
		case d.WarningType != logType:
			l.Level, l.Message = adminapi.LogWarning, d.Message
		case failed:
			ours(adminapi.LogError, text)
		default:
			ours(adminapi.LogWarning, text)
		}
	case *rpc.SessionErrorData:
		if d.ErrorType != logType && d.ErrorType != errorPersistence {
			l.Level, l.Message = adminapi.LogError, s.errorText(d)
		}
	}
	return l, l.Message != ""
}

// callAgain repeats a call that was pending, once a provider with its tool has connected. The gates
// are asked again, because their earlier decision is lost.
func (s *session) callAgain(ctx context.Context, call gateway.Call) gateway.Outcome {
	late := time.NewTimer(providerWait)
	defer late.Stop()
	for {
		s.mu.Lock()
		there := slices.ContainsFunc(s.tools, func(t gateway.Tool) bool {
			return t.Name == call.Name
		})
		changed := s.toolsChanged
		s.mu.Unlock()
		if there {
			call.AskGates = true
			return s.calls.CallTool(ctx, call)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gateway.Outcome{ErrorCode: protocol.CodeDisconnected,
				Error: "the call was ended"}
		case <-late.C:
			return gateway.Outcome{
				ErrorCode: protocol.CodeDisconnected,
				Error: fmt.Sprintf("the provider of %s did not come back within %v", call.Name,
					providerWait),
			}
		}
	}
}
