package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/langserver"
)

// turn runs one turn and prints it.
func (v *conversation) turn(ctx context.Context, prompt, source string, printer *turnPrinter) error {
	return printer.done(v.runTurn(ctx, prompt, source, printer))
}

// runTurn runs one turn and prints its events, but not how it ended.
func (v *conversation) runTurn(ctx context.Context, prompt, source string, printer *turnPrinter) (langserver.Turn,
	error) {
	if err := v.instruct(); err != nil {
		return langserver.Turn{}, workspace.ExitError(err)
	}
	v.kept.begin(prompt)
	prompt = v.beginTurn(prompt)
	result, err := turnIn(ctx, v.Conversation, v.session, prompt, source, func(e langserver.Event) {
		v.kept.event(e)
		printer.event(e)
	})
	v.kept.end(result, err)
	return result, err
}

// turnIn runs a turn of a conversation, as one of its session if it has one.
func turnIn(ctx context.Context, c *langserver.Conversation, s *gatewaySession, prompt, source string,
	on func(langserver.Event)) (result langserver.Turn, err error) {
	run := func(ctx context.Context, prompt string) (langserver.Turn, error) { return c.Turn(ctx, prompt, on) }
	if s != nil {
		result, err = s.runTurn(ctx, prompt, source, run)
	} else {
		result, err = run(ctx, prompt)
	}
	return result, workspace.ExitError(err)
}

// turnPrinter prints the events of turns: text on stdout and the rest on stderr, or all as JSON on stdout.
type turnPrinter struct {
	cmd *command
	v   *conversation

	worker *worker // whose events these are: its name goes before the lines, and its text is not for stdout

	inLine bool // the last text on stdout did not end its line

	// With --output-schema:
	onlyOutput bool            // stdout has no text of the model
	output     json.RawMessage // the answer of the turn that has ended
	live       liveTurn
}

// eventLine is an event as --json prints it.
type eventLine struct {
	Type     string          `json:"type"`
	Worker   string          `json:"worker,omitempty"`
	Round    int             `json:"round,omitempty"`
	Delta    string          `json:"delta,omitempty"`
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	State    string          `json:"state,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Result   string          `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Diff     string          `json:"diff,omitempty"`
	Severity string          `json:"severity,omitempty"`
	Message  string          `json:"message,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	Fault    string          `json:"fault,omitempty"`
}

func (p *turnPrinter) event(e langserver.Event) {
	line := eventLine{}
	switch e := e.(type) {
	case langserver.Text:
		line = eventLine{Type: "text", Round: e.Round, Delta: e.Delta}
		p.text(e.Delta)
	case langserver.Reasoning:
		line = eventLine{Type: "reasoning", Round: e.Round, Delta: e.Delta}
		p.reasoning(e.Delta)
	case langserver.Window:
		p.live.window = e
		return
	case langserver.ToolCall:
		line = eventLine{Type: "tool", Round: e.Round, ID: e.ID, Name: e.Name, State: string(e.State), Result: e.Result,
			Error: e.Error}
		var diffs callDiffs
		if e.State == langserver.Running {
			line.Input = e.Input
		} else {
			diffs = p.v.edits.take(p.conversation().ID() + " " + e.ID)
			line.Diff = diffText(diffs.list)
			if s := p.session(); s != nil {
				s.toolDone(e)
			}
		}
		p.tool(e)
		if !diffs.seen {
			p.diffs(diffs.list)
		}
	case langserver.Notice:
		line = eventLine{Type: "notice", Severity: e.Severity, Message: e.Message}
		p.note("%s: %s", e.Severity, cli.Clean(e.Message))
	default:
		return
	}
	if p.cmd.out.JSON {
		line.Worker = p.name()
		p.cmd.printing.Lock()
		defer p.cmd.printing.Unlock()
		_ = p.cmd.out.Line(line)
	}
}

// name returns the name of the worker whose events these are.
func (p *turnPrinter) name() string {
	if p.worker == nil {
		return ""
	}
	return p.worker.name
}

// conversation returns the conversation whose events these are.
func (p *turnPrinter) conversation() *langserver.Conversation {
	if p.worker == nil {
		return p.v.Conversation
	}
	return p.worker.Conversation
}

func (p *turnPrinter) session() *gatewaySession {
	if p.worker == nil {
		return p.v.session
	}
	return p.worker.session
}

// text prints a piece of the model's text.
func (p *turnPrinter) text(delta string) {
	if p.cmd.out.JSON || p.onlyOutput || delta == "" || p.worker != nil {
		return
	}
	p.endReasoning()
	delta = cli.Clean(delta)
	if p.cmd.rendersMarkdown() {
		p.render(delta)
		return
	}
	_ = p.cmd.out.Printf("%s", delta)
	p.inLine = !strings.HasSuffix(delta, "\n")
}

// note prints a line on stderr. While a question waits for its answer, note waits too.
func (p *turnPrinter) note(format string, args ...any) {
	p.cmd.printing.Lock()
	defer p.cmd.printing.Unlock()
	p.endLine()
	if name := p.name(); name != "" {
		format, args = "[%s] "+format, append([]any{name}, args...)
	}
	p.cmd.out.Notef(format, args...)
}

func (p *turnPrinter) endLine() {
	p.endReasoning()
	p.endMarkdown()
	if p.inLine {
		p.inLine = false
		_ = p.cmd.out.Printf("\n")
	}
}

func (p *turnPrinter) tool(e langserver.ToolCall) {
	paint := func(ink cli.Ink, text string) string { return ink.On(p.cmd.App.ErrWriter, text) }
	p.showTool(e)
	if e.Name == todoTool && e.State != langserver.Failed {
		if list := todoList(e.Input); list != "" && e.State == langserver.Completed {
			p.note("%s", list)
		}
		return
	}
	switch e.State {
	case langserver.Running:
		p.note("%s %s", paint(cli.Blue, "• "+e.Name), paint(cli.Dim, cli.Shorten(cli.Clean(string(e.Input)), 100)))
	case langserver.Completed:
		if p.cmd.out.Verbose {
			p.note("%s %s", paint(cli.Green, "✓ "+e.Name), paint(cli.Dim, cli.Shorten(cli.Clean(e.Result), 100)))
		}
	case langserver.Failed:
		p.note("%s %s", paint(cli.Red, "✗ "+e.Name), cli.Shorten(cli.Clean(e.Error), 200))
	case langserver.Cancelled:
		p.note("%s", paint(cli.Yellow, "– "+e.Name+" cancelled"))
	}
}

// diffs prints what a call has changed.
func (p *turnPrinter) diffs(diffs []diff.Diff) {
	if p.cmd.out.JSON || len(diffs) == 0 {
		return
	}
	view := p.cmd.diffView(p.cmd.App.ErrWriter)
	p.cmd.printing.Lock()
	defer p.cmd.printing.Unlock()
	p.endLine()
	for i := range diffs {
		view.print(p.cmd.out.Err, &diffs[i])
	}
}

// injected prints a prompt that a provider has injected.
func (p *turnPrinter) injected(prompt string) {
	if p.cmd.out.JSON {
		_ = p.cmd.out.Line(eventLine{Type: "prompt", Prompt: prompt})
		return
	}
	p.note("» %s", cli.Shorten(cli.Clean(prompt), 100))
}

// rejected prints that an answer does not match --output-schema and that the model is asked again.
func (p *turnPrinter) rejected(fault error) {
	if p.cmd.out.JSON {
		_ = p.cmd.out.Line(eventLine{Type: "retry", Fault: fault.Error()})
		return
	}
	p.note("the model is asked again: %s", cli.OneLine(fault.Error()))
}

// done prints how a turn ended, and returns the command's error.
func (p *turnPrinter) done(r langserver.Turn, err error) error {
	p.endLine()
	output := p.output
	p.output = nil
	p.summary(r)
	if !p.cmd.out.JSON {
		if err == nil && output != nil {
			return p.cmd.out.Document(output)
		}
		return err
	}
	line := struct {
		Type         string            `json:"type"`
		Conversation string            `json:"conversation"`
		Turn         string            `json:"turn,omitempty"`
		Model        string            `json:"model,omitempty"`
		Text         string            `json:"text"`
		Output       json.RawMessage   `json:"output,omitempty"`
		Usage        langserver.Usage  `json:"usage"`
		Error        map[string]string `json:"error,omitempty"`
	}{Type: "done", Conversation: p.v.ID(), Turn: r.ID, Model: r.Model, Text: r.Text, Output: output, Usage: r.Usage}
	if err == nil {
		return p.cmd.out.Line(line)
	}
	e := cli.AsError(err)
	line.Error = map[string]string{"code": e.Code, "message": e.Message}
	if err := p.cmd.out.Line(line); err != nil {
		return fmt.Errorf("writing the result of the turn: %w", err)
	}
	return cli.Reported(e.Exit)
}
