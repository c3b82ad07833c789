package adminapi

import (
	"encoding/json"
	"time"
)

// Names of the server-sent events of GET /sessions/{id}/events. Their data is, in this
// order, a [TimelineLine], a [Callback], a [StreamRow], a [Gap] and [Nothing]. EventEnded
// is the last event.
const (
	EventTimeline = "timeline"
	EventLive     = "live"
	EventStream   = "stream"
	EventGap      = "gap"
	EventEnded    = "ended"
)

// TimelineLine is one line of a session's timeline, or of a provider's log. In a log,
// Source is stdout, stderr, tapgw or the file of a drop-in tool. Message may hold line
// breaks.
type TimelineLine struct {
	Seq     uint64    `json:"seq"` // counts the lines from 1
	TS      time.Time `json:"ts"`
	Level   LogLevel  `json:"level"`
	Source  string    `json:"source"` // user, assistant, gateway, session, or a provider's name
	Message string    `json:"message"`
	// ToolCallID is the call whose progress the line reports. It is "" for other lines, and if the
	// session's host gives calls no ids.
	ToolCallID string `json:"toolCallId,omitempty"`
}

// LogLevel is the level of a [TimelineLine]: [LogInfo], [LogWarning] or [LogError].
type LogLevel string

// Levels of a [TimelineLine], the least important first.
const (
	LogInfo    LogLevel = "info"
	LogWarning LogLevel = "warning"
	LogError   LogLevel = "error"
)

// RuntimeEvent is an event of a session's runtime as the runtime sent it, without the
// session's secrets. GET /sessions/{id}/log lists them with events=1. Data of more than 64
// KiB is replaced by an object with the member omitted.
type RuntimeEvent struct {
	Seq       uint64          `json:"seq"` // counts the session's events from 1
	TS        time.Time       `json:"ts"`
	Type      string          `json:"type"` // the runtime's own name of it
	ID        string          `json:"id,omitempty"`
	AgentID   string          `json:"agentId,omitempty"`   // of the sub-agent that acts
	Ephemeral bool            `json:"ephemeral,omitempty"` // the runtime does not store it
	Data      json.RawMessage `json:"data"`
}

// Callback is one callback of a session, or its error, or with ToolCallID and DurationMs alone how
// long a call took, where the host tells that after the call's end. It has the fields of its kind
// alone, as docs/admin-api.md says under "live": the others are nil, and left out. They are sorted
// by their JSON names, which is the order on the wire.
type Callback struct {
	// onMessage, for example; "" beside a SessionError
	Name            string  `json:"callback,omitempty"`
	CompleteContent *string `json:"completeContent,omitempty"`
	Delta           *string `json:"delta,omitempty"`
	// of a call, by the host's own clock; 0: not told
	DurationMs       float64     `json:"durationMs,omitempty"`
	Error            *ToolError  `json:"error,omitempty"`
	MessageID        *string     `json:"messageId,omitempty"`
	ParentToolCallID string      `json:"parentToolCallId,omitempty"`
	Prompt           *string     `json:"prompt,omitempty"`
	ReasoningID      *string     `json:"reasoningId,omitempty"`
	Result           *ToolOutput `json:"result,omitempty"`
	SessionError     string      `json:"sessionError,omitempty"`
	ToolArguments    *string     `json:"toolArguments,omitempty"` // JSON text
	ToolCallID       *string     `json:"toolCallId,omitempty"`
	ToolName         *string     `json:"toolName,omitempty"`
	TS               time.Time   `json:"ts,omitzero"` // left out in the session API
	TurnID           *string     `json:"turnId,omitempty"`
}

// ToolOutput is the result of a tool execution that succeeded, in an onEndToolExecution callback.
// DetailedContent is a longer text than Content; it is left out if the host does not report one.
type ToolOutput struct {
	Content         string `json:"content"`
	DetailedContent string `json:"detailedContent,omitzero"`
}

// ToolError is the error of a tool execution that failed, in an onEndToolExecution callback. Code
// is left out if the host does not report one.
type ToolError struct {
	Message string `json:"message"`
	Code    string `json:"code,omitzero"`
}

