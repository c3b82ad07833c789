package protocol

import "github.com/go-json-experiment/json/jsontext"

// Raw is JSON text that passes through as it came.
type Raw = jsontext.Value

// Message is one message of the wire, in either direction.
type Message interface{ MessageType() Type }

// Session events that a provider may subscribe to ("hello.subscribe").
const (
	EventUserMessage      = "user.message"
	EventAssistantMessage = "assistant.message"
	EventToolComplete     = "tool.execution_complete"
	EventAssistantIntent  = "assistant.intent"
)

// AllSessions as hello.session binds to every session.
const AllSessions = "all"

// ModePair as auth.mode asks for pairing.
const ModePair = "pair"

// Auth is the first message of a connection. It carries a token, a reconnect
// token, or asks for pairing.
type Auth struct {
	Token          string `json:"token,omitzero"`
	Mode           string `json:"mode,omitzero"`
	ReconnectToken string `json:"reconnectToken,omitzero"`
	Session        string `json:"session,omitzero"` // where a pairing code is shown
	Name           string `json:"name,omitzero"`
	Instance       string `json:"instance,omitzero"`
}

// AuthConfirm carries the pairing code that the user typed.
type AuthConfirm struct {
	Code string `json:"code"`
}

// Tool is a tool that a provider offers.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Parameters  Raw    `json:"parameters"`        // JSON Schema of an object
	Timeout     *int64 `json:"timeout,omitzero"`  // milliseconds
	Validate    *bool  `json:"validate,omitzero"` // false: args are not checked
}

// Concurrency limits the calls in flight at once. Without Max it limits nothing.
type Concurrency struct {
	Max   *int   `json:"max,omitzero"`
	Scope string `json:"scope,omitzero"` // instance (default), provider, tool
}

// Match says which tool calls a hook rule is about; every given part must match.
type Match struct {
	Tool     string `json:"tool,omitzero"`
	Args     string `json:"args,omitzero"`
	File     string `json:"file,omitzero"`
	Provider string `json:"provider,omitzero"`
}

// Actions of hook rules.
const (
	ActionDeny    = "deny"
	ActionContext = "context"
	ActionGate    = "gate"
)

// Rule is one onPreToolUse rule.
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

// Transform changes a section of the system prompt. Content is required but for
// a callback.
type Transform struct {
	Action  string  `json:"action"`
	Content *string `json:"content,omitzero"`
}

