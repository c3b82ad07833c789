package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Host runs a session's agent: the Copilot CLI, a remote host, or the local
// session without a model. The gateway calls it from one goroutine per session,
// but for Interrupt and Log, which may come from any. No call is made under a lock.
type Host interface {
	// SetTools replaces the tools that the providers give the session.
	// Revisions rise with each list.
	SetTools(ctx context.Context, revision uint64, tools []Tool) error
	// Send gives the session a prompt and returns when it was taken, not when
	// its turn ended: the turn ends with the next [HostCalls.Idle].
	Send(ctx context.Context, p Prompt) error
	// Log shows a line in the session's own timeline. It must not block.
	Log(level LogLevel, message string)
	// Interrupt stops the turn that runs, and returns the texts of the prompts that
	// waited behind it, where the host drops them with it. Calls in flight were
	// already ended, but see [HostInfo].StopsFirst.
	Interrupt(ctx context.Context, reason string) (dropped []string, err error)
	// Close ends the session. It is called once, after the providers were told.
	Close(ctx context.Context, reason string) error
}

// HostCalls is what a host calls back. A *[Session] implements it; all methods
// may be called from any goroutine, and those that take a context return early
// when it ends.
type HostCalls interface {
	// ID is the gateway's id of the session.
	ID() string
	// CallTool runs a provider's tool and returns its outcome, always one,
	// at the tool's timeout at the latest. Ending ctx cancels the call with
	// reason "interrupted".
	CallTool(ctx context.Context, c Call) Outcome
	// PreToolUse asks the providers' rules and gates about a tool call that
	// the session is about to make (its own tools included).
	PreToolUse(ctx context.Context, tool string, args protocol.Raw) Decision
	// UserPrompt returns the text to add to a prompt, "" for none. Source is
	// "user", or the source of the [Prompt] that the gateway sent.
	UserPrompt(ctx context.Context, prompt, source string) string
	// Hook asks the user's own hooks of a kind that the gateway does not ask by
	// itself: HookPostToolUse and HookAgentStop.
	Hook(ctx context.Context, e HookEvent) HookAnswer
	// Transform returns the sections of the system prompt that providers change.
	Transform(ctx context.Context, sections map[string]string) map[string]string
	// PromptVaries reports whether a provider decides at each prompt how a
	// section reads, so that what Transform said holds for one prompt.
	PromptVaries() bool
	// NeedsHooks reports whether PreToolUse, UserPrompt or Hook may have anything
	// to say. Once a session's host asks them it need not stop to. See [HookHost].
	NeedsHooks() bool
	// Ask puts a question to a person and waits for the answer, which is one
	// that the question allows. The error is [ErrUnanswered] at the question's
	// time, and another one when ctx, the turn or the session ends before.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Event feeds what the session does to its timeline, to live followers
	// and to subscribed providers. Order is kept.
	Event(e Event)
	// RuntimeEvent keeps an event of the host's runtime as it came, for followers.
	RuntimeEvent(e adminapi.RuntimeEvent)
	// CountModelCall counts a call of the session's model, Window how much of the
	// model's context the conversation takes, in tokens.
	CountModelCall(c ModelCall)
	SetContextWindow(tokens, limit int64)
	// Busy says that a turn began; Idle that none runs and none is queued.
	// A new session is idle.
	Busy()
	Idle()
	// TurnEnded says that nothing more comes of prompts, by [Prompt].ID, and
	// why if they were cut short. Hosts with [HostInfo].Turns call it once for
	// each prompt that they took, others for those that will not begin.
	TurnEnded(prompts []string, cut string)
	// Note adds a line of the host's own to the session's timeline here; the
	// host shows it in its own, if it has one.
	Note(level LogLevel, message string)
	// RestoreTimeline adds lines of an earlier life of the session to its timeline, oldest
	// first: their time, level, source and message. Whole says that none are missing
	// before them.
	RestoreTimeline(lines []adminapi.TimelineLine, whole bool)
	// Ended says that the session is gone on the host's side: a process that
	// died for good, a connection that did not come back.
	Ended(reason string)
}

// Starter makes sessions of one kind on request.
type Starter interface {
	// Start makes a session, registers it with [Gateway.Register] and returns
	// it. Its error names the field of the request that is wrong.
	Start(ctx context.Context, g *Gateway, r StartRequest) (*Session, error)
	// Models lists the models that sessions of this kind can use.
	Models(ctx context.Context) ([]adminapi.Model, error)
}

// StartRequest says what session to start.
type StartRequest struct {
	Host        string // kind: copilot, local
	Model       string
	CWD         string // absolute, exists
	Label       string
	ProviderURL string // a model endpoint of the user's own (OpenAI wire)
	ProviderKey string // its key; never logged
	Profile     string // whose settings to start with; "" for those of [copilot]
	Effort      string // of reasoning; "" as the profile or the model has it
	GitHubToken string // of whom the session's models are; never logged
}

