package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// HostLocal is the kind of sessions that have no model: StartRequest.Host, and the id of
// their only model.
const HostLocal = "local"

// LocalStarter starts sessions without a model, for scripts and for authors of providers. A prompt
// "call:NAME {json}" calls a tool, and "ask:KIND {json}" asks a person; the outcome is the answer.
// Other prompts have no effect.
type LocalStarter struct{}

// Start implements [Starter]. The error is INVALID_JSON for profile, effort or githubToken,
// which need a model, or that of [Gateway.Register].
func (LocalStarter) Start(_ context.Context, g *Gateway, r StartRequest) (*Session, error) {
	unsupported := map[string]string{"profile": r.Profile, "effort": r.Effort,
		"githubToken": r.GitHubToken}
	for field, value := range unsupported {
		if value != "" {
			return nil, errorf(protocol.CodeInvalidJSON,
				"%s: is for sessions of host copilot; a local one has no model", field)
		}
	}
	h := &localHost{}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	// The session's worker may call the host before Register returns.
	h.ready.Add(1)
	defer h.ready.Done()
	s, err := g.Register(SessionSpec{Label: r.Label, CWD: r.CWD, Model: r.Model},
		HostInfo{Kind: HostLocal, Send: true, Interrupt: true, StopsFirst: true, LiveTools: true,
			Commands: h.commands, RunCommand: h.runCommand}, h)
	if err != nil {
		return nil, err
	}
	h.calls = s
	return s, nil
}

// Models implements [Starter]. It lists one model, [HostLocal], and returns no error.
func (LocalStarter) Models(context.Context) ([]adminapi.Model, error) {
	return []adminapi.Model{{ID: HostLocal, Name: "Local session without a model"}}, nil
}

// localHost runs a session without a model. One goroutine runs the queued prompts in order, and
// ends when the queue is empty.
type localHost struct {
	ready  sync.WaitGroup // until calls is set
	calls  HostCalls
	ctx    context.Context
	cancel context.CancelFunc
	turns  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	tools     []Tool
	queue     []Prompt
	isRunning bool
	interrupt context.CancelFunc // of the turn that runs
	turnCount int
}

func (h *localHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools = tools
	return nil
}

func (h *localHost) Log(adminapi.LogLevel, string) {}

func (h *localHost) Send(_ context.Context, p Prompt) error {
	h.ready.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, p)
	if !h.isRunning {
		h.isRunning = true
		h.calls.Busy()
		h.turns.Go(h.run)
	}
	return nil
}

func (h *localHost) commands(context.Context) ([]adminapi.Command, error) {
	return []adminapi.Command{
		{Name: "tools", Description: "List the tools that the session has from providers"},
		{Name: "call", Description: "Call a tool", Hint: "TOOL [ARGUMENTS]", Required: true},
	}, nil
}

