package adminapi

import (
	"encoding/json"
	"time"
)

// Session is one session of the gateway, as GET /sessions lists them, oldest first. It is
// busy from a prompt until its agent is idle again, and ending while its providers prepare
// for its end.
type Session struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	// its kind: copilot, local, or the name that a remote host gave
	Host       string    `json:"host"`
	Model      string    `json:"model"`
	CWD        string    `json:"cwd"`
	State      string    `json:"state"` // idle, busy or ending
	Foreground bool      `json:"foreground"`
	Providers  int       `json:"providers"` // how many are bound to it
	Tools      int       `json:"tools"`     // how many tools the providers give it
	CreatedAt  time.Time `json:"createdAt"`
	// Repository is owner/name of the git remote of its directory, as it was when the session
	// started; "" without one.
	Repository string `json:"repository,omitempty"`
	// Attachments: its prompts may bring files, see [Attachment].
	Attachments bool `json:"attachments,omitempty"`
	// WaitsFor names the required providers that are not bound: calls wait for them, and are then
	// denied. While the session is ending, it names the providers that have not yet acknowledged
	// its end.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Gateway is the gateway that runs the session, in [Cluster] only. Doubtful says that this
	// gateway is out of reach for the moment.
	Gateway  string `json:"gateway,omitempty"`
	Doubtful bool   `json:"doubtful,omitempty"`
}

// StartRequest is the body of POST /sessions, which starts a session. The answer is
// [Started], once the session runs; an error names the field that is wrong.
type StartRequest struct {
	Host string `json:"host,omitempty"` // copilot if left out
	CWD  string `json:"cwd"`            // absolute path of a directory
	// the repository and its branch if left out, else the directory's name
	Label string `json:"label,omitempty"`
	ModelSettings
}

// ModelSettings choose a session's model and how it is reached. For a field that is left out, a new
// session uses the host's default, and a resumed session keeps its setting.
type ModelSettings struct {
	Model string `json:"model,omitempty"` // an id, see [Model]
	// of reasoning: low, medium, high, xhigh or max
	Effort  string `json:"effort,omitempty"`
	Profile string `json:"profile,omitempty"` // of tapgw.toml; the request overrides it
	// a model endpoint of the user's own, http or https
	ProviderURL string `json:"providerUrl,omitempty"`
	ProviderKey string `json:"providerKey,omitempty"` // its key; never logged nor stored
	GitHubToken string `json:"githubToken,omitempty"` // of another account; never logged nor stored
}

// MCPToken answers POST /sessions/{id}/mcp-token: a bearer token that opens /mcp for the session,
// and is void when the session ends.
type MCPToken struct {
	Token string `json:"token"`
}

// ProviderToken answers POST /sessions/{id}/provider-token: a token with which one provider binds
// the session, and no other one. It is void when the session ends.
type ProviderToken struct {
	Token string `json:"token"`
}

// Started answers a request that started or resumed a session. ID is the session's id,
// which stands in the paths of later requests.
type Started struct {
	ID string `json:"id"`
}

// Persisted is a session on disk, as GET /persisted lists them, last used first. Label,
// Host, Model and Profile are empty for a session that another program made.
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
	State      string    `json:"state"` // [PersistedStored], [PersistedLive] or [PersistedInUse]
	StartedAt  time.Time `json:"startedAt"`
	UsedAt     time.Time `json:"usedAt"`
}

// States of a [Persisted] session. Only a stored one can be resumed; the error for the
// others is INVALID_STATE.
const (
	PersistedStored = "stored" // it can be resumed
	PersistedLive   = "live"   // it runs here
	PersistedInUse  = "inUse"  // it runs in another process
)

// ResumeRequest is the body of POST /persisted/{id}/resume, which starts a session on disk again,
// under its id and with its history. Fields that are left out keep their values. The answer is
// [Started].
type ResumeRequest struct {
	CWD   string `json:"cwd,omitempty"` // another working directory, absolute
	Label string `json:"label,omitempty"`
	ModelSettings
	// ContinuePendingWork repeats the pending tool calls once their provider is
	// bound. Without it the model gets the result that they were interrupted.
	ContinuePendingWork bool `json:"continuePendingWork,omitempty"`
}

// ModelRequest is the body of POST /sessions/{id}/model, which changes the model of a
// running session from its next request on. The history stays. The answer is [Nothing].
type ModelRequest struct {
	Model  string `json:"model"`
	Effort string `json:"effort,omitempty"` // the model's own default if left out
}

// RenameRequest is the body of POST /sessions/{id}/rename. The label is one line of 1 to
// 200 characters, without control characters. The answer is [Nothing].
type RenameRequest struct {
	Label string `json:"label"`
}

// Modes of a [Query]: where its prompt goes while a turn runs. In an idle session both
// begin a turn.
const (
	ModeEnqueue   = "enqueue"   // behind the turn that runs
	ModeImmediate = "immediate" // into the turn that runs
)

// Query is the body of POST /sessions/{id}/query, which gives a session a prompt. The
// answer is a [Callback] a line and at last a [TurnEnd], or with Detach [Nothing] once the
// session has accepted the prompt.
type Query struct {
	Prompt      string       `json:"prompt"`
	Mode        string       `json:"mode,omitempty"` // [ModeEnqueue] if left out
	Detach      bool         `json:"detach,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"` // at most 100
	// of the requests to the model that the prompt makes
	Headers map[string]string `json:"headers,omitempty"`
}

// Attachment is a file or directory that goes with a [Query]'s prompt, the lines FirstLine
// to LastLine of a file, or the bytes of a file in Data, with its name. The gateway's own
// machine must have the path. Bytes are kept until the session ends.
type Attachment struct {
	Path      string `json:"path,omitempty"`      // absolute, on the gateway's machine
	FirstLine *int   `json:"firstLine,omitempty"` // from 1; the whole file if left out
	LastLine  *int   `json:"lastLine,omitempty"`  // FirstLine if left out

	// Data is instead of Path: 5 MiB at most, and 10 MiB and 20 files of a prompt.
	Data     []byte `json:"data,omitempty"`     // base64
	Name     string `json:"name,omitempty"`     // required with Data
	MIMEType string `json:"mimeType,omitempty"` // of text; the gateway detects the type of Data
}

// Files answers GET /sessions/{id}/files: files below the session's directory, relative to it and
// with slashes. The best matches come first.
type Files struct {
	Files []string `json:"files"`
	More  bool     `json:"more"` // there are more, or the search came to a limit
}

// Command is a command of a session's host, as GET /sessions/{id}/commands lists them. People write
// a slash before the name.
type Command struct {
	Name        string          `json:"name"`
	Aliases     []string        `json:"aliases,omitempty"` // other names
	Description string          `json:"description"`
	Hint        string          `json:"hint,omitempty"`     // for the input after the name
	Required    bool            `json:"required,omitempty"` // the input must not be missing
	Choices     []CommandChoice `json:"choices,omitempty"`  // for the input; "" for any
}

// CommandChoice is a word that may stand behind the name of a [Command].
type CommandChoice struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// RunCommand is the body of POST /sessions/{id}/commands/{name}. The answer is [CommandRan].
type RunCommand struct {
	Input string `json:"input,omitempty"` // the text after the name
}

// CommandRan answers a [RunCommand] once the command has ended. Its text is in the timeline, too.
type CommandRan struct {
	Text     string `json:"text"`               // the output, which may be ""
	Prompted bool   `json:"prompted,omitempty"` // the command gave the session a prompt
}

// Interrupt is the body of POST /sessions/{id}/interrupt, which ends the session's turn and
// its tool calls with CANCELLED. The answer is [Interrupted].
type Interrupt struct {
	Reason string `json:"reason,omitempty"` // the reason for the providers whose calls end
}

// Interrupted answers an [Interrupt]. Dropped is left out if the agent had begun all
// that it was given. The prompts of the queue stay there, see [QueuedPrompt].
type Interrupted struct {
	// Dropped are the beginnings of the prompts that the agent had just got and did not begin,
	// oldest first.
	Dropped []string `json:"dropped,omitempty"`
}

// Kinds of a [Question]. The kind decides which fields of an [Answer] are allowed; other
// fields get the error INVALID_JSON.
const (
	QuestionPermission = "permission" // may something be done? answered with a decision
	QuestionInput      = "input"      // the model asks; answered with text
	QuestionForm       = "form"       // answered with content that its schema allows
)

// Decisions of an [Answer]. A permission takes each of them; an input or a form takes
// DecideDeny alone, which declines it.
const (
	DecideOnce    = "once"
	DecideSession = "session" // now, and for the same again in this session
	DecideDeny    = "deny"
)

// Question is a question of a session that waits for a person, as GET /questions lists
// them. Message and Detail have control characters spelled out, so that people see all that
// they allow.
type Question struct {
	ID      string `json:"id"` // never given twice
	Session string `json:"session"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
	// whole: the command, the path, a tool with its arguments
	Detail  string   `json:"detail,omitempty"`
	Choices []string `json:"choices,omitempty"` // of an input: the answers to choose from
	// of an input: an answer that is no choice is allowed
	Freeform  bool            `json:"freeform,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"` // of a form: the JSON Schema of its content
	AskedAt   time.Time       `json:"askedAt"`
	ExpiresAt time.Time       `json:"expiresAt"` // without an answer by then, it is refused
}

// Answer is the body of POST /sessions/{id}/answer: a decision, a text or content, by the
// question's kind. The error is NOT_FOUND, INVALID_STATE for a question that is over, or
// INVALID_JSON; after INVALID_JSON the question goes on waiting.
type Answer struct {
	// its id: an answer is for the question that the person saw
	Question string `json:"question"`
	Decision string `json:"decision,omitempty"`
	// of an input; with [DecideDeny] the reason for the model
	Text    string          `json:"text,omitempty"`
	Content json.RawMessage `json:"content,omitempty"` // of a form: an object
}

// Tool is a provider's tool in a session, as GET /tools lists them. TimeoutMs is how long a
// call may take before it ends with TIMEOUT. Name has the prefix of the provider's file.
type Tool struct {
	Name         string           `json:"name"`
	Title        string           `json:"title,omitempty"`
	Description  string           `json:"description"`
	Parameters   json.RawMessage  `json:"parameters"` // JSON Schema of its arguments
	OutputSchema json.RawMessage  `json:"outputSchema,omitempty"`
	Annotations  *ToolAnnotations `json:"annotations,omitempty"`
	Provider     string           `json:"provider"`
	Session      string           `json:"session"`
	TimeoutMs    int64            `json:"timeoutMs"`
}

// ToolAnnotations are a provider's hints about what its tool does; nil is not given. See
// docs/protocol.md, "Annotations".
type ToolAnnotations struct {
	ReadOnlyHint    *bool `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool `json:"openWorldHint,omitempty"`
}

// Call is the body of POST /sessions/{id}/tools/{name}/call, which calls a tool as the
// session's model would, through gates and limits. The answer is [CallResult], also for a
// call that failed.
type Call struct {
	Args      json.RawMessage `json:"args,omitempty"`      // an object; null is as left out
	TimeoutMs *int64          `json:"timeoutMs,omitempty"` // at least 1; the tool's own if left out
}

// CallResult is how a tool call ended: with Data, or with Error and ErrorCode, one of the codes of
// docs/protocol.md, "Calls". If a result has several parts, Content has them, as in
// docs/protocol.md, "Part", and Data is the provider's text or one that the gateway makes of the
// parts. DurationMs includes the waits for gates and slots.
type CallResult struct {
	Data       json.RawMessage `json:"data,omitempty"`
	Content    json.RawMessage `json:"content,omitempty"`
	Error      string          `json:"error,omitempty"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	DurationMs int64           `json:"durationMs"`
}

// Filters answers GET /sessions/{id}/filters: the filters of the session's streams, and the events
// that they dropped lately.
type Filters struct {
	Filters []Filter       `json:"filters"`
	Dropped []DroppedEvent `json:"dropped"` // the last 100, newest first
}

// Filter is the filter of one stream. The first rule whose pattern is found in an event's text
// decides.
type Filter struct {
	Stream   string       `json:"stream"`
	Provider string       `json:"provider"`
	Rules    []FilterRule `json:"rules"`
}

// FilterRule is one rule of a [Filter].
type FilterRule struct {
	Match   string `json:"match"`
	Outcome string `json:"outcome"` // drop, keep, surface or inject
}

// DroppedEvent is an event that a filter dropped: no stream has it.
type DroppedEvent struct {
	Stream   string    `json:"stream"`
	Provider string    `json:"provider"`
	TS       time.Time `json:"ts"`
	Event    string    `json:"event"` // the text that the filter saw, 2 KiB at most
	Rule     int       `json:"rule"`  // the index of the rule that dropped it
	Match    string    `json:"match"` // the pattern, which the filter may not have any more
}

// QueuedPrompt is a prompt that a session has not begun, as GET /queue lists them. First come the
// prompts that the agent takes up at its next step, then the prompts that wait for the end of the
// turn, then prompts of providers, each in their order.
type QueuedPrompt struct {
	ID          string    `json:"id"` // in its session
	Session     string    `json:"session"`
	Prompt      string    `json:"prompt"`
	Source      string    `json:"source"`                // user, or provider:NAME
	Attachments []string  `json:"attachments,omitempty"` // their paths
	QueuedAt    time.Time `json:"queuedAt"`
	// the agent has it, so it can be neither changed nor taken back
	Sent bool `json:"sent,omitempty"`
}

// EditQueued is the body of PATCH /sessions/{id}/queue/{prompt}. The answer is [Nothing].
type EditQueued struct {
	Prompt string `json:"prompt"`
}
