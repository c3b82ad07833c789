package terminals

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/terminals/hook"
)

// Hooks of a terminal's CLI become calls, prompts and ends of turns of its session.

// input is the CLI's input for a hook. Each event has some of the members; a newer CLI may write
// more.
type input struct {
	Session     string          `json:"sessionId"`
	CWD         string          `json:"cwd"`
	Prompt      string          `json:"prompt"`
	Tool        string          `json:"toolName"`
	Args        protocol.Raw    `json:"toolArgs"`
	Input       protocol.Raw    `json:"toolInput"` // toolArgs of permissionRequest
	Result      json.RawMessage `json:"toolResult"`
	StopReason  string          `json:"stopReason"`
	IsStopAgain bool            `json:"stop_hook_active"`
	Reason      string          `json:"reason"`
	Error       json.RawMessage `json:"error"`
}

// readInput reads the CLI's input for an event. It refuses text that two readers could understand
// differently.
func readInput(event string, data []byte) (in input, err error) {
	if !slices.Contains(hook.Events, event) {
		return in, invalid("event: %q is not one of %s", event, strings.Join(hook.Events, ", "))
	}
	if err := jsonv2.Unmarshal(data, &in); err != nil {
		return in, invalid("%s", protocol.Explain("input", err))
	}
	if in.Tool == "" && hook.Decides(event) { // gates are asked by the name of the tool
		return in, invalid("input.toolName: is required")
	}
	if in.Args = cmpRaw(in.Args, in.Input); in.Args.Kind() == '"' {
		text, ok := protocol.Text(in.Args)
		switch {
		case ok && protocol.Raw(text).IsValid():
			in.Args = protocol.Raw(text) // some versions of the CLI write the arguments as a text
		case ok && json.Valid([]byte(text)) && hook.Decides(event):
			return in,
				invalid(
					"input.toolArgs: is JSON that can be read in two ways (a name " +
						"twice, for example)")
		}
	}
	if len(in.Args) == 0 || in.Args.Kind() == 'n' {
		in.Args = protocol.Raw("{}")
	}
	return in, nil
}

func cmpRaw(a, b protocol.Raw) protocol.Raw {
	if len(a) > 0 && a.Kind() != 'n' {
		return a
	}
	return b
}

// mcpServer is the name under which `tapgw install copilot` makes the gateway an MCP server of the
// CLI. The CLI calls the tools of a server SERVER-TOOL.
const mcpServer = "tapgw-"

