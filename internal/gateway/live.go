package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"tapgw/internal/adminapi"
)

// LiveLine is one entry of a session's live feed: a callback, or an error of the session.
// Seq counts the feed's entries from 1; TS is in UTC. The feed has the newest 20,000
// entries, or 8 MiB. Once it is full, it makes one entry of the deltas of a text that
// follow each other, so that a long answer takes no more place than a short one. That entry
// has the number and the time of the last of them.
type LiveLine struct {
	Seq   uint64
	TS    time.Time
	Event Event

	ends []uint32 // where each delta that was folded into this one ends in its text
}

// ToolTime is how long a tool execution took that a host says took so many milliseconds: 0 if that
// can't be, as when it is more than a year.
func ToolTime(ms float64) time.Duration {
	const most = 365 * 24 * time.Hour
	if ms <= 0 || ms > float64(most/time.Millisecond) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// isMeasure reports whether an event only tells how long a tool execution took.
func (e Event) isMeasure() bool {
	return e.Callback == "" && e.ID != "" && e.Duration > 0 && e.ExitCode == nil
}

// isPart reports whether a callback continues or ends an item that began before, such as a message,
// or is not an item of its own to a person.
func (e Event) isPart() bool {
	switch e.Callback {
	case OnReasoning, OnMessage, OnToolExecution, OnEndReasoning, OnEndMessage, OnEndToolExecution,
		OnAgentStart, OnAgentEnd, OnIdle:
		return true
	}
	return e.isMeasure()
}

func (e Event) isDelta() bool {
	return e.Callback == OnReasoning || e.Callback == OnMessage || e.Callback == OnToolExecution
}

// maxFolded bounds the text of one entry of several deltas: readers take whole entries.
const maxFolded = 32 << 10

// Live returns the callbacks after a number, oldest first, and the cursor for the next
// read; 0 means from the oldest one that the feed has. Callbacks that left the feed before
// are missing without a sign; a [Follower] reports them.
func (s *Session) Live(after uint64) (lines []LiveLine, cursor uint64) {
	return listAfter[LiveLine](s.feed, kindLive, after)
}

// WaitLive waits until there is a callback after a number. The error is [ErrSessionEnded] if the
// session ends first, or that of ctx.
func (s *Session) WaitLive(ctx context.Context, after uint64) error {
	return s.feed.wait(ctx, kindLive, after)
}

// LiveCursor is the number of the newest callback, for [Session.Live]. It is 0 before the first
// callback.
func (s *Session) LiveCursor() uint64 { return s.feed.last().Live }

// liveSize is about how many bytes an entry takes.
func liveSize(l *LiveLine) int {
	e := &l.Event
	n := 400 + 4*len(l.ends) + len(e.Delta) + len(e.Content) + len(e.Args) + len(e.SessionError)
	if e.Result != nil {
		n += len(e.Result.Content) + len(e.Result.DetailedContent)
	}
	return n
}

// publish adds a callback to the feed.
func (s *Session) publish(e Event) {
	if s.isRecorded() {
		s.recordHost(adminapi.PartyHost, adminapi.PartyGateway, e.View())
	}
	s.feed.addCallback(LiveLine{Event: e})
}

// Event implements [HostCalls]: it gives the event to subscribed providers, the timeline,
// the live feed and the response queue. OnIdle and OnGeneratedUserPrompt go to no feed from
// here, because Idle and deliver publish them.
func (s *Session) Event(e Event) {
	if s.g.o.Recorder != nil && (e.Callback == OnEndToolExecution || e.Callback == "" &&
		e.ExitCode != nil) {
		s.recordExecution(e)
	}
	s.sendToSubscribers(e)
	switch {
	case e.Callback == OnIdle || e.Callback == OnGeneratedUserPrompt:
		return
	case e.SessionError != "":
		s.g.diag.noteError(s.id, "", adminapi.CodeSession, e.SessionError)
		s.note(adminapi.LogError, SourceSession, e.SessionError)
		s.askHooksLater(HookEvent{On: HookError, Error: e.SessionError})
		s.failTurn(e.SessionError)
		s.prompts.mu.Lock()
		s.prompts.lastTurn.Failure = shorten(e.SessionError)
		s.prompts.mu.Unlock()
		s.publish(e)
	case e.UserMessage != "":
		s.prompts.noteBegun(e)
		// A provider's prompt was shown when it was pushed.
		if !strings.HasPrefix(e.Source, SourceProvider) {
			s.note(adminapi.LogInfo, SourceUser, e.UserMessage)
		}
	case e.isMeasure():
		s.publish(e)
	case e.Callback != "":
		if e.Callback == OnEndMessage && e.Content != "" {
			s.note(adminapi.LogInfo, SourceAssistant, e.Content)
		}
		s.publish(e)
	}
}

// View is the entry as the admin API shows it: [Event.View] with the time.
func (l LiveLine) View() adminapi.Callback {
	c := l.Event.View()
	c.TS = l.TS
	return c
}

// View is the callback with the fields of its kind and without a time, as the session
// API shows it (docs/admin-api.md, "live").
func (e Event) View() adminapi.Callback {
	if e.SessionError != "" {
		return adminapi.Callback{SessionError: e.SessionError}
	}
	if e.isMeasure() {
		return adminapi.Callback{ToolCallID: &e.ID, DurationMs: milliseconds(e.Duration)}
	}
	c := adminapi.Callback{Name: e.Callback}
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
		c.ParentToolCallID, c.ToolName, c.ToolArguments = e.ParentID, &e.Tool,
			new(argumentsText(e.Args))
	case OnEndToolExecution:
		c.Result, c.Error, c.DurationMs = e.Result, e.Error, milliseconds(e.Duration)
	case OnGeneratedUserPrompt:
		c.Prompt = &e.Content
	}
	return c
}

// argumentsText returns a tool's arguments as JSON text: {} without arguments, and a JSON string
// for arguments that are not JSON.
func argumentsText(args string) string {
	switch {
	case strings.TrimSpace(args) == "":
		return "{}"
	case json.Valid([]byte(args)):
		return args
	}
	quoted, _ := json.Marshal(args) // can't fail for a string
	return string(quoted)
}
