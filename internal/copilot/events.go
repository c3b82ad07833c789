package copilot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// The pump of a session, which turns the runtime's events into calls to the gateway.

// syncType marks a line that comes back as an event. When it is back, the pump has seen all events
// before it.
const syncType = logType + "-sync"

// item is one entry of the pump's queue: an event of the runtime, or a change of the session.
type item struct {
	gen   int // of the conn that the event comes from
	event sdk.SessionEvent
	do    func(*tracker) // the change, instead of an event
}

// pushChange has the pump do something in order with the runtime's events.
func (s *session) pushChange(do func(*tracker)) { s.items.push(item{do: do}) }

// pump turns the runtime's events into calls to the gateway. It is the only goroutine that does, so
// their order is kept.
func (s *session) pump() {
	t := tracker{s: s, background: background{}}
	defer func() { t.turn.stopTimer() }()
	for {
		items, ok := s.items.receiveAll()
		if !ok {
			return
		}
		for _, it := range items {
			if s.ctx.Err() != nil {
				return
			}
			t.handle(it)
		}
		// The raw log gets an event after the gateway has handled it.
		for _, it := range items {
			if it.event.Data != nil {
				s.recordRaw(it.event)
			}
		}
	}
}

// tracker follows a session's turns, parts and idleness, from the runtime's events. Only the pump
// uses it.
type tracker struct {
	s              *session
	gen            int  // of the conn that the events come from
	isBusy         bool // the gateway knows that the session is busy
	idleWithheld   bool // the runtime is idle, but a prompt that we sent has not begun
	turn           turn
	wasInterrupted bool // since the last prompt began
	agent          string
	prompt         string // message id of the prompt that began last
	// messages, reasonings and tool executions under way, oldest first
	openParts    []*openPart
	pendingSyncs map[string]syncPoint // requested by sync, by number
	syncCount    int
	agentDone    bool // the agent is done, but the runtime has not reported the session idle
	idleEarly    bool // we reported the session idle before the runtime did

	questions  questionMatcher
	background background
}

// openPart is a message, a reasoning or a tool execution that began and has not ended.
type openPart struct {
	callback string // the callback that ends it
	id       string
	content  strings.Builder
	output   string // of a tool, as last reported
	tool     string
	provider string
	args     string // of a tool
}

func (t *tracker) emit(e gateway.Event) {
	e.Prompts = t.turn.prompts
	t.s.calls.Event(e)
}

func (t *tracker) handle(it item) {
	switch {
	case it.do != nil:
		it.do(t)
	case it.gen >= t.gen:
		t.gen = it.gen
		t.event(it.event)
	}
}

// conn returns the session's conn if the present events come from it, else nil.
func (t *tracker) conn() *conn {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.conn == nil || t.s.conn.gen != t.gen {
		return nil
	}
	return t.s.conn
}

// reportBusy tells the gateway once that a turn runs.
func (t *tracker) reportBusy() {
	t.idleWithheld = false
	if !t.isBusy {
		t.isBusy = true
		t.s.calls.Busy()
	}
}

func (t *tracker) userMessage(e sdk.SessionEvent, d *rpc.UserMessageData) {
	if e.AgentID != nil { // an agent's prompt to its sub-agent
		return
	}
	// Only a prompt that we sent renews the budget. The runtime adds messages with the user's role
	// by itself.
	source := promptSource(d.Source)
	if p := t.s.removeBegun(deref(d.MessageID), d.Content); p != nil {
		source = cmp.Or(p.source, source)
		t.startTurn(p, deref(d.Delivery) == rpc.UserMessageDeliverySteering)
		t.prompt = deref(d.MessageID)
	}
	t.agentDone = false
	t.reportBusy()
	t.emit(gateway.Event{UserMessage: d.Content, Source: source})
}

func (t *tracker) turnStart(e sdk.SessionEvent, d *rpc.AssistantTurnStartData) {
	t.reportBusy()
	if e.AgentID == nil {
		t.agentDone = false
		t.endAgent()
		t.agent = d.TurnID
		t.emit(gateway.Event{Callback: gateway.OnAgentStart, ID: d.TurnID})
	}
	t.countRound()
}

func (t *tracker) endAgent() {
	if t.agent != "" {
		t.emit(gateway.Event{Callback: gateway.OnAgentEnd, ID: t.agent})
		t.agent = ""
	}
}

