package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"tapgw/internal/agent"
	"tapgw/internal/agent/console"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/langserver"
	"tapgw/internal/terminal"
	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/builtin"
)

// The commands of a chat, such as /model.

// slashCommand is a line of a chat that is not a prompt, such as /model.
type slashCommand struct {
	name      string // with its slash
	arguments string // as help names them
	help      string
	run       func(c *chat, ctx context.Context, arguments string) error
}

// slashCommands lists the commands of a chat in the order of its help.
func slashCommands() []slashCommand {
	return []slashCommand{
		{"/model", "[ID]", "show or change the model", (*chat).setModel},
		{"/effort", "[LEVEL]", "show or change how much the model reasons", (*chat).setEffort},
		{"/models", "", "list the models", (*chat).listModels},
		{"/tools", "", "list the tools", (*chat).listTools},
		{"/mcp", "[start|stop|restart [SERVER]]", "list the MCP servers, or start and stop them",
			(*chat).mcp},
		{"/diff", "[TURN]", "show what the last turn, or the turns from TURN on, changed in files",
			(*chat).diff},
		{"/undo", "[TURN]", "undo the edits of the last turn, or of the turns from TURN on",
			(*chat).undo},
		{"/redo", "", "take the last undo back", (*chat).redo},
		{"/new", "", "begin a new conversation; the model forgets this one", (*chat).beginAnew},
		{"/clear", "", "clear the screen and begin a new conversation", (*chat).clear},
		{"/compact", "", "let the model sum the conversation up, to make room in its context",
			(*chat).compact},
		{"/resume", "[ID]", "list the workspace's conversations, or go on with one",
			(*chat).resume},
		{"/reasoning", "", "show the model's reasoning, or hide it again", (*chat).toggleReasoning},
		{"/help", "", "this list", (*chat).printHelp},
		{"/quit", "", "end the chat (also exit, Ctrl-D); Ctrl-C ends the turn that runs",
			(*chat).quit},
	}
}

// command runs a line that is a command. done is false if the line is a prompt.
func (c *chat) command(ctx context.Context, line string) (done bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "/exit", "exit", "quit":
		if rest != "" {
			return false, nil
		}
		word = "/quit"
	}
	for _, command := range slashCommands() {
		if command.name == word {
			return true, command.run(c, ctx, rest)
		}
	}
	if strings.HasPrefix(word, "/") {
		if done, err := c.runOwn(ctx, word, rest); done {
			return true, err
		}
	}
	if strings.HasPrefix(word, "/") && !strings.Contains(word[1:], "/") {
		c.console.Out.Notef("there is no command %s; /help lists the commands", word)
		return true, nil
	}
	return false, nil
}

func (c *chat) quit(context.Context, string) error { return errLeave }

func (c *chat) printHelp(context.Context, string) error {
	var lines []string
	for _, command := range slashCommands() {
		lines = append(lines,
			fmt.Sprintf("%-12s %s", strings.TrimSpace(command.name+" "+command.arguments),
				command.help))
	}
	own, faults := c.ownCommands()
	for _, o := range own {
		lines = append(lines, fmt.Sprintf("%-12s %s", o.name, o.description))
	}
	for _, fault := range faults {
		lines = append(lines, "left out: "+cli.OneLine(fault.Error()))
	}
	c.console.Out.Notef("%s\n\n%s", strings.Join(lines, "\n"), keysHelp)
	return nil
}

const keysHelp = `@PATH        the file goes along with the prompt: a text, or an image (png, jpeg, gif, webp)
Tab          completes commands and @PATH
Alt-Enter    begins a new line, like a \ at the end of a line
Up, Ctrl-R   earlier prompts; search in them`

func (c *chat) listModels(ctx context.Context, _ string) error {
	models, err := c.agent.Server.Models(ctx)
	if err != nil {
		return workspace.ExitError(err)
	}
	for _, m := range models {
		c.console.Out.Notef("%s  %s", m.ID, m.Name)
	}
	return nil
}

func (c *chat) setModel(ctx context.Context, id string) error {
	if id == "" {
		c.console.Out.Notef("%s", orDefault(c.agent.Model()))
		return nil
	}
	if err := c.agent.SetModel(ctx, id); err != nil {
		return err
	}
	c.console.Out.Notef("the next turns use %s", id)
	return nil
}

