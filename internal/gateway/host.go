package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Host runs a session's agent: the Copilot CLI, a remote program at /host, or the local host
// without a model. The gateway calls it from one goroutine per session, under no lock. Only
// Interrupt and Log may be called from any goroutine.
type Host interface {
	// SetTools replaces the tools that providers give the session. The revision rises with
	// each list. An error means that the host may have another list; it is given again.
	SetTools(ctx context.Context, revision uint64, tools []Tool) error
	// Send gives the session a prompt. It returns when the host accepted the prompt, not at
	// the end of the turn, which HostCalls.Idle reports.
	Send(ctx context.Context, p Prompt) error
	// Log shows a line in the session's own timeline. It must not block.
	Log(level adminapi.LogLevel, message string)
	// Interrupt stops the running turn. It returns the texts of the prompts that waited
	// behind it, if the host drops them too. The session's calls have ended already, unless
	// [HostInfo].StopsFirst is set.
	Interrupt(ctx context.Context, reason string) (dropped []string, err error)
	// Close ends the session. It is called once, after the session's calls have ended.
	Close(ctx context.Context, reason string) error
}

// HostCalls has the methods of a session that its host calls. A *[Session] implements it. Any
// goroutine may call the methods; those with a context return early when it ends.
type HostCalls interface {
	// CallTool calls a provider's tool and returns its one outcome, at the tool's timeout at
	// the latest. When ctx ends, the call is cancelled with reason "interrupted".
	CallTool(ctx context.Context, c Call) Outcome
	// PreToolUse asks the rules and gates about a call that the session is about to make, of
	// its own tools too.
	PreToolUse(ctx context.Context, tool string, args protocol.Raw) Decision
	// UserPrompt returns the context to add to a prompt, or "". source is "user", or the source of
	// the [Prompt] that the gateway sent.
	UserPrompt(ctx context.Context, prompt, source string) string
	// Hook asks the user hooks of a kind that the gateway does not ask by itself:
	// HookPostToolUse and HookAgentStop.
	Hook(ctx context.Context, e HookEvent) HookAnswer
	// Transform takes sections of the system prompt, by name, and returns those that
	// providers change.
	Transform(ctx context.Context, sections map[string]string) map[string]string
	// PromptVaries reports whether a provider transforms a section by callback, so that the
	// result of Transform is valid for one prompt only.
	PromptVaries() bool
	// NeedsHooks reports whether the host must call PreToolUse, UserPrompt and Hook. A host
	// that has begun to call them may go on when it reports false. See [HostInfo].
	NeedsHooks() bool
	// Ask asks a person and waits for the answer, which is one that the question allows. The
	// error is [ErrUnanswered] at the question's timeout, and another one when ctx, the turn
	// or the session ends first.
	Ask(ctx context.Context, q Question) (Answer, error)
	// ToolProvider identifies the provider that has a tool now: its name, for people, and an
	// identity that no other provider has, whatever it calls itself. Both are "" if no provider has
	// the tool.
	ToolProvider(tool string) (name, identity string)
	// Event adds an event to the session's timeline, its live feed and the events of subscribed
	// providers. The order of the calls is kept.
	Event(e Event)
	// RuntimeEvent keeps an event of the host's runtime as it came, for followers.
	RuntimeEvent(e adminapi.RuntimeEvent)
	// CountModelCall counts a call of the session's model.
	CountModelCall(c ModelCall)
	// SetContextWindow sets how much of the model's context the conversation takes. prompt is as
	// [ModelCall].Prompt.
	SetContextWindow(prompt string, c adminapi.Context)
	// Busy says that a turn has begun. A new session is idle.
	Busy()
	// Idle says that no turn runs and no prompt is queued.
	Idle()
	// TurnEnded says that the turns of prompts have ended, by [Prompt].ID, and why if they
	// were cut short. Hosts with [HostInfo].Turns call it once for each prompt that they
	// accepted. Other hosts call it for prompts that will not begin.
	TurnEnded(prompts []string, cut string)
	// Note adds a line of the host's own to the session's timeline in the gateway.
	Note(level adminapi.LogLevel, message string)
	// RestoreTimeline adds lines from before a resume to the session's timeline, oldest
	// first, by their time, level, source and message. whole says that no line is missing
	// before them.
	RestoreTimeline(lines []adminapi.TimelineLine, whole bool)
	// Ended says that the session has ended on the host's side: its process died for good, or
	// its connection did not come back.
	Ended(reason string)
}

