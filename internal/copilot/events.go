package copilot

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

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
	gen     int
	event   sdk.SessionEvent
	lost    error
	prompts int // lost with it, that is taken and not begun
	resumed bool
	recheck bool
	aborted bool // the turn was interrupted: its end has to come

	gone     []*sentPrompt // lost with it, all of them
	handler  *handler      // of the SDK's, see meetings
	overtime int           // number of the run that took its time

	history []sdk.SessionEvent               // of a session that was resumed
	cut     bool                             // there was more of it
	carryOn bool                             // a turn ran when the session was lost with its gateway
	pending []*rpc.ExternalToolRequestedData // calls that it waits for
}

// pump turns the runtime's events into what the gateway is told. It is the only
// goroutine that does, so their order is kept.
func (s *session) pump() {
	t := turn{s: s, open: map[string]*opened{}}
	defer func() { t.run.stop() }()
	for {
		items, ok := s.items.take()
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
				s.keepRaw(it.event)
			}
		}
	}
}

// turn is what the pump knows of what goes on. Only the pump touches it.
type turn struct {
	s           *session
	gen         int  // of the process that the events come from
	running     bool // the gateway was told that the session is busy
	held        bool // the runtime is idle, but a prompt of ours did not begin
	run         run
	interrupted bool // since the last prompt began
	agent       string
	prompt      string             // message id of the prompt that began last
	open        map[string]*opened // messages, reasonings and tool executions under way
	order       []string           // their keys, oldest first
	syncs       map[string]synced  // asked for with sync, by number
	synced      int
	answered    bool // the agent is done, and the runtime has still to say that it is idle
	early       bool // it was taken for idle and has not said so yet

	meetings meetings
}

// opened is something that began and did not end.
type opened struct {
	callback string // that ends it
	id       string
	content  strings.Builder
	output   string // of a tool, as it was last told
	tool     string
	provider string
}

func (t *turn) emit(e gateway.Event) {
	e.Prompts = t.run.prompts
	t.s.calls.Event(e)
}

func (t *turn) handle(it item) {
	switch {
	case it.lost != nil:
		t.lost(it)
	case it.resumed:
		t.gen = it.gen
		t.back()
	case it.recheck:
		t.recheck()
		if it.aborted && t.running {
			t.sync(true)
		}
	case it.handler != nil:
		t.meetings.handles(it.handler)
	case it.overtime > 0:
		t.overtime(it.overtime)
	case it.history != nil:
		t.gen = it.gen
		t.recall(it)
	case it.gen >= t.gen:
		t.gen = it.gen
		t.event(it.event)
	}
}

func (t *turn) event(e sdk.SessionEvent) {
	if row := eventRows[e.Type()]; row.do != nil {
		row.do(t, e)
	}
}

// conn is the session's, if the events at hand are of it.
func (t *turn) conn() *conn {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.conn == nil || t.s.conn.gen != t.gen {
		return nil
	}
	return t.s.conn
}

// busy tells the gateway that a turn runs, once.
func (t *turn) busy() {
	t.held = false
	if !t.running {
		t.running = true
		t.s.calls.Busy()
	}
}

func (t *turn) userMessage(e sdk.SessionEvent, d *rpc.UserMessageData) {
	if e.AgentID != nil { // what an agent asks its sub-agent
		return
	}
	// Only a prompt of ours renews the budget: the runtime adds messages of
	// the user's role by itself.
	if p := t.s.began(deref(d.MessageID), d.Content); p != nil {
		t.promptBegan(p, d.Delivery != nil && *d.Delivery == rpc.UserMessageDeliverySteering)
		t.prompt = deref(d.MessageID)
	}
	t.answered = false
	t.busy()
	t.emit(gateway.Event{UserMessage: d.Content, Source: promptSource(d.Source)})
}

func (t *turn) turnStart(e sdk.SessionEvent, d *rpc.AssistantTurnStartData) {
	t.busy()
	if e.AgentID == nil {
		t.answered = false
		t.endAgent()
		t.agent = d.TurnID
		t.emit(gateway.Event{Callback: gateway.OnAgentStart, ID: d.TurnID})
	}
	t.anotherRound()
}

func (t *turn) endAgent() {
	if t.agent != "" {
		t.emit(gateway.Event{Callback: gateway.OnAgentEnd, ID: t.agent})
		t.agent = ""
	}
}

func key(callback, id string) string { return callback + " " + id }

// begin notes that something began, unless it is known.
func (t *turn) begin(callback, id string) (o *opened, begun bool) {
	k := key(callback, id)
	if o := t.open[k]; o != nil {
		return o, false
	}
	o = &opened{callback: callback, id: id}
	t.open[k] = o
	t.order = append(t.order, k)
	return o, true
}

