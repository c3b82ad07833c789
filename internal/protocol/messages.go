package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Raw is JSON text that passes through the gateway byte for byte.
type Raw = jsontext.Value

// Message is one message of the wire, in either direction. Its implementations are pointers to the
// types of this file. [Frame.Decode] makes one of JSON, [Append] makes JSON of one.
type Message interface{ MessageType() Type }

// Session events that a provider may name in hello.subscribe; [Validate] refuses any other.
// docs/protocol.md, "Subscriptions", has the fields of each event and the providers that may
// subscribe to it.
const (
	EventUserMessage      = "user.message"
	EventAssistantMessage = "assistant.message"
	EventToolComplete     = "tool.execution_complete"
	EventAssistantIntent  = "assistant.intent"
	EventSessionError     = "session.error"
	EventPushed           = "event.pushed"
	EventQuestionAsked    = "question.asked" // data: [Question]
	EventQuestionEnded    = "question.ended" // data: [QuestionEnd]
)

// Events are the names that hello.subscribe may have. The gateway gives the events of questions
// only to providers with the grant for them (docs/protocol.md, "Trust").
var Events = []string{EventUserMessage, EventAssistantMessage, EventToolComplete,
	EventAssistantIntent, EventSessionError, EventPushed, EventQuestionAsked, EventQuestionEnded}

// AllSessions is the hello.session that binds a provider to every session, present and future. It
// takes an internal token or a grant; without one the answer is UNAUTHORIZED (docs/protocol.md,
// "All sessions").
const AllSessions = "all"

// ModePair is the auth.mode of a provider without a token, which asks the user for one
// (docs/protocol.md, "Pairing"). It is the only mode; the others leave auth.mode empty.
const ModePair = "pair"

// Auth is the first message of a connection. It carries a token or a reconnect token, or asks for
// pairing. The gateway answers with [Sessions], with [AuthPairing], or with AUTH_FAILED and the end
// of the connection.
type Auth struct {
	Token          string `json:"token,omitzero"`
	Mode           string `json:"mode,omitzero"`
	ReconnectToken string `json:"reconnectToken,omitzero"`
	Session        string `json:"session,omitzero"` // the one that shows a pairing code
	Name           string `json:"name,omitzero"`
	Instance       string `json:"instance,omitzero"`
}

// AuthConfirm carries the six digits of the pairing code that the user typed. A connection has one
// try: [Sessions] answers it with a token, or AUTH_FAILED ends the connection (docs/protocol.md,
// "Pairing").
type AuthConfirm struct {
	Code string `json:"code"`
}

// Tool is a tool that a provider offers (docs/protocol.md, "Tool"). A nil Timeout means
// [DefaultToolTimeout], a nil Validate true. Name is unique in a session; a second provider with
// the same one gets TOOL_CONFLICT.
type Tool struct {
	Name         string       `json:"name"`
	Title        string       `json:"title,omitzero"` // for people
	Description  string       `json:"description"`
	Parameters   Raw          `json:"parameters"`            // JSON Schema of an object
	OutputSchema Raw          `json:"outputSchema,omitzero"` // of the results' data, an object
	Annotations  *Annotations `json:"annotations,omitzero"`
	Timeout      *int64       `json:"timeout,omitzero"`  // milliseconds
	Validate     *bool        `json:"validate,omitzero"` // false: the gateway does not check args
}

// Annotations are a provider's hints about the effects of a tool, with the names and defaults of
// MCP. A nil hint is not given. No rule, gate or permission goes by them (docs/protocol.md,
// "Annotations").
type Annotations struct {
	ReadOnlyHint    *bool `json:"readOnlyHint,omitzero"`
	DestructiveHint *bool `json:"destructiveHint,omitzero"`
	IdempotentHint  *bool `json:"idempotentHint,omitzero"`
	OpenWorldHint   *bool `json:"openWorldHint,omitzero"`
}

// Concurrency limits how many calls run at once, of the instance, of all instances of the name, or
// of each tool. A nil Max is no limit; otherwise it is at least 1 (docs/protocol.md,
// "Concurrency").
type Concurrency struct {
	Max   *int   `json:"max,omitzero"`
	Scope string `json:"scope,omitzero"` // instance (default), provider, tool
}