// Hooks are the rules and transforms of a provider. A nil transform removes it
// in hooks.update.
type Hooks struct {
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// Hello registers a provider and binds it to a session. What is nil in one that
// restores a binding comes back as it was.
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

// Goodbye announces that the provider leaves.
type Goodbye struct {
	Reason string `json:"reason,omitzero"`
}

// SessionReady lets a provider of all sessions into a new one.
type SessionReady struct {
	SessionID string `json:"sessionId"`
}

// FileRef names a file in the provider's persistDir that holds a result.
type FileRef struct {
	Path     string `json:"path"`
	MimeType string `json:"mimeType,omitzero"`
	Size     int64  `json:"size,omitzero"` // bytes
	TTL      int64  `json:"ttl,omitzero"`  // seconds
}

// ToolResult answers a tool.call. Data is nil when it was absent; a JSON null is
// the text "null".
type ToolResult struct {
	ID        string   `json:"id"`
	Data      Raw      `json:"data,omitzero"`
	Error     string   `json:"error,omitzero"`
	ErrorCode Code     `json:"errorCode,omitzero"`
	Retryable bool     `json:"retryable,omitzero"`
	File      *FileRef `json:"file,omitzero"`
}

// Failed reports whether the result says that the call failed.
func (r *ToolResult) Failed() bool { return r.Error != "" || r.ErrorCode != "" }

// ToolProgress tells of a slow call.
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

// GateResult answers a gate.check.
type GateResult struct {
	GateID   string `json:"gateId,omitzero"`
	CallID   string `json:"callId"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitzero"`
}

// TransformResult answers a transform.request.
type TransformResult struct {
	CallID  string  `json:"callId"`
	Content *string `json:"content"`
}

// Level says how far a push goes.
type Level string

// Levels of a push.
const (
	LevelKeep    Level = "keep"
	LevelSurface Level = "surface"
	LevelInject  Level = "inject"
)

// Push brings an event or a prompt into a session.
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

// ToolsUpdate replaces the tools of a provider, or changes them when Remove is
// not nil.
type ToolsUpdate struct {
	RequestID string   `json:"requestId,omitzero"`
	SessionID string   `json:"sessionId,omitzero"`
	Tools     []Tool   `json:"tools,omitzero"`
	Remove    []string `json:"remove,omitzero"`
}

// HooksUpdate changes rules and transforms. OnPreToolUse replaces the rules
// when it is not nil; transforms merge by section.
type HooksUpdate struct {
	RequestID    string                `json:"requestId,omitzero"`
	SessionID    string                `json:"sessionId,omitzero"`
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// ContextUpdate replaces the ambient context.
type ContextUpdate struct {
	RequestID string  `json:"requestId,omitzero"`
	SessionID string  `json:"sessionId,omitzero"`
	Context   *string `json:"context"`
}

// OutcomeDrop as the outcome of a filter rule stores nothing.
const OutcomeDrop Level = "drop"

// FilterRule gives the pushes whose event matches an outcome: a level, or drop.
type FilterRule struct {
	Match   string `json:"match"`
	Outcome Level  `json:"outcome"`
}

// FilterSet sets the filter of a stream.
type FilterSet struct {
	RequestID string       `json:"requestId,omitzero"`
	SessionID string       `json:"sessionId,omitzero"`
	Stream    string       `json:"stream"`
	Rules     []FilterRule `json:"rules"`
}

// StreamQuery asks for the history of streams, as stream or stream@provider.
type StreamQuery struct {
	QueryID   string   `json:"queryId"`
	SessionID string   `json:"sessionId,omitzero"`
	Streams   []string `json:"streams,omitzero"`
	Last      *int     `json:"last,omitzero"`
}

// ShutdownReady says that a provider has cleaned up after a session.
type ShutdownReady struct {
	SessionID string `json:"sessionId,omitzero"`
}

// AuthPairing asks for the pairing code.
type AuthPairing struct {
	Prompt string `json:"prompt"`
}

// SessionInfo is a session in a session list. CWD is there only for sessions
// that the provider may bind.
type SessionInfo struct {
	ID         string `json:"id"`
	Label      string `json:"label"`
	CWD        string `json:"cwd,omitzero"`
	Foreground bool   `json:"foreground,omitzero"`
}

// Sessions lists the active sessions, first those that the provider may bind.
type Sessions struct {
	Token  string        `json:"token,omitzero"`
	Active []SessionInfo `json:"active"`
}

// SessionsUpdated tells that the list changed.
type SessionsUpdated struct {
	Active []SessionInfo `json:"active"`
}

// HelloAck tells that a provider is bound.
type HelloAck struct {
	ProtocolVersion int    `json:"protocolVersion"`
	ProviderID      string `json:"providerId"`
	SessionID       string `json:"sessionId"`
	ReconnectToken  string `json:"reconnectToken"`
	PersistDir      string `json:"persistDir,omitzero"`
	Name            string `json:"name,omitzero"` // ours: where hello spelled it otherwise
}

// Ack confirms an update, per session, or tells the fate of a push.
type Ack struct {
	RequestID string `json:"requestId"`
	SessionID string `json:"sessionId"`
	Revision  uint64 `json:"revision,omitzero"`
	Seq       uint64 `json:"seq,omitzero"`
	Fate      string `json:"fate,omitzero"`
	Reason    string `json:"reason,omitzero"`
	Stream    string `json:"stream,omitzero"` // ours: where the message spelled it otherwise
}

// Error tells what is wrong with a message. It is also the error that every
// function of the domain returns.
type Error struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	ReplyTo    Type   `json:"replyTo,omitzero"`
	RequestID  string `json:"requestId,omitzero"`
	ProviderID string `json:"providerId,omitzero"`
	SessionID  string `json:"sessionId,omitzero"`
}

// ToolCall asks a provider to run a tool. Args is the raw JSON of an object.
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

// ToolCancel aborts a call.
type ToolCancel struct {
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	Reason    string `json:"reason"`
}

// GateCheck asks a provider to decide about a tool call.
type GateCheck struct {
	GateID      string `json:"gateId"`
	CallID      string `json:"callId"`
	SessionID   string `json:"sessionId"`
	Tool        string `json:"tool"`
	Args        Raw    `json:"args"`
	Traceparent string `json:"traceparent,omitzero"`
}

// TransformRequest asks a provider for a section's text.
type TransformRequest struct {
	CallID    string `json:"callId"`
	SessionID string `json:"sessionId"`
	Section   string `json:"section"`
	Current   string `json:"current"`
}

// SessionEvent forwards an event that the provider subscribed to.
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

// SessionLifecycle tells of a session's life. Deadline is in milliseconds.
type SessionLifecycle struct {
	SessionID string `json:"sessionId"`
	State     string `json:"state"`
	Deadline  int64  `json:"deadline,omitzero"`
}

// StreamEntry is one stored event.
type StreamEntry struct {
	TS       string `json:"ts"` // RFC 3339, UTC
	Event    string `json:"event"`
	Level    Level  `json:"level"`
	Metadata Raw    `json:"metadata,omitzero"`
	Prompt   string `json:"prompt,omitzero"`
}

// StreamHistory answers a stream.query; keys are stream@provider, entries newest
// first.
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