// part returns the open part with an id, or nil.
func (t *tracker) part(callback, id string) *openPart {
	i := slices.IndexFunc(t.openParts, func(o *openPart) bool {
		return o.callback == callback && o.id == id
	})
	if i < 0 {
		return nil
	}
	return t.openParts[i]
}

// beginPart returns the open part with an id. If no such part is open, it makes one and returns
// true.
func (t *tracker) beginPart(callback, id string) (o *openPart, begun bool) {
	if o := t.part(callback, id); o != nil {
		return o, false
	}
	o = &openPart{callback: callback, id: id}
	t.openParts = append(t.openParts, o)
	return o, true
}

// endPart removes a part that ended.
func (t *tracker) endPart(ended *openPart) {
	t.openParts = slices.DeleteFunc(t.openParts, func(o *openPart) bool { return o == ended })
}

// startCallbacks and deltas give the callbacks that come before the one that ends a text.
var (
	startCallbacks = map[string]string{
		gateway.OnEndMessage:   gateway.OnStartMessage,
		gateway.OnEndReasoning: gateway.OnStartReasoning,
	}
	deltaCallbacks = map[string]string{
		gateway.OnEndMessage:   gateway.OnMessage,
		gateway.OnEndReasoning: gateway.OnReasoning,
	}
)

// delta reports a piece of a message or reasoning, and its start before the first piece.
func (t *tracker) delta(callback, id, text string) {
	o, begun := t.beginPart(callback, id)
	if begun {
		t.emit(gateway.Event{Callback: startCallbacks[callback], ID: id})
	}
	o.content.WriteString(text)
	t.emit(gateway.Event{Callback: deltaCallbacks[callback], ID: id, Delta: text})
}

// message reports the model's message and which tools it is about to call.
func (t *tracker) message(d *rpc.AssistantMessageData) {
	requests := make([]gateway.ToolRequest, len(d.ToolRequests))
	for i, r := range d.ToolRequests {
		tool, args := t.s.called(r.Name, rawJSON(r.Arguments))
		requests[i] = gateway.ToolRequest{Name: tool, Args: args}
	}
	switch {
	case t.part(gateway.OnEndMessage, d.MessageID) != nil || d.Content != "":
		t.complete(
			gateway.Event{Callback: gateway.OnEndMessage, ID: d.MessageID, Content: d.Content,
				Requests: requests},
		)
	case len(requests) > 0: // without a text there are no callbacks
		t.emit(gateway.Event{
			Forwarded: protocol.EventAssistantMessage,
			Data:      rawJSON(map[string]any{"content": "", "toolRequests": requests}),
		})
	}
	// The runtime's models give an intention with each call, not with the message.
	for _, r := range d.ToolRequests {
		if intent := deref(r.IntentionSummary); intent != "" {
			t.emit(gateway.Event{Intent: intent})
		}
	}
}

// complete reports a whole message or reasoning, and its start if no piece came before.
func (t *tracker) complete(e gateway.Event) {
	o, begun := t.beginPart(e.Callback, e.ID)
	if begun {
		t.emit(gateway.Event{Callback: startCallbacks[e.Callback], ID: e.ID})
	}
	t.endPart(o)
	t.emit(e)
}

func (t *tracker) toolStart(d *rpc.ToolExecutionStartData) {
	o, begun := t.beginPart(gateway.OnEndToolExecution, d.ToolCallID)
	if !begun {
		return
	}
	tool, args := t.s.called(d.ToolName, rawJSON(d.Arguments))
	o.tool, o.provider, o.args = tool, t.s.owner(tool), string(args)
	t.emit(gateway.Event{
		Callback: gateway.OnStartToolExecution, ID: d.ToolCallID,
		ParentID: deref(d.ParentToolCallID), Tool: tool, Args: o.args, Provider: o.provider,
	})
}

// toolUse returns the call that a request for permission is about; nil if it does not name a
// running call.
func (t *tracker) toolUse(req sdk.PermissionRequest) *toolUse {
	o := t.part(gateway.OnEndToolExecution, callIDOf(req))
	if o == nil {
		return nil
	}
	return &toolUse{o.tool, protocol.Raw(o.args)}
}

func (t *tracker) toolDelta(id, text string) {
	o := t.part(gateway.OnEndToolExecution, id)
	if o == nil || text == "" {
		return
	}
	t.emit(gateway.Event{Callback: gateway.OnToolExecution, ID: id, Delta: text, Tool: o.tool,
		Provider: o.provider})
}

