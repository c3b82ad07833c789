package gateway

import (
	"encoding/json"
	"time"

	"tapgw/internal/protocol"
)

// The types below are what the admin API shows; their JSON is the contract of
// design/cli.md. Times are RFC 3339 in UTC, durations milliseconds.

// SessionView is a session as people see it.
type SessionView struct {
	ID         string    `json:"id"`
	Label      string    `json:"label"`
	Host       string    `json:"host"`
	Model      string    `json:"model"`
	CWD        string    `json:"cwd"`
	State      string    `json:"state"` // idle, busy, ending
	Foreground bool      `json:"foreground"`
	Providers  int       `json:"providers"`
	Tools      int       `json:"tools"`
	CreatedAt  time.Time `json:"createdAt"`
	// WaitsFor are the providers that have not answered the session's end yet.
	WaitsFor []string `json:"waitsFor,omitempty"`
}

// ProviderView is a provider's connection as people see it.
type ProviderView struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Instance    string    `json:"instance"`
	Trust       string    `json:"trust"`   // internal, project, external
	State       string    `json:"state"`   // bound, unbound, awaitHello
	Session     string    `json:"session"` // an id, or "all"
	Tools       int       `json:"tools"`
	InFlight    int       `json:"inFlight"`
	ConnectedAt time.Time `json:"connectedAt"`
}

// ConfiguredView is a provider that a file names, whatever is connected of it.
type ConfiguredView struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // "" where the file has never been usable
	File   string `json:"file"`
	State  string `json:"state"`            // running, stopped, failed, waiting
	Reason string `json:"reason,omitempty"` // why it is not running
}

// States of a provider that a file names.
const (
	ConfiguredRunning = "running" // in a session at least, or for all
	ConfiguredStopped = "stopped" // by the user, or by its file
	ConfiguredFailed  = "failed"  // somebody has to do something about it
	ConfiguredWaiting = "waiting" // for what the reason says
)

// ToolView is a provider's tool in a session.
type ToolView struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Provider    string          `json:"provider"`
	Session     string          `json:"session"`
	TimeoutMs   int64           `json:"timeoutMs"`
}

// TimelineLine is one line of a session's timeline.
type TimelineLine struct {
	Seq     uint64    `json:"seq"`
	TS      time.Time `json:"ts"`
	Level   LogLevel  `json:"level"`
	Source  string    `json:"source"` // user, gateway, session, or a provider's name
	Message string    `json:"message"`

	arrived uint64 // among all that happened in the session
}

// LiveLine is one callback of a session, or its error, for followers. Its JSON
// has ts beside the callback's own members.
type LiveLine struct {
	Seq   uint64
	TS    time.Time
	Event Event

	arrived uint64 // among all that happened in the session
}

// HistoryRow is one entry of a stream.
type HistoryRow struct {
	Seq      uint64          `json:"-"`
	Stream   string          `json:"stream"`
	Provider string          `json:"provider"`
	TS       time.Time       `json:"ts"`
	Event    string          `json:"event"`
	Level    protocol.Level  `json:"level"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`

	arrived uint64 // among all that happened in the session
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
	Seq    uint64 `json:"seq"`
	Fate   Fate   `json:"fate"`
	Reason string `json:"reason,omitempty"`

	turn uint64 // turns that had ended when it was delivered
}
