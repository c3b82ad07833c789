package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/agent"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/langserver"
	md "tapgw/internal/markdown"
)

// The events of an agent as a person or a program sees them.

// eventLine is an event as --json prints it.
type eventLine struct {
	Type     string          `json:"type"`
	Worker   string          `json:"worker,omitempty"`
	Round    int             `json:"round,omitempty"`
	Delta    string          `json:"delta,omitempty"`
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	State    string          `json:"state,omitempty"`
	Task     string          `json:"task,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Result   string          `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Diff     string          `json:"diff,omitempty"`
	Severity string          `json:"severity,omitempty"`
	Message  string          `json:"message,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	Fault    string          `json:"fault,omitempty"`
}

// Show shows an event. It may be called from several goroutines. While a question waits for its
// answer, most events wait too.
func (c *Console) Show(e agent.Event) {
	switch e := e.(type) {
	case agent.Working:
		c.Working(e.What)
	case agent.ToolOutput:
		if c.display != nil {
			c.display.Live(e.Line)
		}
	case agent.GatewayLog:
		c.Out.Report(map[string]any{"type": "log", "level": e.Level, "message": e.Message},
			"[%s] %s", e.Level, cli.Clean(e.Message))
	case agent.NotUndoable:
		message := "this edit can't be undone: " + e.Reason
		c.Out.Report(map[string]any{"type": "notice", "severity": "warning", "message": message},
			"lsclient: %s", message)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if line := c.draw(e); line != nil && c.Out.JSON {
			_ = c.Out.Line(line)
		}
	}
}

// draw shows an event to a person, and returns it as --json prints it; nil if it does not print it.
func (c *Console) draw(e agent.Event) (line any) {
	switch e := e.(type) {
	case agent.Progress:
		return c.progress(e)
	case agent.Injected:
		c.note(e.Worker, "» %s", cli.Shorten(cli.Clean(e.Prompt), 100))
		return eventLine{Type: "prompt", Prompt: e.Prompt}
	case agent.Rejected:
		c.note("", "the model is asked again: %s", cli.OneLine(e.Fault.Error()))
		return eventLine{Type: "retry", Fault: e.Fault.Error()}
	case agent.TurnEnded:
		return c.turnEnded(e)
	case agent.Planned:
		return c.planned(e)
	case agent.WorkerBegan:
		c.note(e.Worker, "begins: %s", cli.Shorten(cli.Clean(e.Task), 100))
		return eventLine{Type: "worker", Worker: e.Worker, State: "running", Task: e.Task}
	case agent.WorkerEnded:
		if e.Err != nil {
			message := cli.AsError(e.Err).Message
			c.note(e.Worker, "%s %s", c.Paint(cli.Red, "failed:"), cli.OneLine(message))
			return eventLine{Type: "worker", Worker: e.Worker, State: "error", Result: e.Answer,
				Error: message}
		}
		c.note(e.Worker, "%s %s", c.Paint(cli.Green, "done:"),
			cli.Shorten(cli.Clean(cmp.Or(e.Answer, "-")), 100))
		return eventLine{Type: "worker", Worker: e.Worker, State: "completed", Result: e.Answer}
	}
	return nil
}

// progress shows an event of the server.
func (c *Console) progress(p agent.Progress) any {
	switch e := p.Event.(type) {
	case langserver.Text:
		if p.Worker == "" {
			c.printText(e.Delta)
		}
		return eventLine{Type: "text", Worker: p.Worker, Round: e.Round, Delta: e.Delta}
	case langserver.Reasoning:
		c.printReasoning(e.Delta)
		return eventLine{Type: "reasoning", Worker: p.Worker, Round: e.Round, Delta: e.Delta}
	case langserver.Window:
		if p.Worker == "" {
			c.window = e
		}
	case langserver.ToolCall:
		line := eventLine{Type: "tool", Worker: p.Worker, Round: e.Round, ID: e.ID, Name: e.Name,
			State: string(e.State), Result: e.Result, Error: e.Error, Diff: diffText(p.Diffs)}
		if e.State == langserver.Running {
			line.Input = e.Input
		}
		c.tool(p.Worker, e)
		if !p.Seen {
			c.printDiffs(p.Diffs)
		}
		return line
	case langserver.Notice:
		c.note(p.Worker, "%s: %s", e.Severity, cli.Clean(e.Message))
		return eventLine{Type: "notice", Worker: p.Worker, Severity: e.Severity, Message: e.Message}
	}
	return nil
}

// note prints a line on stderr, after the name of the worker that the line is about.
func (c *Console) note(worker, format string, args ...any) {
	c.endLine()
	if worker != "" {
		format, args = "[%s] "+format, append([]any{worker}, args...)
	}
	c.Out.Notef(format, args...)
}

// printText prints a piece of the model's text. On a terminal it prints finished blocks at once,
// and the rest when it is finished.
func (c *Console) printText(delta string) {
	if c.Out.JSON || c.OutputOnly || delta == "" {
		return
	}
	c.endReasoning()
	delta = cli.Clean(delta)
	if !c.rendersMarkdown() {
		_ = c.Out.Printf("%s", delta)
		c.inLine = !strings.HasSuffix(delta, "\n")
		return
	}
	c.display.Working("writing")
	c.text.Renderer = md.Renderer{Width: c.display.Width(), Color: cli.Color(c.Stderr)}
	if done := c.text.Add(delta); done != "" {
		c.display.Print(done)
	}
	c.display.Coming(c.text.Coming())
}

// rendersMarkdown reports whether the model's text goes to the terminal.
func (c *Console) rendersMarkdown() bool { return c.display != nil && c.Out.Terminal }

// endLine ends the model's text or reasoning, so that other output can follow.
func (c *Console) endLine() {
	c.endReasoning()
	c.endMarkdown()
	if c.inLine {
		c.inLine = false
		_ = c.Out.Printf("\n")
	}
}

// endMarkdown shows the rest of the model's text.
func (c *Console) endMarkdown() {
	if !c.rendersMarkdown() {
		return
	}
	if rest := c.text.End(); rest != "" {
		c.display.Print(rest)
	}
	c.display.Coming("")
}

// printReasoning notes that the model reasons, and shows its reasoning if the person wants to see
// it.
func (c *Console) printReasoning(delta string) {
	if c.display == nil {
		return
	}
	if c.thinkingSince.IsZero() {
		c.endMarkdown()
		c.thinkingSince = time.Now()
		c.display.Working("thinking")
	}
	if !c.showsReasoning() {
		return
	}
	c.thought += cli.Clean(delta)
	for {
		line, rest, ok := strings.Cut(c.thought, "\n")
		if !ok {
			return
		}
		c.Out.Notef("%s", c.Paint(cli.Dim, line))
		c.thought = rest
	}
}

// endReasoning says in one line how long the model has reasoned.
func (c *Console) endReasoning() {
	if c.thinkingSince.IsZero() {
		return
	}
	line := fmt.Sprintf("thought for %d s", int(time.Since(c.thinkingSince).Seconds()))
	if c.thought != "" {
		line = c.thought + "\n" + line
	}
	c.thinkingSince, c.thought = time.Time{}, ""
	c.Out.Notef("%s", c.Paint(cli.Dim, line))
}

// tool shows a new state of a tool call.
func (c *Console) tool(worker string, e langserver.ToolCall) {
	if c.display != nil {
		c.display.Live("")
		if e.State == langserver.Running {
			c.display.Working(e.Name)
		} else {
			c.display.Working("thinking")
		}
	}
	if e.Name == todoTool && e.State != langserver.Failed {
		if list := todoList(e.Input); list != "" && e.State == langserver.Completed {
			c.note(worker, "%s", list)
		}
		return
	}
	switch e.State {
	case langserver.Running:
		c.note(worker, "%s %s", c.Paint(cli.Blue, "• "+e.Name),
			c.Paint(cli.Dim, cli.Shorten(cli.Clean(string(e.Input)), 100)))
	case langserver.Completed:
		if c.Out.Verbose {
			c.note(worker, "%s %s", c.Paint(cli.Green, "✓ "+e.Name),
				c.Paint(cli.Dim, cli.Shorten(cli.Clean(e.Result), 100)))
		}
	case langserver.Failed:
		c.note(worker, "%s %s", c.Paint(cli.Red, "✗ "+e.Name), cli.Shorten(cli.Clean(e.Error), 200))
	case langserver.Cancelled:
		c.note(worker, "%s", c.Paint(cli.Yellow, "– "+e.Name+" cancelled"))
	}
}

// printDiffs prints the changes of a call.
func (c *Console) printDiffs(diffs []diff.Diff) {
	if c.Out.JSON || len(diffs) == 0 {
		return
	}
	c.endLine()
	for i := range diffs {
		c.view().print(c.Out.Err, &diffs[i])
	}
}

// todoTool is the tool of the server with which the model keeps its list of open tasks.
const todoTool = "manage_todo_list"

// todoList returns the model's list of open tasks, for people; "" if the call does not change it.
func todoList(input json.RawMessage) string {
	var call struct {
		Operation string
		TodoList  []struct{ Title, Status string }
	}
	if json.Unmarshal(input, &call) != nil || call.Operation != "write" {
		return ""
	}
	marks := map[string]string{"completed": "☑", "in-progress": "▶"}
	var lines []string
	for _, item := range call.TodoList[:min(len(call.TodoList), 50)] {
		lines = append(lines,
			"  "+cmp.Or(marks[item.Status], "☐")+" "+cli.Shorten(cli.OneLine(item.Title), 100))
	}
	return strings.Join(lines, "\n")
}

// turnEnded shows how a turn ended.
func (c *Console) turnEnded(e agent.TurnEnded) any {
	c.endLine()
	c.summary(e.Turn)
	if e.Output != nil && !c.Out.JSON {
		_ = c.Out.Document(e.Output)
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
	}{"done", e.Conversation, e.Turn.ID, e.Turn.Model, e.Turn.Text, e.Output, e.Turn.Usage, nil}
	if e.Err != nil {
		err := cli.AsError(e.Err)
		line.Error = map[string]string{"code": err.Code, "message": err.Message}
	}
	return line
}

// summary returns the time and tokens of a turn, in one line.
func (c *Console) summary(r langserver.Turn) {
	if c.display == nil || r.Usage == (langserver.Usage{}) {
		return
	}
	cached := ""
	if r.Usage.Cached > 0 {
		cached = " (" + Tokens(r.Usage.Cached) + " cached)"
	}
	parts := []string{Tokens(r.Usage.Prompt) + " tokens in" + cached + ", " +
		Tokens(r.Usage.Completion) + " out"}
	if w := c.window; w.Limit > 0 {
		parts = append(parts, fmt.Sprintf("context %d %% of %s", 100*w.Used/w.Limit,
			Tokens(w.Limit)))
	}
	if r.Multiplier > 0 {
		parts = append(parts, fmt.Sprintf("%g premium requests", r.Multiplier))
	}
	c.Out.Notef("%s", c.Paint(cli.Dim, strings.Join(parts, " · ")))
}

// Tokens is a number of tokens as people read it: 950, 1.2k, 64k.
func Tokens(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 10_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	}
	return fmt.Sprintf("%dk", n/1000)
}

// planned shows the tasks of an orchestration.
func (c *Console) planned(e agent.Planned) any {
	const worker = "plan"
	if e.Fault != nil {
		c.note(worker, "the plan can't be used (%v), so one worker does it all", e.Fault)
	}
	type task struct {
		Worker string   `json:"worker"`
		Role   string   `json:"role"`
		Task   string   `json:"task"`
		After  []string `json:"dependsOn"`
	}
	tasks := make([]task, len(e.Tasks))
	for i, t := range e.Tasks {
		tasks[i] = task{t.Name, t.Role, t.Text, []string{}}
		after := ""
		for _, n := range t.After {
			tasks[i].After = append(tasks[i].After, e.Tasks[n].Name)
			after = " (after " + strings.Join(tasks[i].After, ", ") + ")"
		}
		c.note(worker, "%s: %s%s", t.Name, cli.Shorten(cli.Clean(t.Text), 100), after)
	}
	return struct {
		Type  string `json:"type"`
		Tasks []task `json:"tasks"`
	}{"plan", tasks}
}
