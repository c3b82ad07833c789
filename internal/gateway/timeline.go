package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/lazyregexp"
)

// Sources of timeline lines that are no provider.
const (
	sourceGateway   = "gateway"
	sourcePairing   = "tapgw"
	SourceSession   = "session"
	SourceAssistant = "assistant"
)

// SourceProvider stands before a provider's name in [Prompt].Source.
const SourceProvider = "provider:"

// note adds a line to the gateway's own timeline.
func (s *Session) note(level LogLevel, source, message string) {
	s.timeline.add(func(seq uint64) TimelineLine {
		line := adminapi.TimelineLine{Seq: seq, TS: time.Now().UTC(), Level: level, Source: source, Message: stripEscapes(message)}
		return TimelineLine{line, s.arrivals.increment()}
	})
}

// Note implements [HostCalls].
func (s *Session) Note(level LogLevel, message string) { s.note(level, SourceSession, message) }

// RestoreTimeline implements [HostCalls].
func (s *Session) RestoreTimeline(lines []adminapi.TimelineLine, whole bool) {
	if len(lines) > maxTimelineLines/2 { // there is room for what comes
		lines, whole = lines[len(lines)-maxTimelineLines/2:], false
	}
	what := "the session was resumed; what was said before follows, with its times"
	if !whole {
		what += ", but for lines that are too old to be here"
	}
	s.note(LogInfo, sourceGateway, what)
	for _, l := range lines {
		s.timeline.add(func(seq uint64) TimelineLine {
			l.Seq, l.TS, l.Message = seq, l.TS.UTC(), stripEscapes(l.Message)
			return TimelineLine{l, s.arrivals.increment()}
		})
	}
}

// show adds a line to the timeline, the session's own included. Call under no lock.
func (s *Session) show(level LogLevel, source, message string) {
	s.note(level, source, message)
	if s.info.Log {
		s.host.Log(level, source+": "+stripEscapes(message))
	}
}

// Timeline returns the lines after a number, and the number to ask with next. Where
// some are not kept any more, the first line says how many.
func (s *Session) Timeline(after uint64) ([]TimelineLine, uint64) {
	lines, cursor := s.timeline.after(after)
	if len(lines) == 0 || lines[0].Seq == after+1 {
		return lines, cursor
	}
	first := lines[0]
	what := "1 line before this is not kept any more"
	if n := first.Seq - after - 1; n > 1 {
		what = fmt.Sprintf("%d lines before this are not kept any more", n)
	}
	cut := adminapi.TimelineLine{Seq: first.Seq - 1, TS: first.TS, Level: LogInfo, Source: sourceGateway, Message: what}
	return append([]TimelineLine{{cut, first.order}}, lines...), cursor
}

// WaitTimeline waits for a line after a number.
func (s *Session) WaitTimeline(ctx context.Context, after uint64) error {
	return s.timeline.wait(ctx, after)
}

// Live returns the session's callbacks after a number, and the number to ask
// with next.
func (s *Session) Live(after uint64) ([]LiveLine, uint64) { return s.live.after(after) }

// WaitLive waits for a callback after a number.
func (s *Session) WaitLive(ctx context.Context, after uint64) error { return s.live.wait(ctx, after) }

// LiveCursor is the number of the newest callback.
func (s *Session) LiveCursor() uint64 { return s.live.last() }

func liveSize(l LiveLine) int {
	e := l.Event
	n := 200 + len(e.Delta) + len(e.Content) + len(e.Args) + len(e.SessionError)
	if e.Result != nil {
		n += len(e.Result.Content) + len(e.Result.DetailedContent)
	}
	return n
}

// publish hands a callback to the live followers and to the response queue.
func (s *Session) publish(e Event) {
	s.live.add(func(seq uint64) LiveLine {
		if s.responses != nil {
			s.responses.add(e)
		}
		return LiveLine{Seq: seq, TS: time.Now().UTC(), Event: e, order: s.arrivals.increment()}
	})
}

// Event implements [HostCalls].
func (s *Session) Event(e Event) {
	s.sendToSubscribers(e)
	switch {
	case e.Callback == OnIdle || e.Callback == OnGeneratedUserPrompt:
		return // the gateway's own, see Idle and deliver
	case e.SessionError != "":
		s.g.diag.noteError(s.id, "", adminapi.CodeSession, e.SessionError)
		s.note(LogError, SourceSession, e.SessionError)
		s.askHooksLater(HookEvent{On: HookError, Error: e.SessionError})
		s.traceError(e.SessionError)
		s.publish(e)
	case e.UserMessage != "":
		// A provider's prompt was shown when it was pushed.
		if !strings.HasPrefix(e.Source, SourceProvider) {
			s.note(LogInfo, SourceUser, e.UserMessage)
		}
	case e.Callback != "":
		if e.Callback == OnEndMessage && e.Content != "" {
			s.note(LogInfo, SourceAssistant, e.Content)
		}
		s.publish(e)
	}
}

// escapes are what could make a terminal do more than print: ANSI sequences and
// control characters other than tab and newline.
var escapes = lazyregexp.New("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[\x00-\x08\x0b-\x1f\x7f]")

// stripEscapes strips escapes from text that somebody else wrote.
func stripEscapes(s string) string { return escapes.ReplaceAllString(s, "") }

// View is the callback as the admin API shows it.
func (l LiveLine) View() adminapi.Callback {
	c := l.Event.View()
	c.TS = l.TS
	return c
}

// View is the callback with the fields of its kind, without the time: as the session
// API shows it (docs/session-api.md).
func (e Event) View() adminapi.Callback {
	if e.SessionError != "" {
		return adminapi.Callback{SessionError: e.SessionError}
	}
	c := adminapi.Callback{Callback: e.Callback}
	switch e.Callback {
	case OnStartReasoning, OnReasoning, OnEndReasoning:
		c.ReasoningID = &e.ID
	case OnStartMessage, OnMessage, OnEndMessage:
		c.MessageID = &e.ID
	case OnStartToolExecution, OnToolExecution, OnEndToolExecution:
		c.ToolCallID = &e.ID
	case OnAgentStart, OnAgentEnd:
		c.TurnID = &e.ID
	}
	switch e.Callback {
	case OnReasoning, OnMessage, OnToolExecution:
		c.Delta = &e.Delta
	case OnEndReasoning, OnEndMessage:
		c.CompleteContent = &e.Content
	case OnStartToolExecution:
		c.ParentToolCallID, c.ToolName, c.ToolArguments = e.ParentID, &e.Tool, new(argumentsText(e.Args))
	case OnEndToolExecution:
		c.Result, c.Error = e.Result, e.Error
	case OnGeneratedUserPrompt:
		c.Prompt = &e.Content
	}
	return c
}

// argumentsText is JSON text whatever a session made of a tool's arguments.
func argumentsText(args string) string {
	switch {
	case strings.TrimSpace(args) == "":
		return "{}"
	case json.Valid([]byte(args)):
		return args
	}
	quoted, _ := json.Marshal(args) // a string always can be
	return string(quoted)
}