func (c *chat) setEffort(ctx context.Context, effort string) error {
	if effort == "" {
		c.console.Out.Notef("%s", orDefault(c.agent.Effort))
		return nil
	}
	if err := c.agent.SetEffort(ctx, effort); err != nil {
		return err
	}
	c.console.Out.Notef("the next turns use the effort %s", effort)
	return nil
}

func orDefault(chosen string) string {
	if chosen == "" {
		return "the server's default"
	}
	return chosen
}

func (c *chat) listTools(ctx context.Context, _ string) error {
	all, _ := c.workspace.Tools(ctx)
	for _, t := range all {
		if !c.workspace.Plan || t.Kind == tools.Read {
			c.console.Out.Notef("%s  %s", t.Name, cli.Shorten(t.Description, 70))
		}
	}
	return nil
}

// toggleReasoning is /reasoning.
func (c *chat) toggleReasoning(context.Context, string) error {
	if c.console.ToggleReasoning() {
		c.console.Out.Notef("the model's reasoning is shown")
	} else {
		c.console.Out.Notef("the model's reasoning is hidden")
	}
	return nil
}

// compact is /compact.
func (c *chat) compact(ctx context.Context, _ string) error {
	c.console.Working("compacting the conversation")
	defer c.console.Working("")
	return c.interruptible(ctx, func(ctx context.Context) error {
		after, turns, err := c.agent.Compact(ctx)
		if err != nil {
			return workspace.ExitError(err)
		}
		c.console.Out.Notef("%s became a summary; the context has %s tokens now",
			visible.Count(turns, "turn"), console.Tokens(after.Used))
		return nil
	})
}

// clear is /clear.
func (c *chat) clear(ctx context.Context, arguments string) error {
	c.console.Clear()
	return c.beginAnew(ctx, arguments)
}

// mcp runs the line /mcp [start|stop|restart [SERVER]] of a chat.
func (c *chat) mcp(ctx context.Context, arguments string) error {
	action, name, _ := strings.Cut(arguments, " ")
	actions := []langserver.MCPAction{"", langserver.MCPStart, langserver.MCPStop,
		langserver.MCPRestart}
	if !slices.Contains(actions, langserver.MCPAction(action)) {
		return cli.Usage(
			"/mcp %s: use /mcp, or /mcp start, stop or restart, and a server's name or none",
			action)
	}
	names, err := c.workspace.MCPNames(strings.TrimSpace(name))
	if err != nil {
		return err
	}
	return c.interruptible(ctx, func(ctx context.Context) error {
		var states []langserver.MCPState
		var err error
		if action == "" {
			states, err = c.agent.Server.MCPServers(ctx)
		} else {
			states, err = c.workspace.ChangeMCP(ctx, c.agent.Server, names,
				langserver.MCPAction(action))
		}
		if err != nil {
			return workspace.ExitError(err)
		}
		if len(names) == 0 {
			c.console.Out.Notef(workspace.NoMCPServers)
		}
		for _, name := range names {
			s := workspace.MCPState(states, name)
			line := s.Name + "  " + s.Status
			if workspace.IsRunning(s) {
				line += ", " + visible.Count(len(s.Tools), "tool")
			}
			if s.Error != "" {
				line += ": " + cli.OneLine(s.Error)
			}
			c.console.Out.Notef("%s", line)
		}
		return nil
	})
}

// turnArgument reads the number of a turn behind a command of a chat; 0 means the last one.
func turnArgument(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, cli.Usage("%q is no turn: give its number, from 1", text)
	}
	return n, nil
}

// undo is /undo.
func (c *chat) undo(ctx context.Context, argument string) error {
	from, err := turnArgument(argument)
	if err != nil {
		return err
	}
	out, err := c.agent.Undo(ctx, from)
	return c.undone(out, err, "undone")
}

// redo is /redo.
func (c *chat) redo(ctx context.Context, _ string) error {
	out, err := c.agent.Redo(ctx)
	return c.undone(out, err, "redone")
}

// undone shows the result of an undo or redo.
func (c *chat) undone(out checkpoint.Outcome, err error, verb string) error {
	if errors.Is(err, checkpoint.ErrNothing) {
		c.console.Out.Notef("no edit of this conversation can be %s", verb)
		return nil
	}
	if err != nil {
		return err
	}
	for _, line := range console.UndoLines(out) {
		c.console.Out.Notef("%s", line)
	}
	c.console.NoteUndo(out)
	return nil
}

// diff implements /diff. It shows the changes of the last turn with edits, or of the turns from a
// number on, against the present files.
func (c *chat) diff(_ context.Context, argument string) error {
	from, err := turnArgument(argument)
	if err != nil {
		return err
	}
	diffs, err := c.agent.EditsSince(from)
	if errors.Is(err, checkpoint.ErrNothing) {
		c.console.Out.Notef("this conversation has edited no file")
		return nil
	}
	for i := range diffs {
		c.console.PrintDiff(&diffs[i])
	}
	return err
}

// A resumed chat shows so much of its last turns.
const (
	shownPrompt = 200
	shownAnswer = 400
)

// showEarlier shows how a resumed conversation ended, on stderr.
func (c *chat) showEarlier() {
	last, before := c.agent.Earlier()
	if before > 0 {
		c.console.Out.Notef("(%d earlier turns)", before)
	}
	for _, t := range last {
		c.console.Out.Notef("> %s", cli.Shorten(cli.Clean(t.Prompt), shownPrompt))
		answer := cli.OneLine(t.Text())
		if t.Outcome != conversations.Completed {
			answer += " (" + string(t.Outcome) + ")"
		}
		c.console.Out.Notef("%s", c.console.Paint(cli.Dim, cli.Shorten(answer, shownAnswer)))
	}
}

// beginAnew is /new.
func (c *chat) beginAnew(ctx context.Context, _ string) error {
	if err := c.agent.StartOver(ctx); err != nil {
		return err
	}
	c.console.Out.Notef("a new conversation")
	return nil
}

// resume implements /resume: it goes on with another conversation, or lists the conversations of
// the workspace.
func (c *chat) resume(ctx context.Context, word string) error {
	if word == "" {
		list, err := agent.ListKept(c.workspace.Note)
		for _, i := range list {
			if i.Workspace == c.workspace.Dir {
				c.console.Out.Notef("%s  %s  %s", i.ShortID(), console.Clock(i.UpdatedAt),
					cli.Shorten(i.Title, 60))
			}
		}
		return err
	}
	if err := c.agent.Resume(ctx, word); err != nil {
		return err
	}
	c.showEarlier()
	return nil
}

// maxCandidates is how many files are offered for a word.
const maxCandidates = 50

// candidates returns the ways to complete a word of a prompt: a command, or @ and the path of a
// file.
func (c *chat) candidates(word string) (found []terminal.Candidate) {
	if part, ok := strings.CutPrefix(word, "@"); ok {
		return c.fileCandidates(strings.TrimPrefix(part, `"`))
	}
	for _, command := range slashCommands() {
		if strings.HasPrefix(command.name, word) {
			found = append(found, terminal.Candidate{Text: command.name, Help: command.help})
		}
	}
	own, _ := c.ownCommands()
	for _, o := range own {
		if strings.HasPrefix(o.name, word) {
			found = append(found,
				terminal.Candidate{Text: o.name, Help: visible.Line(o.description)})
		}
	}
	return found
}

// fileCandidates returns the workspace's files with part in their path. Files whose name begins
// with it come first.
func (c *chat) fileCandidates(part string) (found []terminal.Candidate) {
	files, err := builtin.WorkspaceFiles(context.Background(), c.workspace.Env())
	if err != nil {
		return nil
	}
	part = strings.ToLower(part)
	rank := func(file string) int {
		lower := strings.ToLower(file)
		switch {
		case strings.HasPrefix(lower, part):
			return 0
		case strings.HasPrefix(path.Base(lower), part):
			return 1
		case strings.Contains(lower, part):
			return 2
		}
		return -1
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		return rank(f) < 0 || visible.Line(f) != f || strings.Contains(f, `"`)
	})
	slices.SortStableFunc(files, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	for _, f := range files[:min(len(files), maxCandidates)] {
		text := "@" + f
		if strings.ContainsAny(f, " \t") {
			text = `@"` + f + `"`
		}
		found = append(found, terminal.Candidate{Text: text})
	}
	return found
}