// Starter starts sessions of one kind of host, such as copilot. [Options].Starters has one
// for each kind. The gateway calls the methods from any goroutine, under no lock.
type Starter interface {
	// Start starts a session and registers it with [Gateway.Register]. The error names the
	// field of the request that is wrong.
	Start(ctx context.Context, g *Gateway, r StartRequest) (*Session, error)
	// Models lists the models that sessions of this kind can use.
	Models(ctx context.Context) ([]adminapi.Model, error)
}

// StartRequest describes a session to start, as POST /sessions of docs/admin-api.md does.
// Host and CWD are required here. A starter may refuse fields that its kind of host does
// not have, with INVALID_JSON.
type StartRequest struct {
	Host        string // kind: copilot, local
	Model       string // "" for the default
	CWD         string // absolute, exists
	Label       string
	ProviderURL string // a model endpoint of the user's own (OpenAI wire), or ""
	ProviderKey string // its key; never logged
	Profile     string // a section [copilot.profile.NAME] of tapgw.toml; "" for [copilot]
	Effort      string // of reasoning; "" for the default of the profile or model
	GitHubToken string // of the account whose models are used; never logged
}

// HostInfo says what a session's host can do. The host gives it once, at [Gateway.Register],
// and the gateway asks nothing else about it. The zero value is a host that only calls tools:
// it takes no prompts and asks no gates itself. Any goroutine may call the functions; those
// with a context have 30 seconds where their comment does not name another time.
type HostInfo struct {
	Kind string // copilot, local, or the name that a remote host gave
	// Aliases maps shell, edit and read to the host's own tool names.
	Aliases map[string][]string
	// Tools are the names of the session's own tools; nil when the host does not know them.
	Tools []string

	// Which methods of [Host] have effect. Without Send, injects become surface. Without Log,
	// only the gateway has a timeline.
	Send, Log, Interrupt bool
	// StopsFirst: an interrupt stops the turn before the session's calls end, because the
	// host's turn would go on with the outcome of a call. Otherwise the calls end first.
	StopsFirst bool
	// LiveTools: SetTools is cheap, so a change of tools is not debounced.
	LiveTools bool
	// CachesPrompt: the host calls Transform only after SetTools, so a changed transform is a
	// reason to set the tools again.
	CachesPrompt bool
	// Attachments: prompts may have attachments and headers.
	Attachments bool

	// Which hooks the host calls. Without Hooks, CallTool asks rules and gates.
	Hooks bool
	// Turns: events have the ids of their prompts, and the host calls TurnEnded. Without it a
	// turn is everything until the session is idle.
	Turns bool
	// RuntimeEvents: the host calls RuntimeEvent.
	RuntimeEvents bool
	// Usage: the host calls CountModelCall.
	Usage bool
	// Spans: the host sends spans of its turns and tools itself, below the traceparent of the
	// prompt.
	Spans bool

	// Requests that only some hosts can serve. A function is nil if the host can't.

	// EnableHooks is of a host whose hooks cost each turn time, so they are disabled until
	// something needs them: a rule, a context, a transform by callback or a user hook. It
	// makes the host call PreToolUse, UserPrompt and Hook for all that the session does from
	// now on, in a running turn too. It is called again and again, and is cheap once hooks
	// are enabled. It has 5 seconds. After an error nothing that needs hooks may be bound.
	EnableHooks func(ctx context.Context) error
	// WhyNotNow is of a host that may be unable to take an inject when its session is idle: it
	// says why, for people; "" if the host would take one. Injects then stay queued until
	// [Session.RetryInjects] is called, or the host takes them itself with
	// [Session.TakeInject]. It must not block.
	WhyNotNow func() string
	// Commands lists the commands of the session, which people call by a slash and their name.
	// RunCommand gets the name as Commands lists it, or an alias, and has 5 minutes. An error
	// has the code NOT_FOUND for a name that is not listed, and INVALID_STATE or
	// INVALID_ARGUMENTS where the host refuses the command. A host has both or neither.
	Commands   func(ctx context.Context) ([]adminapi.Command, error)
	RunCommand func(ctx context.Context, name, input string) (CommandResult, error)
	// PermitShell judges a command as if the host's own shell were to run its line, and asks a
	// person if the host's rules say so. The result is why the command is denied; "" allows
	// it. It waits for the person as long as ctx does.
	PermitShell func(ctx context.Context, c ShellCommand) (denial string)
	// PermitRead is as PermitShell for the reading of a file. why is the purpose, for a person.
	PermitRead func(ctx context.Context, path, why string) (denial string)
	// Mode and SetMode are of a host whose sessions have the modes that [Modes] names. A host
	// has both or neither.
	Mode    func(ctx context.Context) (string, error)
	SetMode func(ctx context.Context, mode string) error
	// SetLabel stores the session's label, for when it is resumed. An error leaves the label
	// changed in the gateway only.
	SetLabel func(ctx context.Context, label string) error
	// SetModel changes the model from the next request on; the host chooses an empty effort.
	// The error names the field that is wrong.
	SetModel func(ctx context.Context, model, effort string) error
	// Effort is how hard the model reasons: low, medium, high, xhigh or max; "" leaves it to the
	// model.
	Effort func() string
}

