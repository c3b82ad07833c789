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
	// RESTOpen says that the session contract needs no token.
	RESTOpen bool `json:"restOpen,omitempty"`
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
	// WaitsFor are the providers that have not answered the session's end yet.
	WaitsFor []string `json:"waitsFor,omitempty"`
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

// Configured is a provider that a file names, connected or not.
type Configured struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	File   string `json:"file"`
	State  string `json:"state"`  // running, stopped, failed, waiting
	Reason string `json:"reason"` // why it is not running
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
	ID               string   `json:"id"`
	Name             string   `json:"name"`
	Multiplier       float64  `json:"multiplier"`
	Efforts          []string `json:"efforts"`
	DefaultEffort    string   `json:"defaultEffort,omitempty"`
	Vision           bool     `json:"vision"`
	MaxPromptTokens  int      `json:"maxPromptTokens,omitempty"`
	MaxContextTokens int      `json:"maxContextTokens,omitempty"`
	Policy           string   `json:"policy,omitempty"`
}

// Persisted is a session on disk.
type Persisted struct {
	ID         string    `json:"id"`
	Label      string    `json:"label"`
	Host       string    `json:"host"`
	Model      string    `json:"model"`
	Profile    string    `json:"profile"`
	CWD        string    `json:"cwd"`
	Repository string    `json:"repository"`
	Branch     string    `json:"branch"`
	Summary    string    `json:"summary"`
	State      string    `json:"state"`
	StartedAt  time.Time `json:"startedAt"`
	UsedAt     time.Time `json:"usedAt"`
}

// PersistedFilter says which sessions on disk; empty members are for all.
type PersistedFilter struct {
	CWD, Repository, Branch string
	Last                    int
}

// ResumeRequest says how to resume a session; empty members are as they were.
type ResumeRequest struct {
	StartRequest
	ContinuePendingWork bool `json:"continuePendingWork,omitempty"`
}

// Prompt is what a session is given. Paths are of the gateway's machine.
type Prompt struct {
	Prompt      string            `json:"prompt"`
	Mode        string            `json:"mode,omitempty"`
	Detach      bool              `json:"detach,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // of the requests to the model
}

// Attachment is a file or directory, or lines of a file (from 1; 0: all of it).
type Attachment struct {
	Path      string `json:"path"`
	FirstLine int    `json:"firstLine,omitempty"`
	LastLine  int    `json:"lastLine,omitempty"`
}

// Kinds of questions, and decisions.
const (
	QuestionPermission = "permission"
	QuestionInput      = "input"
	QuestionForm       = "form"

	DecideOnce    = "once"
	DecideSession = "session"
	DecideDeny    = "deny"
)

// Question is one that waits for a person.
type Question struct {
	ID        string          `json:"id"`
	Session   string          `json:"session"`
	Kind      string          `json:"kind"`
	Message   string          `json:"message"`
	Detail    string          `json:"detail,omitempty"`
	Choices   []string        `json:"choices,omitempty"`
	Freeform  bool            `json:"freeform,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"`
	AskedAt   time.Time       `json:"askedAt"`
	ExpiresAt time.Time       `json:"expiresAt"`
}

// Answer is what a person says to a question: a decision, text or content, by its
// kind; DecideDeny to any.
type Answer struct {
	Question string          `json:"question,omitempty"` // "": the only one of the session
	Decision string          `json:"decision,omitempty"`
	Text     string          `json:"text,omitempty"`
	Content  json.RawMessage `json:"content,omitempty"`
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

// Sums are what calls of models read, wrote and cost. Calls that failed are among
// the calls; Cost is in premium requests.
type Sums struct {
	Calls            int64   `json:"calls"`
	Failures         int64   `json:"failures"`
	InputTokens      int64   `json:"inputTokens"`
	OutputTokens     int64   `json:"outputTokens"`
	CacheReadTokens  int64   `json:"cacheReadTokens"`
	CacheWriteTokens int64   `json:"cacheWriteTokens"`
	ReasoningTokens  int64   `json:"reasoningTokens"`
	Cost             float64 `json:"cost"`
	AICredits        float64 `json:"aiCredits"`
	DurationMs       int64   `json:"durationMs"`
}

// ModelUsage is what a session used of one model.
type ModelUsage struct {
	Model string `json:"model"`
	Sums
}

// TurnUsage is what one prompt cost.
type TurnUsage struct {
	Turn      int       `json:"turn"`
	MessageID string    `json:"messageId"`
	StartedAt time.Time `json:"startedAt"`
	Sums
}

// Usage is what a session used.
type Usage struct {
	Session       string       `json:"session"`
	Total         Sums         `json:"total"`
	Models        []ModelUsage `json:"models"`
	Turns         []TurnUsage  `json:"turns"`
	ContextTokens int64        `json:"contextTokens"`
	ContextLimit  int64        `json:"contextLimit"`
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

// StartRequest says what session to start. The key and the token go over the
// admin API and nowhere else.
type StartRequest struct {
	Host        string `json:"host,omitempty"`
	Model       string `json:"model,omitempty"`
	CWD         string `json:"cwd,omitempty"`
	Label       string `json:"label,omitempty"`
	ProviderURL string `json:"providerUrl,omitempty"`
	ProviderKey string `json:"providerKey,omitempty"`
	Profile     string `json:"profile,omitempty"`
	Effort      string `json:"effort,omitempty"`
	GitHubToken string `json:"githubToken,omitempty"`
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

// LogQuery says which lines of a log.
type LogQuery struct {
	Follow bool
	Last   int       // of those that there are already; 0: all
	Since  time.Time // none that is older; the zero value: all
}

// HistoryQuery says which entries of which streams.
type HistoryQuery struct {
	Streams []string // stream or stream@provider; none: all
	Last    int      // 0: 20
	Since   time.Time
}