// HostInfo describes a host to the gateway.
type HostInfo struct {
	Kind string // copilot, local, or the name that a remote host gave
	// What the host can do. Without Send, injects become surface; without
	// Log, the gateway's own timeline is all there is; without Hooks the
	// gateway asks gates itself inside CallTool.
	Send, Log, Hooks, Transforms, Interrupt bool
	// LiveTools: the host takes a tool list at once and cheaply, so a change
	// need not wait for others.
	LiveTools bool
	// RuntimeEvents: the host tells what its runtime does, event by event.
	RuntimeEvents bool
	// Turns: the host says of each event which prompts it comes of, and when
	// they are done. Without it a turn is what the session does until it is idle.
	Turns bool
	// Attachments: a prompt may bring files and request headers.
	Attachments bool
	// StopsFirst: an interrupt stops the turn before its calls end, since what runs
	// it goes on at once with a call that ended. Without it they end first, for a
	// host that stops a turn when its calls have ended.
	StopsFirst bool
	// CachesPrompt: the host keeps what Transform said until it is given its
	// tools again, so a change of a section is a reason to give them.
	CachesPrompt bool
	// Aliases maps the documents' tool names to the host's: shell, edit, read.
	Aliases map[string][]string
	// Tools are the names of the session's own tools, as far as the host
	// knows; nil when it doesn't.
	Tools []string
}

// Tool is a tool as a session's host sees it.
type Tool struct {
	Name        string
	Description string
	Parameters  protocol.Raw // JSON Schema of an object
	Provider    string       // the provider's name, for people
}

// Prompt is what the gateway gives a session.
type Prompt struct {
	Text string
	Mode string // enqueue (default) or immediate
	// Source is "user", or "provider:NAME" for what a provider pushed.
	Source string
	// ID is the gateway's, in the session. See [Event].Prompts.
	ID          string
	Attachments []Attachment
	Headers     map[string]string // of the requests to the model that the prompt makes
	Traceparent string            // W3C trace context of who asks; "" for none
}

// Attachment is a file or directory that goes with a prompt.
type Attachment struct {
	Path  string // absolute, exists
	First int    // of a selection: its first line, from 1; 0 for the whole
	Last  int    // and its last
}

// SourceUser is the source of prompts that a person sent.
const SourceUser = "user"

// LogLevel of a line in a session's timeline.
type LogLevel = adminapi.LogLevel

// Levels of a timeline line.
const (
	LogInfo    LogLevel = "info"
	LogWarning LogLevel = "warning"
	LogError   LogLevel = "error"
)

// Call is a tool call as a session makes it.
type Call struct {
	Name        string
	Args        protocol.Raw  // raw JSON; empty means {}
	Timeout     time.Duration // 0: the tool's own
	Traceparent string
	// AskGates asks the rules and gates also where the host has hooks and asks
	// them itself: for a call that does not come from the host.
	AskGates bool
}

// Outcome is how a call ended: with data, with a file, or with an error and its code.
type Outcome struct {
	Data      protocol.Raw // raw JSON as the provider sent it
	File      *File
	Error     string
	ErrorCode protocol.Code // "" on success
	Retryable bool
	Duration  time.Duration
}

// Failed reports whether the call failed.
func (o Outcome) Failed() bool { return o.ErrorCode != "" }

// Text is what a model, or a person, reads of the outcome: a string as it is,
// anything else as compact JSON, an error with its code.
func (o Outcome) Text() string {
	switch {
	case o.Failed():
		return string(o.ErrorCode) + ": " + o.Error
	case o.File != nil:
		if text, ok := o.File.Text(); ok {
			return text
		}
		return o.File.String()
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

// Decision is what rules and gates say about a tool call.
type Decision struct {
	Deny    bool
	Reason  string // of a denial
	Context string // to add when allowed, "" for none
}

// Callbacks of a session, as spec/session-api.md names them.
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

// Event is something that a session did. Callback says which members are set;
// an event with SessionError has none. UserMessage and Intent have no callback:
// they feed the timeline and subscribed providers only.
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
	Provider string // of the tool, where a provider owns it

	// Prompts are the ids of the prompts that this comes of, where the host
	// knows; nil where it doesn't.
	Prompts []string

	SessionError string // a turn or the session failed
	UserMessage  string // a prompt was taken
	Source       string // whose it was, as in Prompt.Source; "" for the user
	Intent       string // assistant.intent

	// Forwarded is the session.event that a host that speaks of the four
	// events sent, as it was; "" and nil otherwise.
	Forwarded string
	Data      protocol.Raw
	// Requests are the tools that a complete message asks for.
	Requests []ToolRequest
}

// ToolRequest is a tool call that an assistant's message asks for.
type ToolRequest struct {
	Name string       `json:"name"`
	Args protocol.Raw `json:"args"`
}

// Peer is the gateway's way to a provider, over a wire or in process.
type Peer interface {
	// Send queues a message and never blocks; order is kept. It may be
	// called under a lock. A peer that is closed drops it.
	Send(m protocol.Message)
	// Flush starts sending what is queued. It is called after every Send,
	// under no lock, and does not block either.
	Flush()
	// Close ends the connection after what was sent, with a close code.
	Close(code protocol.CloseCode, reason string)
}