// Tool is a provider's tool as a session's host gives it to its agent. Name has the prefix
// of the provider's file, and Parameters have target if the provider has instances. See
// docs/protocol.md, "Tool".
type Tool struct {
	Name        string
	Description string       // also says what the tool's title, hints and output schema say
	Parameters  protocol.Raw // JSON Schema of an object
	Provider    string       // the provider's name, for people
}

// Prompt is a prompt that the gateway gives a session's host: of a person, or of a
// provider's inject. The gateway sets ID; callers of [Session.Prompt] and [Session.Turn]
// leave it empty. An empty Source means a person.
type Prompt struct {
	Text string
	// Shown is shown to people instead of Text, for example if a command made the prompt. "" shows
	// Text.
	Shown string
	Mode  string // [adminapi.ModeEnqueue] (default) or [adminapi.ModeImmediate]
	// Source is "user", or "provider:NAME" if a provider pushed the prompt.
	Source string
	// ID is the gateway's id of the prompt, unique in the session. See [Event].Prompts.
	ID          string
	Attachments []Attachment
	Headers     map[string]string // of the requests to the model that the prompt makes
	Traceparent string            // W3C trace context of the request, or ""
}

// Attachment is a file or directory on the gateway's machine that goes with a prompt, or
// some lines of a file. Only hosts with [HostInfo].Attachments take any.
type Attachment struct {
	Path  string // absolute, exists
	First int    // the first line of a selection, from 1; 0 for the whole file
	Last  int    // the last line of the selection
	// Name and MIME are the person's name for a file that [Session.Upload] made, and its type. Both
	// are "" for all other files.
	Name, MIME string
}

// SourceUser is the source of prompts and timeline lines that a person sent. Such a prompt
// ends the pause of providers that injected too often.
const SourceUser = "user"

// Call is a tool call that a host or an admin makes. Args are not changed, and must not
// change before the call has ended. See docs/protocol.md, "Calls".
type Call struct {
	Name        string
	Args        protocol.Raw  // raw JSON; empty means {}
	Timeout     time.Duration // the tool's own applies too, if it is shorter; 0: only that
	Traceparent string        // W3C trace context, or ""
	// AskGates makes the gateway ask rules and gates also when the host has hooks: for a call
	// that does not come from the host.
	AskGates bool
	// Source names the caller in a line of the session's timeline; "" writes no line.
	// [Session.Execute] reads it.
	Source string
	// Progress gets the messages of the call's tool.progress, one at a time, also after the call
	// has ended. It may be nil, and must not block.
	Progress func(message string)
	// HostID is the call's id in the host's events, or "".
	HostID string
	// Batch is of the goroutine that calls [Session.BeginCall], or nil.
	Batch *Batch
	// Asked gets each question that a person is asked about the call, by [Question].Call: when it
	// begins to wait and, with over, when it has ended. It may be nil, and must not block.
	Asked func(q adminapi.Question, over bool)
}

// Outcome is how a call ended: with Data, with Content, with a File, or with Error and ErrorCode,
// one of the codes of docs/protocol.md, "Calls". Duration runs from [Session.BeginCall] to the end,
// waits for gates and slots included.
type Outcome struct {
	Data protocol.Raw // raw JSON as the provider sent it
	// Content are the parts of the result, with the bytes of their files; nil: there is Data alone.
	// Data beside them is for programs, and may be nil.
	Content   []protocol.Part
	File      *File
	Error     string
	ErrorCode protocol.Code // "" on success
	Retryable bool
	Duration  time.Duration
	// Context is for the model, beside the result: the contexts of the rules and gates that were
	// asked with the call. It is "" when the call failed, and when the host's hooks asked.
	Context string
	// Batch is of the goroutine that reports the outcome, or nil.
	Batch *Batch
}