// Match is the condition of a rule on a tool call: all parts that are not empty must match
// (docs/protocol.md, "Match and patterns").
type Match struct {
	Tool     string `json:"tool,omitzero"`
	Args     string `json:"args,omitzero"`
	File     string `json:"file,omitzero"`
	Provider string `json:"provider,omitzero"`
}

// Actions of a [Rule]: deny the call, give the model a text with it, or ask the provider with
// [GateCheck].
const (
	ActionDeny    = "deny"
	ActionContext = "context"
	ActionGate    = "gate"
)

// Rule is one entry of onPreToolUse: an action before the tool calls that Match names
// (docs/protocol.md, "Rules and gates"). A field's comment names the action that has it; GateID and
// Content are required there.
type Rule struct {
	Match    Match  `json:"match"`
	Action   string `json:"action"`
	Reason   string `json:"reason,omitzero"`   // deny
	Content  string `json:"content,omitzero"`  // context
	GateID   string `json:"gateId,omitzero"`   // gate
	FailOpen bool   `json:"failOpen,omitzero"` // gate
}

// Actions of a [Transform]: put Content after or before the section, replace the section by it, or
// ask with [TransformRequest].
const (
	TransformAppend   = "append"
	TransformPrepend  = "prepend"
	TransformReplace  = "replace"
	TransformCallback = "callback"
)

// Transform changes a section of the system prompt (docs/protocol.md, "Transforms"). Content is
// required, and may be empty, except for a callback: then the gateway asks for the text with
// [TransformRequest].
type Transform struct {
	Action  string  `json:"action"`
	Content *string `json:"content,omitzero"`
}