// end forgets what ended.
func (t *turn) end(callback, id string) {
	k := key(callback, id)
	delete(t.open, k)
	for i, have := range t.order {
		if have == k {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// starts and deltas give the callbacks that come before the one that ends a text.
var (
	starts = map[string]string{gateway.OnEndMessage: gateway.OnStartMessage, gateway.OnEndReasoning: gateway.OnStartReasoning}
	deltas = map[string]string{gateway.OnEndMessage: gateway.OnMessage, gateway.OnEndReasoning: gateway.OnReasoning}
)

// delta reports a piece of a message or reasoning; its first one begins it.
func (t *turn) delta(callback, id, text string) {
	o, begun := t.begin(callback, id)
	if begun {
		t.emit(gateway.Event{Callback: starts[callback], ID: id})
	}
	o.content.WriteString(text)
	t.emit(gateway.Event{Callback: deltas[callback], ID: id, Delta: text})
}

// message reports what the model said, and what it is about to do.
func (t *turn) message(d *rpc.AssistantMessageData) {
	requests := make([]gateway.ToolRequest, len(d.ToolRequests))
	for i, r := range d.ToolRequests {
		requests[i] = gateway.ToolRequest{Name: r.Name, Args: rawJSON(r.Arguments)}
	}
	_, begun := t.open[key(gateway.OnEndMessage, d.MessageID)]
	switch {
	case begun || d.Content != "":
		t.complete(gateway.Event{Callback: gateway.OnEndMessage, ID: d.MessageID, Content: d.Content, Requests: requests})
	case len(requests) > 0: // no text that anybody follows
		t.emit(gateway.Event{Forwarded: protocol.EventAssistantMessage, Data: rawJSON(map[string]any{"content": "", "toolRequests": requests})})
	}
	// The runtime's models don't say what they intend but for each call.
	for _, r := range d.ToolRequests {
		if intent := deref(r.IntentionSummary); intent != "" {
			t.emit(gateway.Event{Intent: intent})
		}
	}
}

// complete reports a whole message or reasoning.
func (t *turn) complete(e gateway.Event) {
	if _, begun := t.begin(e.Callback, e.ID); begun {
		t.emit(gateway.Event{Callback: starts[e.Callback], ID: e.ID})
	}
	t.end(e.Callback, e.ID)
	t.emit(e)
}

func (t *turn) toolStart(d *rpc.ToolExecutionStartData) {
	o, begun := t.begin(gateway.OnEndToolExecution, d.ToolCallID)
	if !begun {
		return
	}
	o.tool, o.provider = d.ToolName, t.s.owner(d.ToolName)
	t.emit(gateway.Event{
		Callback: gateway.OnStartToolExecution, ID: d.ToolCallID, ParentID: deref(d.ParentToolCallID),
		Tool: d.ToolName, Args: string(rawJSON(d.Arguments)), Provider: o.provider,
	})
}

func (t *turn) toolDelta(id, text string) {
	o := t.open[key(gateway.OnEndToolExecution, id)]
	if o == nil || text == "" {
		return
	}
	t.emit(gateway.Event{Callback: gateway.OnToolExecution, ID: id, Delta: text, Tool: o.tool, Provider: o.provider})
}

// toolOutput reports what is new of a tool's output: the runtime's terminal tells
// all of it each time.
func (t *turn) toolOutput(id, text string) {
	o := t.open[key(gateway.OnEndToolExecution, id)]
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

func (t *turn) toolEnd(d *rpc.ToolExecutionCompleteData) {
	o := t.open[key(gateway.OnEndToolExecution, d.ToolCallID)]
	if o == nil {
		return
	}
	t.end(gateway.OnEndToolExecution, d.ToolCallID)
	e := gateway.Event{Callback: gateway.OnEndToolExecution, ID: d.ToolCallID, ParentID: deref(d.ParentToolCallID), Tool: o.tool, Provider: o.provider}
	switch {
	case d.Error != nil:
		e.Error = &gateway.ToolError{Message: d.Error.Message, Code: deref(d.Error.Code)}
	case d.Result != nil:
		e.Result = &gateway.ToolOutput{Content: d.Result.Content, DetailedContent: deref(d.Result.DetailedContent)}
	case d.Success:
		e.Result = &gateway.ToolOutput{}
	default:
		e.Error = &gateway.ToolError{Message: "the tool failed"}
	}
	t.emit(e)
}

// closeOpen ends what the runtime will not end any more: followers are promised
// an end for each beginning.
func (t *turn) closeOpen(why string) {
	order := t.order
	t.order = nil
	for _, k := range order {
		o := t.open[k]
		delete(t.open, k)
		e := gateway.Event{Callback: o.callback, ID: o.id}
		if o.callback == gateway.OnEndToolExecution {
			e.Tool, e.Provider, e.Error = o.tool, o.provider, &gateway.ToolError{Message: why}
		} else {
			e.Content = o.content.String()
		}
		t.emit(e)
	}
}

// idle handles that the runtime has nothing more to do. That may have been so
// before it got our last prompt.
func (t *turn) idle() {
	t.endRun("")
	if all, _ := t.s.waiting(); len(all) > 0 {
		t.held = true
		t.sync(false)
		return
	}
	t.settle()
}

// assistantIdle notes that the agent has nothing more to do. The runtime says that the
// session is idle once it is saved too: where it can't be, nobody waits for that.
func (t *turn) assistantIdle(e sdk.SessionEvent) {
	if e.AgentID != nil {
		return
	}
	t.answered = true
	if t.s.unsaved.Load() != nil {
		t.sync(false)
	}
}

// sessionIdle is the runtime's word that the session is idle, and saved.
func (t *turn) sessionIdle(aborted bool) {
	t.s.saved()
	early := t.early
	t.early = false
	switch {
	case early && !aborted && !(t.running && t.answered):
		return // of a turn that is over
	case aborted:
		t.aborted() // the runtime may say that only after this
	}
	t.idle()
}

// notSaved says, once while it lasts, that the runtime can't write the session down. It
// tries again by itself.
func (t *turn) notSaved(why string) {
	if t.s.unsaved.Swap(&why) == nil {
		t.s.log.Error("the session can't be saved", "error", why)
		t.emit(gateway.Event{SessionError: "the session can't be saved, and what was said since is lost when the Copilot runtime ends (is the disk full?): " + why})
	}
	if t.running && t.answered {
		t.sync(false)
	}
}

// settle tells the gateway that the session is idle.
func (t *turn) settle() {
	t.closeOpen("the turn ended")
	t.endAgent()
	t.endRun("")
	t.running, t.held = false, false
	t.s.promptSpent() // a turn that failed or was stopped has not said its end
	t.s.calls.Idle()
}

// recheck looks again at an idle that was held back.
func (t *turn) recheck() {
	if all, _ := t.s.waiting(); t.held && len(all) == 0 {
		t.settle()
	}
}

// synced is what was so when a sync was asked for.
type synced struct {
	waiting []*sentPrompt // taken by the runtime, and not begun
	run     int           // its number
	aborted bool
}

// sync finds out whether what the session waits for will ever come: the end of a turn
// that was interrupted or can't be saved, or, where the session is idle already, the
// beginning of the prompts that hold this back. Nothing says so when the runtime loses
// one. If the runtime has no work, and it did not come by the time a line of ours came
// back after all events before it, it will not.
func (t *turn) sync(aborted bool) {
	c := t.conn()
	if c == nil {
		return
	}
	_, waiting := t.s.waiting()
	if t.held && len(waiting) == 0 {
		return // Send is about to say what becomes of them
	}
	t.synced++
	id := strconv.Itoa(t.synced)
	if t.syncs == nil {
		t.syncs = map[string]synced{}
	}
	t.syncs[id] = synced{waiting, t.run.number, aborted}
	t.s.r.spawn(func() {
		activity, err := ask(t.s.ctx, c.p, askTimeout, c.sdk.RPC.Metadata.Activity)
		if err != nil || activity.HasActiveWork {
			return
		}
		level, typ, ephemeral := rpc.SessionLogLevelInfo, syncType, true
		_ = tell(t.s.ctx, c.p, askTimeout, func(ctx context.Context) error {
			_, err := c.sdk.RPC.Log(ctx, &rpc.LogRequest{Message: id, Level: &level, Type: &typ, Ephemeral: &ephemeral})
			return err
		})
	})
}

func (t *turn) syncedUpTo(id string) {
	was := t.syncs[id]
	delete(t.syncs, id)
	switch {
	case t.held:
		why := "the Copilot runtime lost the prompt"
		if t.interrupted {
			why = gateway.InterruptedBefore
		}
		t.s.abandoned(t.s.drop(was.waiting), why)
		t.recheck()
	case t.running && was.run == t.run.number && (t.answered || was.aborted):
		t.early = true
		t.idle()
	}
}

// lost ends what the process took with it. The session stays busy until it is
// back.
func (t *turn) lost(it item) {
	t.gen = it.gen + 1 // no more events of that one
	t.syncs = nil
	t.answered, t.early = false, false
	t.closeOpen(it.lost.Error())
	t.endAgent()
	switch {
	case t.running:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the turn is lost: %v; starting it again", it.lost)})
	case it.prompts > 0:
		t.emit(gateway.Event{SessionError: fmt.Sprintf("the prompt is lost: %v; starting it again", it.lost)})
	}
	t.meetings.end()
	t.endRun(it.lost.Error())
	t.s.abandoned(it.gone, it.lost.Error())
	t.running, t.held = false, false
}

// back tells that the session goes on in a new process.
func (t *turn) back() {
	t.s.unsaved.Store(nil) // the next that can't be written down says so
	t.s.note(gateway.LogWarning, "the Copilot runtime died and was started again; the session goes on from what it had saved")
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