// tool returns the name that providers and gates know a tool by. isProviders is true for a tool
// that the CLI has from this gateway, by its link or else by `tapgw mcp`: the gates are asked
// about it when its call comes in, so the hooks need not ask.
func (t *terminal) tool(name string) (known string, isProviders bool) {
	if link := t.currentLink(); link != nil && link.Has(name) {
		return name, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own, ok := strings.CutPrefix(name, mcpServer)
	if ok &&
		slices.ContainsFunc(t.tools, func(tool gateway.Tool) bool { return tool.Name == own }) {
		return own, t.link == nil && t.ways[WayMCP] > 0
	}
	return name, false
}

// Hook answers a hook of a terminal's CLI. The terminal joins with its first hook. On an error,
// `tapgw hook` denies the call that the CLI asks about.
func (r *Registry) Hook(
	ctx context.Context, h adminapi.TerminalHook,
) (adminapi.TerminalAnswer, error) {
	in, err := readInput(h.Event, h.Input)
	if err != nil {
		return adminapi.TerminalAnswer{}, err
	}
	if h.PID <= 0 {
		return adminapi.TerminalAnswer{}, invalid("pid: is required, of the CLI's process")
	}
	if parent, ok := proc.ParentOf(h.PID); ok && parent == r.own {
		// This gateway runs the CLI: its sessions ask the gates themselves.
		return adminapi.TerminalAnswer{Output: hook.Answer{}.Output(h.Event)}, nil
	}
	output, err := r.answer(ctx, h.Event, in, h.PID,
		sha256.Sum256(append([]byte(h.Event+" "), h.Input...)))
	return adminapi.TerminalAnswer{Output: output}, err
}

func (r *Registry) answer(
	ctx context.Context, event string, in input, pid int, sum [sha256.Size]byte,
) (output []byte, err error) {
	if event == hook.EventSessionEnd {
		if t := r.find(in.Session); t != nil {
			r.end(t, "the terminal has ended it: "+cmp.Or(in.Reason, "no reason given"))
		}
		return hook.Answer{}.Output(event), nil
	}
	for {
		t, err := r.enterHook(ctx, event, in, pid)
		if errors.Is(err, errForeign) {
			return r.answerForeign(ctx, event, in)
		}
		if err != nil {
			return nil, err
		}
		a := t.heard.once(ctx, event, sum, func() hook.Answer { return t.hook(ctx, event, in) })
		if hook.Decides(event) && !a.Deny && t.isEnding() && ctx.Err() == nil {
			continue // the gates may have been unbound already
		}
		return a.Output(event), nil
	}
}

// enterHook finds the terminal that a hook is about. A tool call of an unknown session comes from a
// sub-agent, or from a terminal that was there before the gateway.
func (r *Registry) enterHook(
	ctx context.Context, event string, in input, pid int,
) (*terminal, error) {
	who := Terminal{Session: in.Session, PID: pid, CWD: in.CWD}
	if err := who.check(); err != nil {
		return nil, err
	}
	if event != hook.EventSessionStart && event != hook.EventUserPrompt &&
		r.find(in.Session) == nil {
		if id, ok := proc.IDOf(pid); ok {
			if t := r.latest(id); t != nil {
				who.Session, who.CWD = t.id, t.cwd
			}
		}
	}
	r.forgive(who.Session)
	t, err := r.enter(ctx, who)
	if err != nil {
		return nil, err
	}
	t.setWay(WayHooks)
	return t, nil
}

// answerForeign answers for a session that another host runs: a CLI in a terminal has resumed it
// too. Its calls pass the same gates.
func (r *Registry) answerForeign(ctx context.Context, event string, in input) ([]byte, error) {
	s, ok := r.gateway.Session(in.Session)
	if !ok {
		return nil, errForeign
	}
	var a hook.Answer
	if hook.Decides(event) {
		a = decided(s.PreToolUse(ctx, in.Tool, in.Args))
	}
	return a.Output(event), nil
}

// decided returns the gates' decision in the form for the CLI.
func decided(d gateway.Decision) hook.Answer {
	if !d.Deny {
		return hook.Answer{Context: quote(d.Context)}
	}
	return hook.Answer{Deny: true, Reason: d.Denial()}
}

// reminderTag finds the tags around a hook's text for the model.
var reminderTag = lazyregexp.New(`(?i)<(\s*/?\s*system[_-]reminder)`)

// quote keeps a foreign text from ending the tags that the CLI puts around it.
func quote(text string) string { return reminderTag.ReplaceAllString(text, "‹$1") }

// turn is the state of the running turn, as its hooks report it.
type turn struct {
	isKnown bool   // this gateway saw the session's beginning, or a prompt
	next    string // the prompt that the last agentStop made, or ""
	source  string // of next
	blocks  int    // how many times in a row
	tools   []runningTool
	count   uint64 // of tools
}

// runningTool is a call of the CLI's own tools between its two hooks.
type runningTool struct {
	key  callKey
	tool string // as providers know it
	id   string // in the events of the call; "" if a link reports them
}

// callKey tells calls apart. The CLI gives them no ids.
type callKey struct {
	tool string            // as the CLI names it
	sum  [sha256.Size]byte // of the arguments
}

func keyOf(in input) callKey { return callKey{in.Tool, sha256.Sum256(in.Args)} }

const (
	// endOfTurn is the reason for stopping of an agent that has finished. An agent that a person
	// has stopped does not go on.
	endOfTurn = "end_turn"
	// maxBlocks is how many times in a row an agentStop makes a prompt. The CLI ends a turn at the
	// eighth time.
	maxBlocks = 7
	// comeBack is the time within which the providers of a gateway that starts again are back.
	comeBack        = 5 * time.Second
	maxRunningTools = 100
)

// hook answers one event.
func (t *terminal) hook(ctx context.Context, event string, in input) hook.Answer {
	switch event {
	case hook.EventSessionStart:
		t.known()
		t.settle(ctx)
	case hook.EventUserPrompt:
		t.known()
		t.settle(ctx)
		return hook.Answer{Context: t.userPrompt(ctx, in)}
	case hook.EventPreToolUse, hook.EventPermissionRequest:
		t.waitForProviders(ctx)
		return t.decide(ctx, event, in)
	case hook.EventPostToolUse:
		return hook.Answer{Context: t.afterTool(ctx, in)}
	case hook.EventAgentStop:
		return hook.Answer{Reason: t.stop(ctx, in)}
	case hook.EventError:
		if t.currentLink() == nil {
			t.session.Event(gateway.Event{SessionError: errorText(in.Error)})
		}
	}
	return hook.Answer{}
}

func (t *terminal) known() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn.isKnown = true
}

