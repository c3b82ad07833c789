package protocol

// The messages of session hosts at /host (docs/protocol.md, "Session hosts"): the params and the
// result of each method of their JSON-RPC. The gateway and internal/client share them. A result
// that is {} has no type.

// HostVersion is the version of the session hosts' protocol, which both sides name in `initialize`.
// It is independent of [Version], the version of the providers' protocol.
const HostVersion = 1

// Codes of JSON-RPC errors that are the gateway's own: for a request before `initialize` has
// accepted the token, and for a session id that this connection does not have. docs/protocol.md,
// "Session hosts", lists the others.
const (
	HostCodeNotAuthenticated = -32001
	HostCodeNoSession        = -32004 // not a session of this host, or one that has ended
)

// Methods that a host calls.
const (
	MethodInitialize = "initialize"
	MethodRegister   = "session/register"
	MethodUpdate     = "session/update"
	MethodEnd        = "session/end"
	MethodEvent      = "session/event" // a notification
	MethodToolCall   = "tool/call"
	MethodToolCancel = "tool/cancel" // a notification
	MethodPreToolUse = "hook/preToolUse"
	MethodUserPrompt = "hook/userPrompt"
	MethodTransform  = "prompt/transform"
)

// Methods that the gateway calls.
const (
	MethodSetTools  = "tools/set"
	MethodSend      = "session/send"
	MethodLog       = "session/log" // a notification
	MethodInterrupt = "session/interrupt"
)

// HostInitialize is the params of `initialize`, the first request of a connection, within 10 s. The
// result is [HostInitialized]; after a refusal the gateway closes the connection (docs/protocol.md,
// "Session hosts").
type HostInitialize struct {
	ProtocolVersion *int   `json:"protocolVersion"` // required: [HostVersion]
	Token           string `json:"token"`           // the admin token
	Host            struct {
		Name    string `json:"name"` // required
		Version string `json:"version"`
	} `json:"host"`
	Capabilities HostCapabilities `json:"capabilities"`
	// tool names of the host behind shell, edit and read
	Aliases map[string][]string `json:"aliases,omitzero"`
}

// HostCapabilities are the abilities of a host: the requests that the gateway may send it, and the
// effects that it must not expect. A capability that is left out is false. docs/protocol.md,
// "Session hosts", has the gateway's behaviour without each one.
type HostCapabilities struct {
	Send       bool `json:"send"`
	Log        bool `json:"log"`
	Hooks      bool `json:"hooks"`
	Transforms bool `json:"transforms"`
	Interrupt  bool `json:"interrupt"`
	LiveTools  bool `json:"liveTools"` // tools/set costs the host no reload
	// the answer to idle is to have the number of prompts to come
	Injects bool `json:"injects"`
}

// HostInitialized is the result of `initialize`: the version of the gateway program, for people,
// and the version of the session hosts' protocol, [HostVersion].
type HostInitialized struct {
	Gateway struct {
		Version string `json:"version"`
	} `json:"gateway"`
	ProtocolVersion int `json:"protocolVersion"`
}

// HostRegister is the params of `session/register`, which begins a session, idle, or goes on with
// one of the same id after a lost connection. The result is [HostRegistered].
type HostRegister struct {
	ID         string  `json:"id,omitzero"` // the gateway chooses one if left out
	Label      *string `json:"label"`       // required
	CWD        string  `json:"cwd"`         // required: absolute
	Model      string  `json:"model,omitzero"`
	Foreground bool    `json:"foreground,omitzero"`
}

// HostRegistered is the result of `session/register`: the session's id and the first list of its
// tools. Later lists come with [HostTools] and a higher revision.
type HostRegistered struct {
	ID       string     `json:"id"`
	Revision uint64     `json:"revision"` // of the list
	Tools    []HostTool `json:"tools"`
}

// HostTool is a tool that the gateway's providers give to a session. The host calls it by Name with
// [HostToolCall]. Names are unique in a session.
type HostTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Parameters  Raw    `json:"parameters"` // JSON Schema of an object
}

// HostUpdate is the params of `session/update`, with which a host reports a new label, that the
// user looks at the session, or its state. Empty and false fields have no effect. The result is
// [HostUpdated].
type HostUpdate struct {
	ID         string `json:"id"`
	Label      string `json:"label,omitzero"`
	Foreground bool   `json:"foreground,omitzero"`
	State      string `json:"state,omitzero"` // [HostIdle] or [HostBusy]
}