// TurnEnd is the last line of the answer to a [Query] without Detach, after the turn's
// callbacks. Error is nil after a turn that succeeded. Its code is [CodeSession] if the
// turn failed, CANCELLED if it was cut short, and INVALID_SESSION if the session ended
// first.
type TurnEnd struct {
	Done  bool     `json:"done"` // always true
	Error *Failure `json:"error,omitempty"`
}

// Gap is the data of [EventGap]: how much a reader can't have any more, because it left the
// session's buffers. A count of 0 is left out.
type Gap struct {
	Timeline uint64 `json:"timeline,omitzero"` // lines of the timeline
	// things that callbacks told: messages, thoughts, calls, prompts
	Live   uint64 `json:"live,omitzero"`
	Stream uint64 `json:"stream,omitzero"` // stored events
}

// Earlier is the answer to GET /sessions/{id}/earlier: the entries before an event, oldest first.
// More is true if there are still earlier entries.
type Earlier struct {
	Events []SessionEvent `json:"events"`
	More   bool           `json:"more"`
}

// SessionEvent is an event of GET /sessions/{id}/events: its id, its name and its data.
type SessionEvent struct {
	ID    string          `json:"id"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// Push is the body of POST /sessions/{id}/push, which pushes an event or a prompt to a
// session. At least one of Event and Prompt is required; Metadata is an object. The answer
// is a [Receipt].
type Push struct {
	Provider string `json:"provider,omitempty"` // the sender; tapctl if left out
	Stream   string `json:"stream,omitempty"`   // tapctl if left out
	// keep, surface or inject; surface if left out
	Level    string          `json:"level,omitempty"`
	Event    string          `json:"event,omitempty"`
	Prompt   string          `json:"prompt,omitempty"` // for the session; makes the level inject
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// answer when the turn that it started has ended
	Wait bool `json:"wait,omitempty"`
}

// Keep is the body of POST /push: an event of level keep. While there is no session it
// waits for the next one, among at most 100 events and 1 MiB; else the foreground session
// gets it. The answer is a [Receipt].
type Keep struct {
	Provider string          `json:"provider,omitempty"` // the sender; tapctl if left out
	Stream   string          `json:"stream,omitempty"`   // tapctl if left out
	Event    string          `json:"event"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Broadcast is the body of POST /cluster/push: an event for all sessions of all gateways of the
// cluster. Its stream must be one that lasts. Event and Prompt are not both empty. The answer is a
// [Receipt].
type Broadcast struct {
	Provider string `json:"provider,omitempty"` // the sender; tapctl if left out
	Stream   string `json:"stream,omitempty"`   // tapctl if left out
	// keep, surface or inject; surface if left out
	Level    string          `json:"level,omitempty"`
	Event    string          `json:"event,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Fate is the state of a push, one of the constants below. See docs/protocol.md, "Receipts".
type Fate string

// Fates of a push: it is only in its stream; it waits to become a prompt; it became a
// prompt; it was shown to the user; a filter or the end of the session dropped it. A queued
// push gets one of the last three later.
const (
	FateStored    Fate = "stored"
	FateQueued    Fate = "queued"
	FateDelivered Fate = "delivered"
	FateSurfaced  Fate = "surfaced"
	FateDropped   Fate = "dropped"
)

// Receipt answers a push with its state so far. Reason explains the fate to people, such as that
// there is no session yet; it is left out if there is nothing to explain.
type Receipt struct {
	Seq    uint64 `json:"seq"` // numbers the session's stored pushes; 0 if not stored
	Fate   Fate   `json:"fate"`
	Reason string `json:"reason,omitempty"`
}

// StreamRow is one stored event of a stream, as GET /sessions/{id}/history lists them, and also the
// data of [EventStream]. Level is the choice of the stream's filter. At least one of Event and
// Prompt has a text.
type StreamRow struct {
	Stream   string          `json:"stream"`
	Provider string          `json:"provider"`
	TS       time.Time       `json:"ts"`
	Event    string          `json:"event"`
	Level    string          `json:"level"` // keep, surface or inject
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	// ID is the id of an event of a kept stream, GATEWAY/ID; "" for others. It is the same in every
	// session.
	ID string `json:"id,omitempty"`
}
