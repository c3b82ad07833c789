package adminapi

import (
	"encoding/json"
	"strings"
	"time"
)

// Record is one thing that happened, as GET /records lists it and as a line of the record files has
// it: docs/records.md says which fields each kind has. The other fields are left out.
type Record struct {
	TS       time.Time `json:"ts"`                 // the end; it began DurationMs before
	Kind     string    `json:"kind"`               // [RecordSession] and so on
	Session  string    `json:"session,omitempty"`  // a session's id
	Provider string    `json:"provider,omitempty"` // a provider's name
	Trace    string    `json:"trace,omitempty"`    // a trace id of W3C, 32 hexadecimal digits
	Span     string    `json:"span,omitempty"`     // its own id in the trace, 16 hexadecimal digits
	Parent   string    `json:"parent,omitempty"`   // the id of the record that contains it

	// Gateway is the other gateway of a remote action, or of an event that lasts.
	Gateway string `json:"gateway,omitempty"`

	// State is start or end of a session, or the state of a goal or of a remote action.
	State string `json:"state,omitempty"`
	Label string `json:"label,omitempty"` // of a session that starts
	Host  string `json:"host,omitempty"`
	CWD   string `json:"cwd,omitempty"`

	// ID identifies a call, a turn's prompt, a goal or a kept event.
	ID   string `json:"id,omitempty"`
	Tool string `json:"tool,omitempty"`
	// Outcome is [OutcomeOK] or [OutcomeFailed] of a call, a turn and a source's run; allow, deny
	// or context of a gate; [OutcomeRefused] or [OutcomeIgnored] of a request to a webhook.
	Outcome    string  `json:"outcome,omitempty"`
	Code       string  `json:"code,omitempty"` // of an error
	By         string  `json:"by,omitempty"`   // the source of the decision or prompt
	Reason     string  `json:"reason,omitempty"`
	DurationMs float64 `json:"durationMs,omitempty"`

	// Command is the command of a call of the host's own shell, or the request to a gateway, at
	// most 1 KiB of it. ExitCode is how the command ended; nil if the host does not say. A command
	// that goes on in the background has a second record when it ends.
	Command  string `json:"command,omitempty"`
	ExitCode *int   `json:"exitCode,omitempty"`

	// The texts of a push. A queued push has a second record, of its last fate, without its texts.
	Stream   string          `json:"stream,omitempty"`
	Seq      uint64          `json:"seq,omitempty"`
	Level    string          `json:"level,omitempty"`
	Fate     Fate            `json:"fate,omitempty"`
	Event    string          `json:"event,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Kinds of a [Record].
const (
	RecordSession = "session" // it started, or ended
	RecordTurn    = "turn"    // it ended
	RecordCall    = "call"    // a call ended, of a provider's or the host's own tool
	RecordGate    = "gate"    // a gate, rule, hook or person decided about a call
	RecordPush    = "push"    // an event came, or a queued one was delivered
	RecordSource  = "source"  // a run of a source ended
	RecordGoal    = "goal"    // a goal changed
	RecordWebhook = "webhook" // a webhook got a request that makes no event
	RecordRemote  = "remote"  // one gateway of a cluster acted on another
)

// States of a remote [Record]: this gateway asked another one, or was asked.
const (
	RemoteSent   = "sent"
	RemoteServed = "served"
)

// States of a session's [Record].
const (
	RecordStart = "start"
	RecordEnd   = "end"
)

// Outcomes of a request to a webhook that makes no event: whether its sender is told that it is
// wrong.
const (
	OutcomeRefused = "refused"
	OutcomeIgnored = "ignored" // it is a repetition, or a filter drops it
)

// RecordKinds and RecordOutcomes are the words of a [RecordQuery]. Outcomes are the outcomes of
// calls, turns and runs, decisions of gates, outcomes of requests to webhooks, and fates of pushes.
var (
	RecordKinds = []string{
		RecordSession, RecordTurn, RecordCall, RecordGate, RecordPush, RecordSource, RecordGoal,
		RecordWebhook,
		RecordRemote,
	}
	RecordOutcomes = []string{
		OutcomeOK, OutcomeFailed, "allow", "deny", "context", OutcomeRefused, OutcomeIgnored,
		string(FateStored), string(FateQueued), string(FateDelivered), string(FateSurfaced),
		string(FateDropped),
	}
)

// IsTraceID reports whether a text has the form of [Record].Trace.
func IsTraceID(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// RecordQuery chooses records, as the parameters of GET /records do: it finds the records that have
// all of the given values. The zero value finds all records; Last is how many of the newest.
type RecordQuery struct {
	Since, Until                                  time.Time
	Kind, Session, Provider, Tool, Outcome, Trace string // Outcome is also the fate of a push
	Last                                          int
}

// Records answers GET /records. More says that there are older ones, which the answer has no room
// for.
type Records struct {
	Records    []Record `json:"records"`              // oldest first
	Unreadable int      `json:"unreadable,omitempty"` // lines that are no records, such as cut ones
	More       bool     `json:"more,omitempty"`
}
