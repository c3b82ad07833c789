package copilot

import (
	"fmt"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// syncType marks a line that comes back as an event, to tell that all events
// before it were seen.
const syncType = logType + "-sync"

// item is what the pump works off, in order: an event of the runtime, or that
// the session was lost with its process or is back, or that its list of prompts
// changed.
type item struct {
	gen          int
	event        sdk.SessionEvent
	lost         error
	lostPrompts  int // lost with it, that is taken and not begun
	isResumed    bool
	wantsRecheck bool
	wasAborted   bool // the turn was interrupted: its end has to come

	droppedPrompts []*sentPrompt // lost with it, all of them
	waiter         *answerWaiter // of the SDK's, see meetings
	overtime       int           // number of the run that took its time

	history   []sdk.SessionEvent               // of a session that was resumed
	isCut     bool                             // there was more of it
	continues bool                             // a turn ran when the session was lost with its gateway
	pending   []*rpc.ExternalToolRequestedData // calls that it waits for
}

// pump turns the runtime's events into what the gateway is told. It is the only
// goroutine that does, so their order is kept.
func (s *session) pump() {
	t := tracker{s: s, openParts: map[string]*openPart{}}
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
		// Not before what they are about was done.
		for _, it := range items {
			if it.event.Data != nil {
				s.recordRaw(it.event)
			}
		}
	}
}

// tracker is what the pump knows of what goes on. Only the pump touches it.
type tracker struct {
	s              *session
	gen            int  // of the process that the events come from
	isBusy         bool // the gateway was told that the session is busy
	idleWithheld   bool // the runtime is idle, but a prompt of ours did not begin
	turn           turn
	wasInterrupted bool // since the last prompt began
	agent          string
	prompt         string               // message id of the prompt that began last
	openParts      map[string]*openPart // messages, reasonings and tool executions under way
	partOrder      []string             // their keys, oldest first
	pendingSyncs   map[string]syncPoint // asked for with sync, by number
	syncCount      int
	agentDone      bool // the agent is done, and the runtime has still to say that it is idle
	idleEarly      bool // it was taken for idle and has not said so yet

	questions questionMatcher
}

// openPart is something that began and did not end.
type openPart struct {
	callback string // that ends it
	id       string
	content  strings.Builder
	output   string // of a tool, as it was last told
	tool     string
	provider string
}

func (t *tracker) emit(e gateway.Event) {
	e.Prompts = t.turn.prompts
	t.s.calls.Event(e)
}

func (t *tracker) handle(it item) {
	switch {
	case it.lost != nil:
		t.processDied(it)
	case it.isResumed:
		t.gen = it.gen
		t.processReplaced()
	case it.wantsRecheck:
		t.recheck()
		if it.wasAborted && t.isBusy {
			t.turn.wasStopped = true
			t.sync(true)
		}
	case it.waiter != nil:
		t.questions.addWaiter(it.waiter)
	case it.overtime > 0:
		t.overtime(it.overtime)
	case it.history != nil:
		t.gen = it.gen
		t.replay(it)
	case it.gen >= t.gen:
		t.gen = it.gen
		t.event(it.event)
	}
}

func (t *tracker) event(e sdk.SessionEvent) {
	if row := eventRows[e.Type()]; row.do != nil {
		row.do(t, e)
	}
}

// conn is the session's, if the events at hand are of it.
func (t *tracker) conn() *conn {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.conn == nil || t.s.conn.gen != t.gen {
		return nil
	}
	return t.s.conn
}

// reportBusy tells the gateway that a turn runs, once.
func (t *tracker) reportBusy() {
	t.idleWithheld = false
	if !t.isBusy {
		t.isBusy = true
		t.s.calls.Busy()
	}
}

