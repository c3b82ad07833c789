package client

import (
	"encoding/json"
	"time"
)

// The types below mirror what the admin API shows: members, their names and
// their order are the contract that scripts rely on.

// Status is the gateway's own state.
type Status struct {
	URL       string    `json:"url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Sessions  int       `json:"sessions"`
	Providers int       `json:"providers"`
	Faults    []Fault   `json:"faults"`
}

// Fault is what is wrong in a config file.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Session is an agent session.
type Session struct {
	ID         string    `json:"id"`
	Label      string    `json:"label"`
	Host       string    `json:"host"`
	Model      string    `json:"model"`
	CWD        string    `json:"cwd"`
	State      string    `json:"state"`
	Foreground bool      `json:"foreground"`
	Providers  int       `json:"providers"`
	Tools      int       `json:"tools"`
	CreatedAt  time.Time `json:"createdAt"`
}

// Provider is a provider's connection.
type Provider struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Instance    string    `json:"instance"`
	Trust       string    `json:"trust"`
	State       string    `json:"state"`
	Session     string    `json:"session"`
	Tools       int       `json:"tools"`
	InFlight    int       `json:"inFlight"`
	ConnectedAt time.Time `json:"connectedAt"`
}

// Tool is a provider's tool in a session.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Provider    string          `json:"provider"`
	Session     string          `json:"session"`
	TimeoutMs   int64           `json:"timeoutMs"`
}

// Pairing is a pairing code that waits to be typed into its provider.
type Pairing struct {
	Provider  string    `json:"provider"`
	Code      string    `json:"code"`
	Session   string    `json:"session"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Model is a model that a session can use.
type Model struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Multiplier float64 `json:"multiplier"`
}

// Event is one entry of a stream.
type Event struct {
	Stream   string          `json:"stream"`
	Provider string          `json:"provider"`
	TS       time.Time       `json:"ts"`
	Event    string          `json:"event"`
	Level    string          `json:"level"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
}

// TimelineLine is one line of a session's timeline.
type TimelineLine struct {
	TS      time.Time `json:"ts"`
	Level   string    `json:"level"`
	Source  string    `json:"source"`
	Message string    `json:"message"`
}

// LiveLine is one callback of a session. Raw is the line as it came; the other
// members are those of its callback, for people to look at.
type LiveLine struct {
	Raw json.RawMessage `json:"-"`

	TS              time.Time `json:"ts"`
	Callback        string    `json:"callback"`
	Delta           string    `json:"delta"`
	CompleteContent string    `json:"completeContent"`
	Prompt          string    `json:"prompt"`
	MessageID       string    `json:"messageId"`
	ToolCallID      string    `json:"toolCallId"`
	ToolName        string    `json:"toolName"`
	ToolArguments   string    `json:"toolArguments"`
	Result          *struct {
		Content string `json:"content"`
	} `json:"result"`
	Error        *Fail  `json:"error"` // of a tool execution, or how a query ended
	SessionError string `json:"sessionError"`
	Done         bool   `json:"done"` // the last line of a query
}

// Fail is an error inside a line of a stream.
type Fail struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Fates of a push.
const (
	FateStored    = "stored"
	FateQueued    = "queued"
	FateDelivered = "delivered"
	FateSurfaced  = "surfaced"
	FateDropped   = "dropped"
)

// Receipt tells the fate of a push.
type Receipt struct {
	Seq    uint64 `json:"seq"`
	Fate   string `json:"fate"`
	Reason string `json:"reason,omitempty"`
}

// CallResult is how a tool call ended: with data, or with an error.
type CallResult struct {
	Data       json.RawMessage `json:"data,omitempty"`
	Error      string          `json:"error,omitempty"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	DurationMs int64           `json:"durationMs"`
}

// StartRequest says what session to start. The key goes over the admin API
// and nowhere else.
type StartRequest struct {
	Host        string `json:"host,omitempty"`
	Model       string `json:"model,omitempty"`
	CWD         string `json:"cwd,omitempty"`
	Label       string `json:"label,omitempty"`
	ProviderURL string `json:"providerUrl,omitempty"`
	ProviderKey string `json:"providerKey,omitempty"`
}

// Push is an event or a prompt for a session.
type Push struct {
	Provider string          `json:"provider,omitempty"`
	Stream   string          `json:"stream,omitempty"`
	Level    string          `json:"level,omitempty"`
	Event    string          `json:"event,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Wait     bool            `json:"wait,omitempty"`
}

// HistoryQuery says which entries of which streams.
type HistoryQuery struct {
	Streams []string // stream or stream@provider; none: all
	Last    int      // 0: 20
	Since   time.Time
}
