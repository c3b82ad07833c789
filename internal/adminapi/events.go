package adminapi

import (
	"encoding/json"
	"time"
)

// Names of the events of GET /sessions/{id}/events. The data is a [TimelineLine], a
// [Callback], a [StreamRow], a [Gap] or [Nothing].
const (
	EventTimeline = "timeline"
	EventLive     = "live"
	EventStream   = "stream"
	EventGap      = "gap"
	EventEnded    = "ended"
)

// TimelineLine is one line of a session's timeline, or of a provider's log.
type TimelineLine struct {
	Seq     uint64    `json:"seq"` // counts the lines from 1
	TS      time.Time `json:"ts"`
	Level   LogLevel  `json:"level"`
	Source  string    `json:"source"` // user, assistant, gateway, session, or a provider's name
	Message string    `json:"message"`
}

// LogLevel is the level of a [TimelineLine].
type LogLevel string

// Levels of a [TimelineLine].
const (
	LogInfo    LogLevel = "info"
	LogWarning LogLevel = "warning"
	LogError   LogLevel = "error"
)

// RuntimeEvent is an event of a session's runtime as the runtime sent it, without
// the session's secrets.
type RuntimeEvent struct {
	Seq       uint64          `json:"seq"` // counts the session's events from 1
	TS        time.Time       `json:"ts"`
	Type      string          `json:"type"` // the runtime's own name of it
	ID        string          `json:"id,omitempty"`
	AgentID   string          `json:"agentId,omitempty"`   // of the sub-agent that it is about
	Ephemeral bool            `json:"ephemeral,omitempty"` // the runtime does not store it
	Data      json.RawMessage `json:"data"`
}

// Callback is one callback of a session, or its error. It has the fields of its
// kind alone: the others are nil, and left out. They are sorted by their JSON
// names, which is the order on the wire.
type Callback struct {
	Name             string      `json:"callback,omitempty"` // onMessage, for example; "" beside a SessionError
	CompleteContent  *string     `json:"completeContent,omitempty"`
	Delta            *string     `json:"delta,omitempty"`
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

// ToolOutput is the result of a tool execution.
type ToolOutput struct {
	Content         string `json:"content"`
	DetailedContent string `json:"detailedContent,omitzero"`
}

// ToolError is the error of a tool execution.
type ToolError struct {
	Message string `json:"message"`
	Code    string `json:"code,omitzero"`
}

// TurnEnd is the last line of a [Query]'s answer. Error is nil after a turn that
// succeeded.
type TurnEnd struct {
	Done  bool     `json:"done"` // always true
	Error *Failure `json:"error,omitempty"`
}

// Gap counts the entries that a follower missed, because they left the buffers
// before it read them.
type Gap struct {
	Timeline uint64 `json:"timeline,omitzero"`
	Live     uint64 `json:"live,omitzero"`
	Stream   uint64 `json:"stream,omitzero"`
}

// Push pushes an event or a prompt to a session; one of Event and Prompt is
// required. The answer is a [Receipt].
type Push struct {
	Provider string          `json:"provider,omitempty"` // who it is from; tapctl if left out
	Stream   string          `json:"stream,omitempty"`   // tapctl if left out
	Level    string          `json:"level,omitempty"`    // keep, surface or inject; surface if left out
	Event    string          `json:"event,omitempty"`
	Prompt   string          `json:"prompt,omitempty"` // what the session is asked; makes the level inject
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Wait     bool            `json:"wait,omitempty"` // answer when the turn that it started has ended
}

// Keep keeps an event of level keep for the next session, while there is none. The
// answer is a [Receipt].
type Keep struct {
	Provider string          `json:"provider,omitempty"` // who it is from; tapctl if left out
	Stream   string          `json:"stream,omitempty"`   // tapctl if left out
	Event    string          `json:"event"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Fate is what became of a push.
type Fate string

// Fates of a push. A queued one may still be delivered or surfaced.
const (
	FateStored    Fate = "stored"
	FateQueued    Fate = "queued"
	FateDelivered Fate = "delivered"
	FateSurfaced  Fate = "surfaced"
	FateDropped   Fate = "dropped"
)

// Receipt tells the fate of a push.
type Receipt struct {
	Seq    uint64 `json:"seq"` // counts what the session's streams stored; 0 if this was not stored
	Fate   Fate   `json:"fate"`
	Reason string `json:"reason,omitempty"`
}

// StreamRow is one entry of a stream.
type StreamRow struct {
	Stream   string          `json:"stream"`
	Provider string          `json:"provider"`
	TS       time.Time       `json:"ts"`
	Event    string          `json:"event"`
	Level    string          `json:"level"` // keep, surface or inject
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
}