// toolOutput reports the new part of a tool's output. The runtime's terminal repeats the whole
// output each time.
func (t *tracker) toolOutput(id, text string) {
	o := t.part(gateway.OnEndToolExecution, id)
	if o == nil {
		return
	}
	delta, again := strings.CutPrefix(text, o.output)
	if !again {
		delta = text
	}
	o.output = text
	t.toolDelta(id, delta)
}

func (t *tracker) toolEnd(d *rpc.ToolExecutionCompleteData) {
	o := t.part(gateway.OnEndToolExecution, d.ToolCallID)
	if o == nil {
		return
	}
	t.endPart(o)
	e := gateway.Event{
		Callback: gateway.OnEndToolExecution, ID: d.ToolCallID, ParentID: deref(d.ParentToolCallID),
		Tool:     o.tool,
		Provider: o.provider,
	}
	if d.ShellExecution != nil {
		e.ExitCode = new(int(d.ShellExecution.ExitCode))
	}
	switch {
	case d.Error != nil:
		e.Error = &adminapi.ToolError{Message: d.Error.Message, Code: deref(d.Error.Code)}
	case d.Result != nil:
		e.Result = &adminapi.ToolOutput{Content: d.Result.Content,
			DetailedContent: deref(d.Result.DetailedContent)}
	case d.Success:
		e.Result = &adminapi.ToolOutput{}
	default:
		e.Error = &adminapi.ToolError{Message: "the tool failed"}
	}
	t.emit(e)
	t.followCommand(o, d)
}

// toolTimeType is an event that the runtime sends behind the end of a tool execution. The SDK does
// not know it.
const toolTimeType rpc.SessionEventType = "model.tool_execution"

// toolTime reports how long the runtime says that a tool execution took. Between its start and its
// end as they were reported may be much more: calls that run beside each other begin and wait
// together.
func (t *tracker) toolTime(data json.RawMessage) {
	var d struct {
		ToolCallID string  `json:"toolCallId"`
		DurationMs float64 `json:"durationMs"`
	}
	if json.Unmarshal(data, &d) != nil {
		return
	}
	if took := gateway.ToolTime(d.DurationMs); took > 0 && d.ToolCallID != "" {
		t.emit(gateway.Event{ID: d.ToolCallID, Duration: took})
	}
}

// endParts ends the parts that the runtime will not end any more. Followers get an end for each
// start.
func (t *tracker) endParts(why string) {
	parts := t.openParts
	t.openParts = nil
	for _, o := range parts {
		e := gateway.Event{Callback: o.callback, ID: o.id}
		if o.callback == gateway.OnEndToolExecution {
			e.Tool, e.Provider, e.Error = o.tool, o.provider, &adminapi.ToolError{Message: why}
		} else {
			e.Content = o.content.String()
		}
		t.emit(e)
	}
}

// processDied ends the parts, turns and prompts that were lost with the process. The gateway hears
// no idle until the session is back.
func (t *tracker) processDied(gen int, cause error, lostPrompts int, dropped []*sentPrompt) {
	t.gen = gen + 1 // drop further events of the dead process
	t.pendingSyncs = nil
	t.agentDone, t.idleEarly = false, false
	clear(t.background)
	t.endParts(cause.Error())
	t.endAgent()
	switch {
	case t.isBusy:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the turn is lost: %v; starting it again",
			cause)})
	case lostPrompts > 0:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the prompt is lost: %v; starting it again",
			cause)})
	}
	t.questions.releaseAll()
	t.endTurn(cause.Error())
	t.s.reportDropped(dropped, cause.Error())
	t.isBusy, t.idleWithheld = false, false
}

// processReplaced reports that the session goes on in a new process.
func (t *tracker) processReplaced() {
	t.s.saveError.Store(nil) // the new process reports a failure again
	t.s.note(
		adminapi.LogWarning,
		"the Copilot runtime died and was started again; the session goes on from what it "+
			"had saved",
	)
	// Idle whether or not a turn ran: the gateway may count on a prompt that
	// was lost on its way. Not while one waits that was sent since.
	t.idle()
}

// owner returns the provider of a tool, "" for the runtime's own tools.
func (s *session) owner(tool string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tools {
		if t.Name == tool {
			return t.Provider
		}
	}
	return ""
}