// Failed reports whether the call failed. A failed call always has an ErrorCode.
func (o Outcome) Failed() bool { return o.ErrorCode != "" }

// Text is the outcome as text for a model or a person: a string as it is, other data as
// compact JSON, a text file's content, another file's description, or an error as its code
// and text. It may be long: nothing is cut.
func (o Outcome) Text() string {
	switch {
	case o.Failed():
		return string(o.ErrorCode) + ": " + o.Error
	case o.File != nil:
		if text, ok := o.File.Text(); ok {
			return text
		}
		return o.File.String()
	case o.Content != nil:
		texts := make([]string, len(o.Content))
		for i := range o.Content {
			texts[i] = o.Content[i].String()
		}
		return strings.Join(texts, "\n")
	}
	if s, ok := protocol.Text(o.Data); ok {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, o.Data) != nil {
		return string(o.Data)
	}
	return b.String()
}

// Callbacks of a session. docs/admin-api.md, "Responses", explains each and says which fields of an
// [Event] it has. Each start has an end of the same ID, also after an interrupt.
const (
	OnStartReasoning     = "onStartReasoning"
	OnReasoning          = "onReasoning"
	OnEndReasoning       = "onEndReasoning"
	OnStartMessage       = "onStartMessage"
	OnMessage            = "onMessage"
	OnEndMessage         = "onEndMessage"
	OnStartToolExecution = "onStartToolExecution"
	OnToolExecution      = "onToolExecution"
	OnEndToolExecution   = "onEndToolExecution"
	OnAgentStart         = "onAgentStart"
	OnAgentEnd           = "onAgentEnd"
	OnIdle               = "onIdle"
	// OnGeneratedUserPrompt reports a prompt that a push made.
	OnGeneratedUserPrompt = "onGeneratedUserPrompt"
)

// Event is something that a session did. Callback says which members are set. Events with
// SessionError, UserMessage or Intent have no callback; the latter two are only for the
// timeline and for subscribed providers (docs/protocol.md, "Subscriptions").
type Event struct {
	Callback string

	ID       string // reasoningId, messageId, toolCallId or turnId
	Delta    string // onReasoning, onMessage, onToolExecution
	Content  string // onEndReasoning, onEndMessage, onGeneratedUserPrompt (the prompt)
	ParentID string // parentToolCallId
	Tool     string // toolName
	Args     string // toolArguments, as JSON text
	Result   *adminapi.ToolOutput
	Error    *adminapi.ToolError
	Provider string // that has the tool; "" for the session's own tools
	// ExitCode is how the command of a shell ended; nil when the host does not know. An event with
	// it and without a callback is the end of a command that went on behind the execution ID, with
	// its Tool and Args.
	ExitCode *int
	// Duration is how long a tool execution took, by the host's own clock; 0 when the host does not
	// know. An event with it and an ID, and without a callback, tells it after the end, which may
	// come late: a host may report the ends of calls that ran beside each other together.
	Duration time.Duration

	// Prompts are the ids of the prompts whose turn this is; nil when the host does not know.
	Prompts []string

	SessionError string // a turn or the session failed
	UserMessage  string // the text of a prompt that began its turn
	Source       string // of the prompt, as in Prompt.Source; "" for the user
	Intent       string // assistant.intent

	// Forwarded and Data are a session.event that a remote host sent, as it came; else "" and
	// nil.
	Forwarded string
	Data      protocol.Raw
	// Requests are the tool calls of a complete message.
	Requests []ToolRequest
}

// ToolRequest is a tool call that an assistant's message asks for: the tool's name in the
// session and its arguments as JSON. It is part of the event assistant.message
// (docs/protocol.md, "Subscriptions").
type ToolRequest struct {
	Name string       `json:"name"`
	Args protocol.Raw `json:"args"`
}

// Peer is the way to one provider, over a WebSocket or in the same process. It keeps the
// order of messages. Any goroutine may call its methods. See docs/protocol.md, "Close
// codes".
type Peer interface {
	// Send queues a message. It never blocks, so it may be called under a lock. A closed peer
	// drops the message.
	Send(m protocol.Message)
	// Flush starts to send the queued messages, and does not block. It is called after each
	// Send or by a [Batch], under no lock.
	Flush()
	// Close closes the connection with a close code, after the queued messages were sent.
	Close(code protocol.CloseCode, reason string)
}