func (t *tracker) userMessage(e sdk.SessionEvent, d *rpc.UserMessageData) {
	if e.AgentID != nil { // what an agent asks its sub-agent
		return
	}
	// Only a prompt of ours renews the budget: the runtime adds messages of
	// the user's role by itself.
	if p := t.s.removeBegun(deref(d.MessageID), d.Content); p != nil {
		t.startTurn(p, d.Delivery != nil && *d.Delivery == rpc.UserMessageDeliverySteering)
		t.prompt = deref(d.MessageID)
	}
	t.agentDone = false
	t.reportBusy()
	t.emit(gateway.Event{UserMessage: d.Content, Source: promptSource(d.Source)})
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

func partKey(callback, id string) string { return callback + " " + id }

// beginPart notes that something began, unless it is known.
func (t *tracker) beginPart(callback, id string) (o *openPart, begun bool) {
	k := partKey(callback, id)
	if o := t.openParts[k]; o != nil {
		return o, false
	}
	o = &openPart{callback: callback, id: id}
	t.openParts[k] = o
	t.partOrder = append(t.partOrder, k)
	return o, true
}

// endPart forgets what ended.
func (t *tracker) endPart(callback, id string) {
	k := partKey(callback, id)
	delete(t.openParts, k)
	for i, have := range t.partOrder {
		if have == k {
			t.partOrder = append(t.partOrder[:i], t.partOrder[i+1:]...)
			return
		}
	}
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

// delta reports a piece of a message or reasoning; its first one begins it.
func (t *tracker) delta(callback, id, text string) {
	o, begun := t.beginPart(callback, id)
	if begun {
		t.emit(gateway.Event{Callback: startCallbacks[callback], ID: id})
	}
	o.content.WriteString(text)
	t.emit(gateway.Event{Callback: deltaCallbacks[callback], ID: id, Delta: text})
}

// message reports what the model said, and what it is about to do.
func (t *tracker) message(d *rpc.AssistantMessageData) {
	requests := make([]gateway.ToolRequest, len(d.ToolRequests))
	for i, r := range d.ToolRequests {
		requests[i] = gateway.ToolRequest{Name: r.Name, Args: rawJSON(r.Arguments)}
	}
	_, begun := t.openParts[partKey(gateway.OnEndMessage, d.MessageID)]
	switch {
	case begun || d.Content != "":
		t.complete(
			gateway.Event{Callback: gateway.OnEndMessage, ID: d.MessageID, Content: d.Content, Requests: requests},
		)
	case len(requests) > 0: // no text that anybody follows
		t.emit(gateway.Event{
			Forwarded: protocol.EventAssistantMessage,
			Data:      rawJSON(map[string]any{"content": "", "toolRequests": requests}),
		})
	}
	// The runtime's models don't say what they intend but for each call.
	for _, r := range d.ToolRequests {
		if intent := deref(r.IntentionSummary); intent != "" {
			t.emit(gateway.Event{Intent: intent})
		}
	}
}

// complete reports a whole message or reasoning.
func (t *tracker) complete(e gateway.Event) {
	if _, begun := t.beginPart(e.Callback, e.ID); begun {
		t.emit(gateway.Event{Callback: startCallbacks[e.Callback], ID: e.ID})
	}
	t.endPart(e.Callback, e.ID)
	t.emit(e)
}

func (t *tracker) toolStart(d *rpc.ToolExecutionStartData) {
	o, begun := t.beginPart(gateway.OnEndToolExecution, d.ToolCallID)
	if !begun {
		return
	}
	o.tool, o.provider = d.ToolName, t.s.owner(d.ToolName)
	t.emit(gateway.Event{
		Callback: gateway.OnStartToolExecution, ID: d.ToolCallID, ParentID: deref(d.ParentToolCallID),
		Tool: d.ToolName, Args: string(rawJSON(d.Arguments)), Provider: o.provider,
	})
}

func (t *tracker) toolDelta(id, text string) {
	o := t.openParts[partKey(gateway.OnEndToolExecution, id)]
	if o == nil || text == "" {
		return
	}
	t.emit(gateway.Event{Callback: gateway.OnToolExecution, ID: id, Delta: text, Tool: o.tool, Provider: o.provider})
}

// toolOutput reports what is new of a tool's output: the runtime's terminal tells
// all of it each time.
func (t *tracker) toolOutput(id, text string) {
	o := t.openParts[partKey(gateway.OnEndToolExecution, id)]
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
	o := t.openParts[partKey(gateway.OnEndToolExecution, d.ToolCallID)]
	if o == nil {
		return
	}
	t.endPart(gateway.OnEndToolExecution, d.ToolCallID)
	e := gateway.Event{
		Callback: gateway.OnEndToolExecution, ID: d.ToolCallID, ParentID: deref(d.ParentToolCallID), Tool: o.tool,
		Provider: o.provider,
	}
	switch {
	case d.Error != nil:
		e.Error = &adminapi.ToolError{Message: d.Error.Message, Code: deref(d.Error.Code)}
	case d.Result != nil:
		e.Result = &adminapi.ToolOutput{Content: d.Result.Content, DetailedContent: deref(d.Result.DetailedContent)}
	case d.Success:
		e.Result = &adminapi.ToolOutput{}
	default:
		e.Error = &adminapi.ToolError{Message: "the tool failed"}
	}
	t.emit(e)
}

// endParts ends what the runtime will not end any more: followers are promised
// an end for each beginning.
func (t *tracker) endParts(why string) {
	order := t.partOrder
	t.partOrder = nil
	for _, k := range order {
		o := t.openParts[k]
		delete(t.openParts, k)
		e := gateway.Event{Callback: o.callback, ID: o.id}
		if o.callback == gateway.OnEndToolExecution {
			e.Tool, e.Provider, e.Error = o.tool, o.provider, &adminapi.ToolError{Message: why}
		} else {
			e.Content = o.content.String()
		}
		t.emit(e)
	}
}

// processDied ends what the process took with it. The session stays busy until it is
// back.
func (t *tracker) processDied(it item) {
	t.gen = it.gen + 1 // no more events of that one
	t.pendingSyncs = nil
	t.agentDone, t.idleEarly = false, false
	t.endParts(it.lost.Error())
	t.endAgent()
	switch {
	case t.isBusy:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the turn is lost: %v; starting it again", it.lost)})
	case it.lostPrompts > 0:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the prompt is lost: %v; starting it again", it.lost)})
	}
	t.questions.releaseAll()
	t.endTurn(it.lost.Error())
	t.s.reportDropped(it.droppedPrompts, it.lost.Error())
	t.isBusy, t.idleWithheld = false, false
}

// processReplaced tells that the session goes on in a new process.
func (t *tracker) processReplaced() {
	t.s.saveError.Store(nil) // the next that can't be written down says so
	t.s.note(
		gateway.LogWarning,
		"the Copilot runtime died and was started again; the session goes on from what it had saved",
	)
	// Idle whether or not a turn ran: the gateway may count on a prompt that
	// was lost on its way. Not while one waits that was sent since.
	t.idle()
}

// owner is the provider of a tool of ours, "" for the runtime's own.
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
