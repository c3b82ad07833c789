package main

import (
	"context"
	"fmt"
	"strings"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/tools"
)

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
		{"/mcp", "[start|stop|restart [SERVER]]", "list the MCP servers, or start and stop them", (*chat).mcp},
		{"/diff", "[TURN]", "show what the last turn, or the turns from TURN on, changed in files", (*chat).diff},
		{"/undo", "[TURN]", "undo the edits of the last turn, or of the turns from TURN on", (*chat).undo},
		{"/redo", "", "take the last undo back", (*chat).redo},
		{"/new", "", "begin a new conversation; the model forgets this one", (*chat).beginAnew},
		{"/clear", "", "clear the screen and begin a new conversation", (*chat).clear},
		{"/compact", "", "let the model sum the conversation up, to make room in its context", (*chat).compact},
		{"/resume", "[ID]", "list the workspace's conversations, or go on with one", (*chat).resume},
		{"/reasoning", "", "show the model's reasoning, or hide it again", (*chat).toggleReasoning},
		{"/help", "", "this list", (*chat).printHelp},
		{"/quit", "", "end the chat (also exit, Ctrl-D); Ctrl-C ends the turn that runs", (*chat).quit},
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
		c.cmd.out.Notef("there is no command %s; /help lists the commands", word)
		return true, nil
	}
	return false, nil
}

func (c *chat) quit(context.Context, string) error { return errLeave }

func (c *chat) printHelp(context.Context, string) error {
	var lines []string
	for _, command := range slashCommands() {
		lines = append(lines, fmt.Sprintf("%-12s %s", strings.TrimSpace(command.name+" "+command.arguments),
			command.help))
	}
	own, faults := c.cmd.ownCommands()
	for _, o := range own {
		lines = append(lines, fmt.Sprintf("%-12s %s", o.name, o.description))
	}
	for _, fault := range faults {
		lines = append(lines, "left out: "+cli.OneLine(fault.Error()))
	}
	c.cmd.out.Notef("%s\n\n%s", strings.Join(lines, "\n"), keysHelp)
	return nil
}

const keysHelp = `@PATH        the file goes along with the prompt: a text, or an image (png, jpeg, gif, webp)
Tab          completes commands and @PATH
Alt-Enter    begins a new line, like a \ at the end of a line
Up, Ctrl-R   earlier prompts; search in them`

func (c *chat) listModels(ctx context.Context, _ string) error {
	models, err := c.v.server.Models(ctx)
	if err != nil {
		return workspace.ExitError(err)
	}
	for _, m := range models {
		c.cmd.out.Notef("%s  %s", m.ID, m.Name)
	}
	return nil
}

func (c *chat) setModel(ctx context.Context, id string) error {
	if id == "" {
		c.cmd.out.Notef("%s", orDefault(c.cmd.model()))
		return nil
	}
	if err := c.v.SetModel(ctx, id); err != nil {
		return workspace.ExitError(err)
	}
	c.cmd.chosenModel = id
	c.cmd.out.Notef("the next turns use %s", id)
	return nil
}

func (c *chat) setEffort(ctx context.Context, effort string) error {
	if effort == "" {
		c.cmd.out.Notef("%s", orDefault(c.cmd.effort()))
		return nil
	}
	if err := c.v.SetEffort(ctx, effort); err != nil {
		return workspace.ExitError(err)
	}
	c.cmd.chosenEffort = effort
	c.cmd.out.Notef("the next turns use the effort %s", effort)
	return nil
}

func orDefault(chosen string) string {
	if chosen == "" {
		return "the server's default"
	}
	return chosen
}

func (c *chat) listTools(ctx context.Context, _ string) error {
	all, _ := c.cmd.workspace.Tools(ctx)
	for _, t := range all {
		if c.cmd.Bool("plan") && t.Kind != tools.Read {
			continue
		}
		c.cmd.out.Notef("%s  %s", t.Name, cli.Shorten(t.Description, 70))
	}
	return nil
}