// Hooks are the rules of a provider, at most [MaxHookRules], and its transforms by the section's
// name, at most [MaxTransforms]; a nil value is no transform (docs/protocol.md, "Hooks").
type Hooks struct {
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// Hello registers a provider and binds it to a session, or to [AllSessions]. [HelloAck] answers it.
// After a reconnect token, the fields that are nil keep the provider's earlier values
// (docs/protocol.md, "Reconnecting").
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

// Goodbye announces that the provider closes the connection on purpose; Reason is for people. It
// voids the reconnect token, unless it answers the lifecycle state shutdown.pending
// (docs/protocol.md, "Reconnecting").
type Goodbye struct {
	Reason string `json:"reason,omitzero"`
}

// SessionReady binds a provider of all sessions to a session that began after its hello
// (docs/protocol.md, "All sessions"). INVALID_SESSION and TOOL_CONFLICT may answer it. From other
// providers it has no effect.
type SessionReady struct {
	SessionID string `json:"sessionId"`
}

// FileRef names a file in the provider's persistDir whose content is a result of up to 64 MiB
// (docs/protocol.md, "File").
type FileRef struct {
	Path     string `json:"path"`
	MimeType string `json:"mimeType,omitzero"`
	Size     int64  `json:"size,omitzero"` // bytes
	TTL      int64  `json:"ttl,omitzero"`  // seconds
}

// ToolResult answers a [ToolCall], once. Data is nil if it is missing; a JSON null is the text
// "null". One of Data, Content, Error, ErrorCode and File is required. With Content, Data is the
// value for programs. With Retryable, another instance may be asked (docs/protocol.md, "Calls").
type ToolResult struct {
	ID        string   `json:"id"`
	Data      Raw      `json:"data,omitzero"`
	Content   []Part   `json:"content,omitzero"`
	Error     string   `json:"error,omitzero"`
	ErrorCode Code     `json:"errorCode,omitzero"`
	Retryable bool     `json:"retryable,omitzero"`
	File      *FileRef `json:"file,omitzero"`
}

// Failed reports whether the call failed: Error or ErrorCode is set, with any Data and File.
func (r *ToolResult) Failed() bool { return r.Error != "" || r.ErrorCode != "" }

// ToolProgress shows a line in the session's timeline while a call runs. It does not extend the
// call's timeout. The gateway ignores one for a call that has ended.
type ToolProgress struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

// Decisions of a [GateResult]. With context the call runs, and the model gets the reason as a text.
const (
	DecisionAllow   = "allow"
	DecisionDeny    = "deny"
	DecisionContext = "context"
)

// GateResult answers a [GateCheck] with the same CallID. Reason is for the model: why the call is
// denied, or the text of the decision context. A malformed result denies the call; a late one is
// ignored.
type GateResult struct {
	GateID   string `json:"gateId,omitzero"`
	CallID   string `json:"callId"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitzero"`
}

// TransformResult answers a [TransformRequest] with the same CallID. Content is the section's new
// text: nil is an error, empty is allowed. A late result is ignored and the section stays as it
// was.
type TransformResult struct {
	CallID  string  `json:"callId"`
	Content *string `json:"content"`
}

// Level says how far a push goes: each level has the effects of the one before it, and more. The
// same type holds the outcome of a [FilterRule], which may also be [OutcomeDrop].
type Level string

// Levels of a push: store it in the stream, also show it in the timeline, also start a turn
// (docs/protocol.md, "Pushes").
const (
	LevelKeep    Level = "keep"
	LevelSurface Level = "surface"
	LevelInject  Level = "inject"
)

// Push brings an event, a prompt, or both into a session, or with Broadcast into all of the
// provider's sessions (docs/protocol.md, "Pushes"). An empty Stream is the provider's own name.
// With a RequestID, an [Ack] of each session answers it. A Traceparent that W3C calls invalid is
// ignored.
type Push struct {
	Stream    string `json:"stream,omitzero"`
	SessionID string `json:"sessionId,omitzero"`
	Broadcast bool   `json:"broadcast,omitzero"`
	Event     string `json:"event,omitzero"`
	Prompt    string `json:"prompt,omitzero"`
	Level     Level  `json:"level"`
	Metadata  Raw    `json:"metadata,omitzero"`
	RequestID string `json:"requestId,omitzero"`

	Traceparent string `json:"traceparent,omitzero"`
}

// ToolsUpdate replaces the tools of a provider, or if Remove is not nil, drops those names and adds
// or replaces Tools (docs/protocol.md, "Updates"). An empty SessionID means all sessions of the
// provider.
type ToolsUpdate struct {
	RequestID string   `json:"requestId,omitzero"`
	SessionID string   `json:"sessionId,omitzero"`
	Tools     []Tool   `json:"tools,omitzero"`
	Remove    []string `json:"remove,omitzero"`
}

// HooksUpdate changes rules and transforms (docs/protocol.md, "Updates"). A non-nil OnPreToolUse
// replaces all rules. Transforms change only the sections that they name; a nil value removes a
// section's transform.
type HooksUpdate struct {
	RequestID    string                `json:"requestId,omitzero"`
	SessionID    string                `json:"sessionId,omitzero"`
	OnPreToolUse []Rule                `json:"onPreToolUse,omitzero"`
	Transforms   map[string]*Transform `json:"transforms,omitzero"`
}

// ContextUpdate replaces the context that the provider adds to each of the user's prompts
// (docs/protocol.md, "Context"). It has at most [MaxContext] bytes. An empty text removes it; nil
// is INVALID_JSON.
type ContextUpdate struct {
	RequestID string  `json:"requestId,omitzero"`
	SessionID string  `json:"sessionId,omitzero"`
	Context   *string `json:"context"`
}

// OutcomeDrop is the outcome of a [FilterRule] that drops the event: the stream does not store it
// and no turn starts.
const OutcomeDrop Level = "drop"

// FilterRule gives an outcome, a [Level] or [OutcomeDrop], to the pushes whose text matches. Match
// is a JavaScript regular expression of at most [MaxPattern] bytes (docs/protocol.md, "Match and
// patterns").
type FilterRule struct {
	Match   string `json:"match"`
	Outcome Level  `json:"outcome"`
}

// FilterSet sets the filter of one of the provider's own streams; the first rule that matches
// decides. An empty Rules removes the filter, nil is INVALID_JSON (docs/protocol.md, "Filters").
type FilterSet struct {
	RequestID string       `json:"requestId,omitzero"`
	SessionID string       `json:"sessionId,omitzero"`
	Stream    string       `json:"stream"`
	Rules     []FilterRule `json:"rules"`
}

// StreamQuery asks for the newest events of streams, named stream or stream@provider;
// [StreamHistory] answers it. Nil Streams are all of the provider's own, nil Last is
// [DefaultQueryLast] (docs/protocol.md, "Queries").
type StreamQuery struct {
	QueryID   string   `json:"queryId"`
	SessionID string   `json:"sessionId,omitzero"`
	Streams   []string `json:"streams,omitzero"`
	Last      *int     `json:"last,omitzero"`
}

// Question is the data of [EventQuestionAsked]: a question of the session that waits for an answer.
// It has the fields of GET /questions, without the session (docs/protocol.md, "Questions").
type Question struct {
	ID        string    `json:"id"` // never given twice
	Kind      string    `json:"kind"`
	Message   string    `json:"message"`
	Detail    string    `json:"detail,omitzero"`
	Choices   []string  `json:"choices,omitzero"`
	Freeform  bool      `json:"freeform,omitzero"`
	Schema    Raw       `json:"schema,omitzero"`
	AskedAt   time.Time `json:"askedAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Reasons of a [QuestionEnd]. Withdrawn: its turn was interrupted, or its host waits no more.
const (
	QuestionAnswered     = "answered"
	QuestionExpired      = "expired"
	QuestionWithdrawn    = "withdrawn"
	QuestionSessionEnded = "session.ended"
)

// QuestionEnd is the data of [EventQuestionEnded]. By is "user" for a holder of the admin token, or
// "provider:NAME"; only an answered question has it. Person is who answered, as that provider says.
type QuestionEnd struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	By     string `json:"by,omitzero"`
	Person string `json:"person,omitzero"`
}

// QuestionAnswer answers a question that the provider was told of. The first answer counts. It has
// the fields of POST /sessions/{id}/answer, and Person, who answered (docs/protocol.md,
// "Questions").
type QuestionAnswer struct {
	RequestID string `json:"requestId,omitzero"`
	Question  string `json:"question"` // its id
	Decision  string `json:"decision,omitzero"`
	Text      string `json:"text,omitzero"`
	Content   Raw    `json:"content,omitzero"`
	Person    string `json:"person,omitzero"`
}

// ShutdownReady says that the provider has cleaned up and the session may end. An empty SessionID
// means all sessions of the provider (docs/protocol.md, "The end of a session").
type ShutdownReady struct {
	SessionID string `json:"sessionId,omitzero"`
}

// AuthPairing asks for the pairing code, which the gateway shows in a session and never sends.
// Prompt is the line with which the provider asks its user (docs/protocol.md, "Pairing").
type AuthPairing struct {
	Prompt string `json:"prompt"`
}

// SessionInfo is a session in a list (docs/protocol.md, "Session"). CWD is empty for sessions that
// the provider may not bind to; such sessions come last. Foreground marks the session that the user
// looks at.
type SessionInfo struct {
	ID         string `json:"id"`
	Label      string `json:"label"`
	CWD        string `json:"cwd,omitzero"`
	Foreground bool   `json:"foreground,omitzero"`
}

// Sessions lists the active sessions, first the sessions that the provider may bind to. It answers
// [Auth] and [AuthConfirm]; Token is set only after AuthConfirm. If Active was empty, the first
// session brings it again.
type Sessions struct {
	Token  string        `json:"token,omitzero"`
	Active []SessionInfo `json:"active"`
}

// SessionsUpdated sends the whole list of sessions after a change, to providers that have seen a
// list that was not empty. First come the sessions that the provider may bind to.
type SessionsUpdated struct {
	Active []SessionInfo `json:"active"`
}

// HelloAck confirms that a provider is bound to SessionID, or to [AllSessions]. ReconnectToken is
// good once (docs/protocol.md, "Reconnecting"). PersistDir is empty for external providers.
type HelloAck struct {
	ProtocolVersion int    `json:"protocolVersion"`
	ProviderID      string `json:"providerId"`
	SessionID       string `json:"sessionId"`
	ReconnectToken  string `json:"reconnectToken"`
	PersistDir      string `json:"persistDir,omitzero"`
	// the normal name, if hello spelled it differently
	Name string `json:"name,omitzero"`
}

// Ack confirms an update in one session, with its revision, or the answer to a question, or reports
// the fate of a push with its number in the session (docs/protocol.md, "Updates", "Questions" and
// "Receipts").
type Ack struct {
	RequestID string `json:"requestId"`
	SessionID string `json:"sessionId"`
	Revision  uint64 `json:"revision,omitzero"`
	Seq       uint64 `json:"seq,omitzero"`
	Fate      string `json:"fate,omitzero"`
	Reason    string `json:"reason,omitzero"`
	// the normal name, if the message spelled it differently
	Stream string `json:"stream,omitzero"`
}

// Error describes the fault of a message, in one line that names the field. It is also the error
// type of all functions in package gateway that answer messages.
type Error struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	ReplyTo    Type   `json:"replyTo,omitzero"`
	RequestID  string `json:"requestId,omitzero"`
	ProviderID string `json:"providerId,omitzero"`
	SessionID  string `json:"sessionId,omitzero"`
}

// ToolCall asks a provider to run a tool; it answers with one [ToolResult] of the same ID
// (docs/protocol.md, "Calls"). Args is a JSON object; [Append] writes it byte for byte, and {} if
// it is empty.
type ToolCall struct {
	ID          string `json:"id"`
	SessionID   string `json:"sessionId"`
	Tool        string `json:"tool"`
	Args        Raw    `json:"args"`
	Traceparent string `json:"traceparent,omitzero"`
}

// Reasons of a [ToolCancel]: the call's time is over, it was interrupted or its session ended, or
// its provider bound anew. A session host may send another reason, which the gateway passes on.
const (
	ReasonTimeout     = "timeout"
	ReasonInterrupted = "interrupted"
	ReasonRebind      = "rebind"
)

// ToolCancel cancels a call; Reason is one of the constants above. The session already has its
// outcome. The provider may still answer; the gateway ignores the answer, but it frees the call's
// slot.
type ToolCancel struct {
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	Reason    string `json:"reason"`
}

// GateCheck asks a provider to decide about a tool call before it runs. Without a [GateResult]
// within [GateTimeout] the call is denied, or runs if the rule has FailOpen (docs/protocol.md,
// "Rules and gates").
type GateCheck struct {
	GateID      string `json:"gateId"`
	CallID      string `json:"callId"`
	SessionID   string `json:"sessionId"`
	Tool        string `json:"tool"`
	Args        Raw    `json:"args"`
	Traceparent string `json:"traceparent,omitzero"`
}

// TransformRequest asks a provider for the new text of a section; Current is the text so far.
// Without an answer within [TransformTimeout] the section does not change (docs/protocol.md,
// "Transforms").
type TransformRequest struct {
	CallID    string `json:"callId"`
	SessionID string `json:"sessionId"`
	Section   string `json:"section"`
	Current   string `json:"current"`
}

// SessionEvent forwards an event that the provider subscribed to; Data is a JSON object whose
// members depend on Event (docs/protocol.md, "Subscriptions"). The events of one session come in
// order.
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

// SessionLifecycle reports, without a subscription, that a session has started, waits for a prompt,
// or ends. Only with shutdown.pending, Deadline is the time until the end in milliseconds.
type SessionLifecycle struct {
	SessionID string `json:"sessionId"`
	State     string `json:"state"`
	Deadline  int64  `json:"deadline,omitzero"`
}

// StreamEntry is one event that a stream keeps (docs/protocol.md, "Entry"). Level is the level
// after the filter; Event is empty for a push that had only a prompt.
type StreamEntry struct {
	TS       string `json:"ts"` // RFC 3339, UTC
	Event    string `json:"event"`
	Level    Level  `json:"level"`
	Metadata Raw    `json:"metadata,omitzero"`
	Prompt   string `json:"prompt,omitzero"`
}

// StreamHistory answers a [StreamQuery]. Keys are stream@provider; entries are sorted, the newest
// first. A stream that does not exist is empty; streams beyond 4 MiB of text are left out
// (docs/protocol.md, "Queries").
type StreamHistory struct {
	QueryID string                   `json:"queryId"`
	Streams map[string][]StreamEntry `json:"streams"`
}

// MessageType implements [Message] for each type of this file. It returns the value of the member
// "type".
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
func (*QuestionAnswer) MessageType() Type   { return TypeQuestionAnswer }
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

// Marshal is json.Marshal without the escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Errorf makes an error with a code and a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }
