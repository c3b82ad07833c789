package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	md "tapgw/internal/markdown"
	"tapgw/internal/terminal"
)

// display is what shows a person that something runs, and the model's Markdown: the terminal of a chat, or a status
// line.
type display interface {
	Print(text string)
	Working(what string)
	Coming(text string)
	Live(line string)
	Width() int
}

// openStatus gives a command a status line, if a person sees its stderr. The caller ends it with the function that it
// gets. It is gone after Ctrl-C too, because a second one ends the program.
func (c *command) openStatus() (end func()) {
	if c.out.JSON || c.isPlain() || !cli.Foreground(c.App.ErrWriter) {
		return func() {}
	}
	c.status = terminal.NewStatus(c.App.ErrWriter, c.App.Writer, cli.Color(c.App.ErrWriter))
	c.display = c.status
	c.out.Err = c.status.Writer(c.App.ErrWriter)
	if c.out.Terminal {
		c.out.W = c.status.Writer(c.App.Writer)
	}
	stop := context.AfterFunc(c.ctx, c.status.Close)
	return func() {
		stop()
		c.status.Close()
	}
}

// liveTurn is what a terminal shows of a turn besides its lines.
type liveTurn struct {
	text          md.Stream
	thinkingSince time.Time // zero: the model does not reason now
	thought       string    // the line of reasoning that is not complete yet
	window        langserver.Window
}

// working shows what runs now, with the time; "": nothing. Without a terminal of its own the command shows nothing.
func (c *command) working(what string) {
	if c.display != nil {
		c.display.Working(what)
	}
}

// rendersMarkdown reports whether the model's text goes to the command's terminal.
func (c *command) rendersMarkdown() bool { return c.display != nil && c.out.Terminal }

// render shows a piece of the model's text: the blocks that are complete for good, the rest until it is.
func (p *turnPrinter) render(delta string) {
	s := p.cmd.display
	s.Working("writing")
	p.live.text.Renderer = md.Renderer{Width: s.Width(), Color: cli.Color(p.cmd.App.ErrWriter)}
	if done := p.live.text.Add(delta); done != "" {
		s.Print(done)
	}
	s.Coming(p.live.text.Coming())
}

// endMarkdown shows the rest of the model's text.
func (p *turnPrinter) endMarkdown() {
	if !p.cmd.rendersMarkdown() {
		return
	}
	if rest := p.live.text.End(); rest != "" {
		p.cmd.display.Print(rest)
	}
	p.cmd.display.Coming("")
}

// reasoning notes that the model reasons, and shows how where the person wants to see it.
func (p *turnPrinter) reasoning(delta string) {
	if p.cmd.display == nil {
		return
	}
	if p.live.thinkingSince.IsZero() {
		p.endMarkdown()
		p.live.thinkingSince = time.Now()
		p.cmd.display.Working("thinking")
	}
	if !p.cmd.showsReasoning() {
		return
	}
	p.live.thought += cli.Clean(delta)
	for {
		line, rest, ok := strings.Cut(p.live.thought, "\n")
		if !ok {
			return
		}
		p.cmd.out.Notef("%s", cli.Dim.On(p.cmd.App.ErrWriter, line))
		p.live.thought = rest
	}
}

// showsReasoning reports whether the person wants to see the model's reasoning.
func (c *command) showsReasoning() bool { return c.out.Verbose != c.reasoning }

// endReasoning says in one line how long the model has reasoned.
func (p *turnPrinter) endReasoning() {
	if p.live.thinkingSince.IsZero() {
		return
	}
	line := fmt.Sprintf("thought for %d s", int(time.Since(p.live.thinkingSince).Seconds()))
	if p.live.thought != "" {
		line = p.live.thought + "\n" + line
	}
	p.live.thinkingSince, p.live.thought = time.Time{}, ""
	p.cmd.out.Notef("%s", cli.Dim.On(p.cmd.App.ErrWriter, line))
}

// showTool shows which tool runs.
func (p *turnPrinter) showTool(e langserver.ToolCall) {
	s := p.cmd.display
	if s == nil {
		return
	}
	s.Live("")
	if e.State == langserver.Running {
		s.Working(e.Name)
	} else {
		s.Working("thinking")
	}
}

// todoTool is the tool of the server with which the model keeps its list of what is to do.
const todoTool = "manage_todo_list"

// todoList returns the model's list of what is to do, for people; "" if the call does not change it.
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
		lines = append(lines, "  "+cmp.Or(marks[item.Status], "☐")+" "+cli.Shorten(cli.OneLine(item.Title), 100))
	}
	return strings.Join(lines, "\n")
}

// summary says in one line what a turn took.
func (p *turnPrinter) summary(r langserver.Turn) {
	if p.cmd.display == nil || r.Usage == (langserver.Usage{}) {
		return
	}
	parts := []string{tokens(r.Usage.Prompt) + " tokens in, " + tokens(r.Usage.Completion) + " out"}
	if r.Usage.Cached > 0 {
		parts[0] = tokens(r.Usage.Prompt) + " tokens in (" + tokens(r.Usage.Cached) + " cached), " +
			tokens(r.Usage.Completion) + " out"
	}
	if w := p.live.window; w.Limit > 0 {
		parts = append(parts, fmt.Sprintf("context %d %% of %s", 100*w.Used/w.Limit, tokens(w.Limit)))
	}
	if r.Multiplier > 0 {
		parts = append(parts, fmt.Sprintf("%g premium requests", r.Multiplier))
	}
	p.cmd.out.Notef("%s", cli.Dim.On(p.cmd.App.ErrWriter, strings.Join(parts, " · ")))
}

// tokens is a number of tokens as people read it: 950, 1.2k, 64k.
func tokens(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 10_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	}
	return fmt.Sprintf("%dk", n/1000)
}