func (h *localHost) runCommand(_ context.Context, name, input string) (CommandResult, error) {
	h.mu.Lock()
	tools := h.tools
	h.mu.Unlock()
	switch {
	case name == "call" && input == "":
		return CommandResult{}, errorf(protocol.CodeInvalidArguments, "name a tool")
	case name == "call":
		return CommandResult{Prompt: "call:" + input, Shown: "/call " + input}, nil
	case name != "tools":
		return CommandResult{}, errorf(protocol.CodeNotFound,
			"a local session has no command of this name")
	case len(tools) == 0:
		return CommandResult{Text: "The session has no tools."}, nil
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return CommandResult{Text: strings.Join(names, "\n")}, nil
}

func (h *localHost) run() {
	for {
		h.mu.Lock()
		if len(h.queue) == 0 || h.ctx.Err() != nil {
			h.isRunning = false
			// Under the lock, so that the next prompt reports busy after it.
			h.calls.Idle()
			h.mu.Unlock()
			return
		}
		p := h.queue[0]
		h.queue = h.queue[1:]
		h.turnCount++
		n := h.turnCount
		ctx, cancel := context.WithCancel(h.ctx)
		h.interrupt = cancel
		h.mu.Unlock()
		h.runTurn(ctx, n, p)
		cancel()
	}
}

func (h *localHost) runTurn(ctx context.Context, n int, p Prompt) {
	h.calls.Event(Event{UserMessage: p.shown(), Source: p.Source})
	h.calls.UserPrompt(ctx, p.Text, p.Source)
	turn := fmt.Sprintf("turn-%d", n)
	h.calls.Event(Event{Callback: OnAgentStart, ID: turn})
	if rest, ok := strings.CutPrefix(strings.TrimSpace(p.Text), "call:"); ok {
		name, args, _ := strings.Cut(rest, " ")
		h.callTool(ctx, n, name, strings.TrimSpace(args))
	} else if rest, ok := strings.CutPrefix(strings.TrimSpace(p.Text), "ask:"); ok {
		kind, question, _ := strings.Cut(rest, " ")
		h.say(n, h.ask(ctx, kind, question))
	}
	h.calls.Event(Event{Callback: OnAgentEnd, ID: turn})
}

func (h *localHost) callTool(ctx context.Context, n int, name, args string) {
	if args == "" {
		args = "{}"
	}
	o := reportExecution(h.calls, fmt.Sprintf("call-%d", n), name, args, func() Outcome {
		if err := protocol.Object([]byte(args), func(string, protocol.Raw) error {
			return nil
		}); err != nil {
			return Outcome{Error: fmt.Sprintf("arguments of %s: %v", name, err),
				ErrorCode: protocol.CodeInvalidArguments}
		}
		return h.calls.CallTool(ctx, Call{Name: name, Args: protocol.Raw(args)})
	})
	h.say(n, o.Text())
}

// reportExecution makes a call and reports its beginning and end to the gateway, as
// hosts with a model do.
func reportExecution(calls HostCalls, id, tool, args string, call func() Outcome) Outcome {
	calls.Event(Event{Callback: OnStartToolExecution, ID: id, Tool: tool, Args: args})
	o := call()
	end := Event{Callback: OnEndToolExecution, ID: id, Tool: tool}
	if o.Failed() {
		end.Error = &adminapi.ToolError{Message: o.Error, Code: string(o.ErrorCode)}
	} else {
		end.Result = &adminapi.ToolOutput{Content: o.Text()}
	}
	calls.Event(end)
	return o
}

// say reports a message of the agent.
func (h *localHost) say(n int, text string) {
	message := fmt.Sprintf("message-%d", n)
	h.calls.Event(Event{Callback: OnStartMessage, ID: message})
	h.calls.Event(Event{Callback: OnMessage, ID: message, Delta: text})
	h.calls.Event(Event{Callback: OnEndMessage, ID: message, Content: text})
}

// ask asks a person and returns the answer as text.
func (h *localHost) ask(ctx context.Context, kind, question string) string {
	var q struct {
		Message   string       `json:"message"`
		Detail    string       `json:"detail"`
		Choices   []string     `json:"choices"`
		Freeform  bool         `json:"freeform"`
		Schema    protocol.Raw `json:"schema"`
		TimeoutMs int64        `json:"timeoutMs"`
	}
	if err := json.Unmarshal([]byte(question), &q); err != nil {
		return fmt.Sprintf("the question is not JSON: %v", err)
	}
	if kind != adminapi.QuestionPermission && kind != adminapi.QuestionInput &&
		kind != adminapi.QuestionForm {
		return fmt.Sprintf("there is no question of kind %q", kind)
	}
	a, err := h.calls.Ask(ctx, Question{Kind: kind, Message: q.Message, Detail: q.Detail,
		Choices: q.Choices, Free: q.Freeform || len(q.Choices) == 0, Schema: q.Schema,
		Timeout: time.Duration(q.TimeoutMs) * time.Millisecond})
	switch {
	case err != nil:
		return err.Error()
	case a.Content != nil:
		return string(a.Content)
	}
	return strings.TrimSpace(a.Decision + " " + a.Text)
}

func (h *localHost) Interrupt(context.Context, string) (dropped []string, err error) {
	h.ready.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupt != nil {
		h.interrupt()
	}
	return nil, nil // the prompts behind this turn still run
}

func (h *localHost) Close(context.Context, string) error {
	h.cancel()
	h.turns.Wait()
	return nil
}