// waitForProviders waits for the gates of a session whose agent works already. A turn that is older
// than the gateway has lost its gates with the previous gateway: its calls wait until they must be
// back.
func (t *terminal) waitForProviders(ctx context.Context) {
	t.settle(ctx)
	t.mu.Lock()
	isKnown := t.turn.isKnown
	t.mu.Unlock()
	if !isKnown {
		_ = chans.Sleep(ctx, time.Until(t.r.begun.Add(comeBack)))
	}
}

// userPrompt returns the text that the model gets with a prompt: the providers' additions, and the
// injects that wait.
func (t *terminal) userPrompt(ctx context.Context, in input) string {
	source := gateway.SourceUser
	t.mu.Lock()
	if t.turn.next != "" && t.turn.next == in.Prompt {
		source = t.turn.source
	} else {
		t.turn.blocks = 0
	}
	t.turn.next = ""
	hasLink := t.link != nil
	t.mu.Unlock()
	if source == gateway.SourceUser {
		_ = t.r.gateway.SetForeground(t.id) // a person types there
	}
	if !hasLink {
		t.session.Busy()
		t.session.Event(gateway.Event{UserMessage: in.Prompt, Source: source})
	}
	texts := []string{t.session.UserPrompt(ctx, in.Prompt, source)}
	if !hasLink && source == gateway.SourceUser {
		for p, ok := t.session.TakeInject(); ok; p, ok = t.session.TakeInject() {
			texts = append(texts, injected(p))
		}
	}
	return quote(strings.Join(slices.DeleteFunc(texts, func(s string) bool {
		return s == ""
	}), "\n\n"))
}

// injected is an inject as the model and the person read it.
func injected(p gateway.Prompt) string {
	name := strings.TrimPrefix(p.Source, gateway.SourceProvider)
	return "[from provider " + name + "]\n" + p.Text
}

// decide asks the gates about a call. The CLI asks twice about some calls: before each one, and
// again when a person would be asked. The gates have been asked then, and the person decides.
func (t *terminal) decide(ctx context.Context, event string, in input) hook.Answer {
	tool, isProviders := t.tool(in.Tool)
	if event == hook.EventPermissionRequest && (isProviders || t.isRunning(keyOf(in))) {
		return hook.Answer{}
	}
	var d gateway.Decision
	if !isProviders {
		d = t.session.PreToolUse(ctx, tool, in.Args)
	}
	if !d.Deny && event == hook.EventPreToolUse {
		t.toolStarts(keyOf(in), tool, in.Args)
	}
	return decided(d)
}

// isRunning reports whether the gates have allowed a call that has not ended.
func (t *terminal) isRunning(key callKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.turn.tools, func(r runningTool) bool { return r.key == key })
}

// toolStarts notes that a call begins, and tells providers unless a link does.
func (t *terminal) toolStarts(key callKey, tool string, args protocol.Raw) {
	running := runningTool{key: key, tool: tool}
	t.mu.Lock()
	if len(t.turn.tools) >= maxRunningTools {
		t.turn.tools = slices.Delete(t.turn.tools, 0, 1)
	}
	if t.link == nil {
		t.turn.count++
		running.id = "hook-" + strconv.FormatUint(t.turn.count, 10)
	}
	t.turn.tools = append(t.turn.tools, running)
	t.mu.Unlock()
	if running.id != "" {
		t.session.Event(gateway.Event{
			Callback: gateway.OnStartToolExecution, ID: running.id, Tool: tool, Args: string(args),
		})
	}
}

// afterTool returns the texts that user hooks add to the result of a call.
func (t *terminal) afterTool(ctx context.Context, in input) string {
	tool, _ := t.tool(in.Tool)
	result, failed := resultText(in.Result)
	t.toolEnds(keyOf(in), tool, in.Args, result, failed)
	e := gateway.HookEvent{On: gateway.HookPostToolUse, Tool: tool, Args: in.Args, Result: result}
	if failed {
		e.Result, e.Error = "", result
	}
	return quote(t.session.Hook(ctx, e).Context)
}

func (t *terminal) toolEnds(
	key callKey, tool string, args protocol.Raw, result string, failed bool,
) {
	t.mu.Lock()
	i := slices.IndexFunc(t.turn.tools, func(r runningTool) bool { return r.key == key })
	if i < 0 {
		t.mu.Unlock()
		return
	}
	id := t.turn.tools[i].id
	t.turn.tools = slices.Delete(t.turn.tools, i, i+1)
	t.mu.Unlock()
	if id == "" {
		return
	}
	e := gateway.Event{
		Callback: gateway.OnEndToolExecution, ID: id, Tool: tool, Args: string(args),
		Result: &adminapi.ToolOutput{Content: result},
	}
	if failed {
		e.Result, e.Error = nil, &adminapi.ToolError{Message: result}
	}
	t.session.Event(e)
}

// resultText returns the text of a tool's result for the model.
func resultText(data json.RawMessage) (text string, failed bool) {
	var r struct {
		Type string  `json:"resultType"`
		Text *string `json:"textResultForLlm"`
	}
	if jsonv2.Unmarshal(data, &r) != nil || r.Text == nil {
		return string(data), false
	}
	return *r.Text, r.Type != "" && r.Type != "success"
}

// errorText returns the message of an error of the CLI's.
func errorText(data json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	if jsonv2.Unmarshal(data, &e) == nil && e.Message != "" {
		return e.Message
	}
	if text, ok := protocol.Text(protocol.Raw(data)); ok && text != "" {
		return text
	}
	return "the CLI has reported an error"
}

// stop returns the prompt with which the agent goes on at the end of its turn: the prompt of a user
// hook, else the oldest inject. "" means that the agent stops.
func (t *terminal) stop(ctx context.Context, in input) (next string) {
	t.toolsLost()
	t.mu.Lock()
	mayBlock, hasLink := in.StopReason == endOfTurn && t.turn.blocks < maxBlocks, t.link != nil
	t.mu.Unlock()
	source := ""
	if mayBlock {
		e := gateway.HookEvent{On: gateway.HookAgentStop, Reason: in.StopReason,
			Again: in.IsStopAgain}
		if a := t.session.Hook(ctx, e); a.Decision == protocol.DecisionDeny {
			next, source = a.Reason, gateway.SourceProvider+"hook"
		}
	}
	if mayBlock && next == "" && !hasLink {
		if p, ok := t.session.TakeInject(); ok {
			next, source = injected(p), p.Source
		}
	}
	t.mu.Lock()
	if t.turn.next, t.turn.source = next, source; next != "" {
		t.turn.blocks++
	}
	t.mu.Unlock()
	if next == "" && !hasLink {
		t.session.Idle()
	}
	return next
}

// toolsLost ends the calls that the CLI has not made, because a person denied them.
func (t *terminal) toolsLost() {
	t.mu.Lock()
	lost := t.turn.tools
	t.turn.tools = nil
	t.mu.Unlock()
	for _, r := range lost {
		if r.id != "" {
			t.session.Event(gateway.Event{
				Callback: gateway.OnEndToolExecution, ID: r.id, Tool: r.tool,
				Error: &adminapi.ToolError{Message: "the terminal did not tell how it ended"},
			})
		}
	}
}

// heard has the hooks of a terminal that were answered lately. A CLI whose hooks are installed
// twice, for the user and in the repository, runs each of them twice. The zero value is empty.
type heard struct {
	mu   sync.Mutex // guards the fields below
	list []*said    // oldest first
}

// said is a hook and its answer.
type said struct {
	sum    [sha256.Size]byte
	begun  time.Time
	done   chan struct{} // closed when answer is set
	answer hook.Answer
}

const (
	maxHeard = 32
	// sameEvent is how far apart two hooks of the same event run.
	sameEvent = 30 * time.Second
)

// once answers a hook. A repeated hook has the same text, because the text has the time of the
// event. It gets the same denial, but no texts for the model, which has them already.
func (h *heard) once(
	ctx context.Context, event string, sum [sha256.Size]byte, f func() hook.Answer,
) hook.Answer {
	h.mu.Lock()
	i := slices.IndexFunc(h.list, func(s *said) bool {
		return s.sum == sum && time.Since(s.begun) < sameEvent
	})
	if i >= 0 {
		before := h.list[i]
		h.mu.Unlock()
		if !hook.Decides(event) {
			return hook.Answer{}
		}
		select {
		case <-before.done:
			return hook.Answer{Deny: before.answer.Deny, Reason: before.answer.Reason}
		case <-ctx.Done():
			return hook.Answer{Deny: true, Reason: "the gateway did not answer in time"}
		}
	}
	s := &said{sum: sum, begun: time.Now(), done: make(chan struct{})}
	s.answer = hook.Answer{Deny: true, Reason: "the gateway failed"}
	if len(h.list) >= maxHeard {
		h.list = slices.Delete(h.list, 0, 1)
	}
	h.list = append(h.list, s)
	h.mu.Unlock()
	defer close(s.done)
	s.answer = f()
	return s.answer
}