// States of a [HostUpdate]: the session waits for a prompt, or runs a turn. Injects of providers
// wait for idle.
const (
	HostIdle = "idle"
	HostBusy = "busy"
)

// HostUpdated is the result of `session/update`. It is empty, except for a host with the capability
// injects that reports idle while prompts of providers wait.
type HostUpdated struct {
	// prompts of providers that come now, for a host that would end otherwise
	Injects int `json:"injects,omitzero"`
}

// HostEnd is the params of `session/end`; Reason is for people. The result is {}, and comes when
// the session's providers have cleaned up, after [ShutdownDeadline] at the latest.
type HostEnd struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitzero"`
}

// HostEvent is the params of the notification `session/event`: one of the four events of
// docs/protocol.md, "Subscriptions". Data is the payload that the table there has for the event.
type HostEvent[Data any] struct {
	SessionID string `json:"sessionId"`
	Event     string `json:"event"`
	Data      Data   `json:"data"`
}

// HostToolCall is the params of `tool/call`. The result has data, or error and errorCode: a failed
// tool is a result, not a JSON-RPC error. An empty CallID means that the call can't be cancelled.
type HostToolCall struct {
	SessionID   string `json:"sessionId"`
	CallID      string `json:"callId,omitzero"` // for `tool/cancel`
	Name        string `json:"name"`
	Args        Raw    `json:"args"`
	TimeoutMs   int64  `json:"timeoutMs,omitzero"` // the tool's own if left out
	Traceparent string `json:"traceparent,omitzero"`
}

// HostToolCancel is the params of the notification `tool/cancel`: it takes back the call of the
// same CallID, which then ends with CANCELLED.
type HostToolCancel struct {
	CallID string `json:"callId"`
	Reason string `json:"reason,omitzero"` // [ReasonInterrupted] if left out
}

// HostPreToolUse is the params of `hook/preToolUse`, which a host with the capability hooks sends
// before each tool call. The result is [HostDecision]; without one the host must not make the call.
type HostPreToolUse struct {
	SessionID string `json:"sessionId"`
	Tool      string `json:"tool"`
	Args      Raw    `json:"args"`
}

// HostDecision is the decision of the providers' rules and gates about a tool call. Reason and
// Context are texts for the model, which may be "": the reason of a denial, and an addition to the
// call.
type HostDecision struct {
	Decision string `json:"decision"` // [DecisionAllow] or [DecisionDeny]
	Reason   string `json:"reason,omitzero"`
	Context  string `json:"context,omitzero"`
}

// HostUserPrompt is the params of `hook/userPrompt`. The result is [HostPromptContext].
type HostUserPrompt struct {
	SessionID string  `json:"sessionId"`
	Prompt    *string `json:"prompt"`          // required
	Source    string  `json:"source,omitzero"` // as in [HostPrompt]; "": the user
}

// HostPromptContext is the result of `hook/userPrompt`: the text that providers add to the prompt,
// which may be "" (docs/protocol.md, "Context").
type HostPromptContext struct {
	Context string `json:"context,omitzero"`
}

// HostTransform is the params of `prompt/transform`, the sections by name, and its result, the
// sections that providers change.
type HostTransform struct {
	SessionID string            `json:"sessionId,omitzero"` // of the params
	Sections  map[string]string `json:"sections"`
}

// HostTools is the params of `tools/set`: the whole list of a session's tools, which replaces the
// last one. Revision rises with each list; the result is {}.
type HostTools struct {
	Revision  uint64     `json:"revision"`
	SessionID string     `json:"sessionId"`
	Tools     []HostTool `json:"tools"`
}

// HostPrompt is the params of `session/send`: a prompt that the gateway sends to a session. Source
// names the prompt's origin; the host repeats it in the [HostUserPrompt] that follows. Only hosts
// with the capability send get one.
type HostPrompt struct {
	Mode      string `json:"mode"` // enqueue or immediate
	Prompt    string `json:"prompt"`
	SessionID string `json:"sessionId"`
	Source    string `json:"source"` // user, or provider:NAME
}

// HostLog is the params of the notification `session/log`: a line for the timeline of the person at
// the session. Only hosts with the capability log get it.
type HostLog struct {
	Level     string `json:"level"` // info, warning or error
	Message   string `json:"message"`
	SessionID string `json:"sessionId"`
}

// HostInterrupt is the params of `session/interrupt`, which asks the host to end the session's
// turn. Only hosts with the capability interrupt get it; Reason is for people, the result is {}.
type HostInterrupt struct {
	Reason    string `json:"reason"`
	SessionID string `json:"sessionId"`
}
