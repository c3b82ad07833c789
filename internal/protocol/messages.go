package protocol

import "github.com/go-json-experiment/json/jsontext"

// Raw is JSON text that passes through the gateway byte for byte.
type Raw = jsontext.Value

// Message is one message of the wire, in either direction.
type Message interface{ MessageType() Type }

// Session events that a provider may subscribe to in hello.subscribe (docs/protocol.md, "Subscriptions").
const (
	EventUserMessage      = "user.message"
	EventAssistantMessage = "assistant.message"
	EventToolComplete     = "tool.execution_complete"
	EventAssistantIntent  = "assistant.intent"
)

// AllSessions is the hello.session that binds a provider to every session (docs/protocol.md, "All sessions").
const AllSessions = "all"

// ModePair is the auth.mode that asks for pairing (docs/protocol.md, "Pairing").
const ModePair = "pair"

// Auth is the first message of a connection. It carries a token or a reconnect token, or asks for pairing. The gateway
// answers with [Sessions], with [AuthPairing], or with AUTH_FAILED and the end of the connection.
type Auth struct {
	Token          string `json:"token,omitzero"`
	Mode           string `json:"mode,omitzero"`
	ReconnectToken string `json:"reconnectToken,omitzero"`
	Session        string `json:"session,omitzero"` // the one that shows a pairing code
	Name           string `json:"name,omitzero"`
	Instance       string `json:"instance,omitzero"`
}

// AuthConfirm carries the pairing code that the user typed. [Sessions] answers it, with a token.
type AuthConfirm struct {
	Code string `json:"code"`
}

// Tool is a tool of a provider (docs/protocol.md, "Tool").
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Parameters  Raw    `json:"parameters"`        // JSON Schema of an object
	Timeout     *int64 `json:"timeout,omitzero"`  // milliseconds
	Validate    *bool  `json:"validate,omitzero"` // false: the gateway does not check args
}

// Concurrency limits how many calls run at once (docs/protocol.md, "Concurrency"). Without Max it limits nothing.
type Concurrency struct {
	Max   *int   `json:"max,omitzero"`
	Scope string `json:"scope,omitzero"` // instance (default), provider, tool
}

// Match says which tool calls a rule is about: all parts that are not empty must match (docs/protocol.md, "Match and
// patterns").
type Match struct {
	Tool     string `json:"tool,omitzero"`
	Args     string `json:"args,omitzero"`
	File     string `json:"file,omitzero"`
	Provider string `json:"provider,omitzero"`
}

// Actions of rules.
const (
	ActionDeny    = "deny"
	ActionContext = "context"
	ActionGate    = "gate"
)

// Rule is one entry of onPreToolUse (docs/protocol.md, "Rules and gates"). The comments name the action that has
// the field.
type Rule struct {
	Match    Match  `json:"match"`
	Action   string `json:"action"`
	Reason   string `json:"reason,omitzero"`   // deny
	Content  string `json:"content,omitzero"`  // context
	GateID   string `json:"gateId,omitzero"`   // gate
	FailOpen bool   `json:"failOpen,omitzero"` // gate
}

// Actions of transforms.
const (
	TransformAppend   = "append"
	TransformPrepend  = "prepend"
	TransformReplace  = "replace"
	TransformCallback = "callback"
)

// Transform changes a section of the system prompt (docs/protocol.md, "Transforms"). A callback has no Content; the
// gateway asks for it with [TransformRequest].
type Transform struct {
	Action  string  `json:"action"`
	Content *string `json:"content,omitzero"`
}

// Hooks are the rules of a provider and its transforms by section.
type Hooks struct {
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// Hello registers a provider and binds it to a session, or to [AllSessions]. [HelloAck] answers it. After a
// reconnect token, the fields that are nil keep what the provider had before (docs/protocol.md, "Reconnecting").
type Hello struct {
	Name            string       `json:"name"`
	ProtocolVersion *int         `json:"protocolVersion"`
	Session         string       `json:"session,omitzero"`
	Instance        string       `json:"instance,omitzero"`
	ReconnectToken  string       `json:"reconnectToken,omitzero"`
	StartupContext  string       `json:"startup_context,omitzero"`
	Context         *string      `json:"context,omitzero"`
	Metadata        Raw          `json:"metadata,omitzero"`
	Tools           []Tool       `json:"tools,omitzero"`
	Hooks           *Hooks       `json:"hooks,omitzero"`
	Subscribe       []string     `json:"subscribe,omitzero"`
	Concurrency     *Concurrency `json:"concurrency,omitzero"`
}

// Goodbye says that the provider closes the connection on purpose. Its reconnect token is void then, unless it answers
// shutdown.pending.
type Goodbye struct {
	Reason string `json:"reason,omitzero"`
}

// SessionReady binds a provider of all sessions to a new one (docs/protocol.md, "All sessions").
type SessionReady struct {
	SessionID string `json:"sessionId"`
}

// FileRef names a file in the provider's persistDir whose content is a result of up to 64 MiB (docs/protocol.md,
// "File").
type FileRef struct {
	Path     string `json:"path"`
	MimeType string `json:"mimeType,omitzero"`
	Size     int64  `json:"size,omitzero"` // bytes
	TTL      int64  `json:"ttl,omitzero"`  // seconds
}

// ToolResult answers a [ToolCall]. Data is nil if it is missing; a JSON null is the text "null".
type ToolResult struct {
	ID        string   `json:"id"`
	Data      Raw      `json:"data,omitzero"`
	Error     string   `json:"error,omitzero"`
	ErrorCode Code     `json:"errorCode,omitzero"`
	Retryable bool     `json:"retryable,omitzero"`
	File      *FileRef `json:"file,omitzero"`
}

// Failed reports whether the call failed.
func (r *ToolResult) Failed() bool { return r.Error != "" || r.ErrorCode != "" }

// ToolProgress shows a line in the timeline while a call runs. It does not extend the call's time.
type ToolProgress struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

// Decisions of a gate.
const (
	DecisionAllow   = "allow"
	DecisionDeny    = "deny"
	DecisionContext = "context"
)

// GateResult answers a [GateCheck]. With the decision context, Reason is the text for the model.
type GateResult struct {
	GateID   string `json:"gateId,omitzero"`
	CallID   string `json:"callId"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitzero"`
}

// TransformResult answers a [TransformRequest].
type TransformResult struct {
	CallID  string  `json:"callId"`
	Content *string `json:"content"`
}

// Level says how far a push goes: each level does what the one before it does, and more.
type Level string

// Levels of a push.
const (
	LevelKeep    Level = "keep"
	LevelSurface Level = "surface"
	LevelInject  Level = "inject"
)

// Push brings an event or a prompt into a session (docs/protocol.md, "Pushes"). With a requestId, [Ack] answers it.
type Push struct {
	Stream    string `json:"stream,omitzero"`
	SessionID string `json:"sessionId,omitzero"`
	Broadcast bool   `json:"broadcast,omitzero"`
	Event     string `json:"event,omitzero"`
	Prompt    string `json:"prompt,omitzero"`
	Level     Level  `json:"level"`
	Metadata  Raw    `json:"metadata,omitzero"`
	RequestID string `json:"requestId,omitzero"`
}

// ToolsUpdate replaces the tools of a provider. If Remove is not nil, it removes these and adds Tools
// (docs/protocol.md, "Updates").
type ToolsUpdate struct {
	RequestID string   `json:"requestId,omitzero"`
	SessionID string   `json:"sessionId,omitzero"`
	Tools     []Tool   `json:"tools,omitzero"`
	Remove    []string `json:"remove,omitzero"`
}

// HooksUpdate changes rules and transforms. A non-nil OnPreToolUse replaces all rules. Transforms change the
// sections that they name; nil removes the transform of a section.
type HooksUpdate struct {
	RequestID    string                `json:"requestId,omitzero"`
	SessionID    string                `json:"sessionId,omitzero"`
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// ContextUpdate replaces the context that the provider adds to prompts (docs/protocol.md, "Context").
type ContextUpdate struct {
	RequestID string  `json:"requestId,omitzero"`
	SessionID string  `json:"sessionId,omitzero"`
	Context   *string `json:"context"`
}

// OutcomeDrop is the outcome of a [FilterRule] that drops the event: the stream does not store it.
const OutcomeDrop Level = "drop"

// FilterRule gives an outcome, a level or drop, to the pushes whose event matches.
type FilterRule struct {
	Match   string `json:"match"`
	Outcome Level  `json:"outcome"`
}

// FilterSet sets the filter of a stream; no rules remove it (docs/protocol.md, "Filters").
type FilterSet struct {
	RequestID string       `json:"requestId,omitzero"`
	SessionID string       `json:"sessionId,omitzero"`
	Stream    string       `json:"stream"`
	Rules     []FilterRule `json:"rules"`
}

// StreamQuery asks for the history of streams, named stream or stream@provider. [StreamHistory] answers it.
type StreamQuery struct {
	QueryID   string   `json:"queryId"`
	SessionID string   `json:"sessionId,omitzero"`
	Streams   []string `json:"streams,omitzero"`
	Last      *int     `json:"last,omitzero"`
}

// ShutdownReady says that the provider has cleaned up and the session may end.
type ShutdownReady struct {
	SessionID string `json:"sessionId,omitzero"`
}

// AuthPairing asks for the pairing code. Prompt is a line for the user.
type AuthPairing struct {
	Prompt string `json:"prompt"`
}

// SessionInfo is a session in a list. CWD is empty for sessions that the provider may not bind to.
type SessionInfo struct {
	ID         string `json:"id"`
	Label      string `json:"label"`
	CWD        string `json:"cwd,omitzero"`
	Foreground bool   `json:"foreground,omitzero"`
}

// Sessions lists the active sessions, first those that the provider may bind to. Token is the result of pairing.
type Sessions struct {
	Token  string        `json:"token,omitzero"`
	Active []SessionInfo `json:"active"`
}

// SessionsUpdated sends the list of sessions after it has changed.
type SessionsUpdated struct {
	Active []SessionInfo `json:"active"`
}

// HelloAck confirms that a provider is bound.
type HelloAck struct {
	ProtocolVersion int    `json:"protocolVersion"`
	ProviderID      string `json:"providerId"`
	SessionID       string `json:"sessionId"`
	ReconnectToken  string `json:"reconnectToken"`
	PersistDir      string `json:"persistDir,omitzero"`
	Name            string `json:"name,omitzero"` // the normal name, if hello spelled it differently
}

// Ack confirms an update in one session, with its revision, or reports the fate of a push with its number in the
// session (docs/protocol.md, "Updates" and "Receipts").
type Ack struct {
	RequestID string `json:"requestId"`
	SessionID string `json:"sessionId"`
	Revision  uint64 `json:"revision,omitzero"`
	Seq       uint64 `json:"seq,omitzero"`
	Fate      string `json:"fate,omitzero"`
	Reason    string `json:"reason,omitzero"`
	Stream    string `json:"stream,omitzero"` // the normal name, if the message spelled it differently
}

// Error says what is wrong with a message, in one line that names the field. It is also the error type of all
// functions in package gateway that answer messages.
type Error struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	ReplyTo    Type   `json:"replyTo,omitzero"`
	RequestID  string `json:"requestId,omitzero"`
	ProviderID string `json:"providerId,omitzero"`
	SessionID  string `json:"sessionId,omitzero"`
}

// ToolCall asks a provider to run a tool. Args is the JSON of an object.
type ToolCall struct {
	ID          string `json:"id"`
	SessionID   string `json:"sessionId"`
	Tool        string `json:"tool"`
	Args        Raw    `json:"args"`
	Traceparent string `json:"traceparent,omitzero"`
}

// Reasons of a cancel.
const (
	ReasonTimeout     = "timeout"
	ReasonInterrupted = "interrupted"
	ReasonRebind      = "rebind"
)

// ToolCancel cancels a call. The provider may still answer it; the gateway ignores the answer.
type ToolCancel struct {
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	Reason    string `json:"reason"`
}

// GateCheck asks a provider to decide about a tool call, within five seconds (docs/protocol.md, "Rules and gates").
type GateCheck struct {
	GateID      string `json:"gateId"`
	CallID      string `json:"callId"`
	SessionID   string `json:"sessionId"`
	Tool        string `json:"tool"`
	Args        Raw    `json:"args"`
	Traceparent string `json:"traceparent,omitzero"`
}

// TransformRequest asks a provider for the text of a section, within two seconds.
type TransformRequest struct {
	CallID    string `json:"callId"`
	SessionID string `json:"sessionId"`
	Section   string `json:"section"`
	Current   string `json:"current"`
}

// SessionEvent forwards an event that the provider subscribed to (docs/protocol.md, "Subscriptions").
type SessionEvent struct {
	SessionID string `json:"sessionId"`
	Event     string `json:"event"`
	Data      Raw    `json:"data"`
}

// States of a session's life.
const (
	LifecycleStarted         = "started"
	LifecycleIdle            = "idle"
	LifecycleShutdownPending = "shutdown.pending"
)

// SessionLifecycle reports that a session has started, is idle, or ends within Deadline, in milliseconds.
type SessionLifecycle struct {
	SessionID string `json:"sessionId"`
	State     string `json:"state"`
	Deadline  int64  `json:"deadline,omitzero"`
}

// StreamEntry is one event that a stream keeps.
type StreamEntry struct {
	TS       string `json:"ts"` // RFC 3339, UTC
	Event    string `json:"event"`
	Level    Level  `json:"level"`
	Metadata Raw    `json:"metadata,omitzero"`
	Prompt   string `json:"prompt,omitzero"`
}

// StreamHistory answers a [StreamQuery]. Keys are stream@provider; entries are sorted, the newest first.
type StreamHistory struct {
	QueryID string                   `json:"queryId"`
	Streams map[string][]StreamEntry `json:"streams"`
}

// MessageType implements [Message].
func (*Auth) MessageType() Type             { return TypeAuth }
func (*AuthConfirm) MessageType() Type      { return TypeAuthConfirm }
func (*Hello) MessageType() Type            { return TypeHello }
func (*Goodbye) MessageType() Type          { return TypeGoodbye }
func (*SessionReady) MessageType() Type     { return TypeSessionReady }
func (*ToolResult) MessageType() Type       { return TypeToolResult }
func (*ToolProgress) MessageType() Type     { return TypeToolProgress }
func (*GateResult) MessageType() Type       { return TypeGateResult }
func (*TransformResult) MessageType() Type  { return TypeTransformResult }
func (*Push) MessageType() Type             { return TypePush }
func (*ToolsUpdate) MessageType() Type      { return TypeToolsUpdate }
func (*HooksUpdate) MessageType() Type      { return TypeHooksUpdate }
func (*ContextUpdate) MessageType() Type    { return TypeContextUpdate }
func (*FilterSet) MessageType() Type        { return TypeFilterSet }
func (*StreamQuery) MessageType() Type      { return TypeStreamQuery }
func (*ShutdownReady) MessageType() Type    { return TypeShutdownReady }
func (*AuthPairing) MessageType() Type      { return TypeAuthPairing }
func (*Sessions) MessageType() Type         { return TypeSessions }
func (*SessionsUpdated) MessageType() Type  { return TypeSessionsUpdated }
func (*HelloAck) MessageType() Type         { return TypeHelloAck }
func (*Ack) MessageType() Type              { return TypeAck }
func (*Error) MessageType() Type            { return TypeError }
func (*ToolCall) MessageType() Type         { return TypeToolCall }
func (*ToolCancel) MessageType() Type       { return TypeToolCancel }
func (*GateCheck) MessageType() Type        { return TypeGateCheck }
func (*TransformRequest) MessageType() Type { return TypeTransformRequest }
func (*SessionEvent) MessageType() Type     { return TypeSessionEvent }
func (*SessionLifecycle) MessageType() Type { return TypeSessionLifecycle }
func (*StreamHistory) MessageType() Type    { return TypeStreamHistory }

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }
