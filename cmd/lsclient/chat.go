package main

import (
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/chat"
	"tapgw/internal/langserver"
)

func chatCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "chat",
		Usage: "talk with an agent, turn by turn",
		Description: `Alt-Enter begins a new line, Tab completes commands and @files, which go along with the
prompt. Ctrl-C ends the turn that runs, or clears the prompt. Ctrl-D, Ctrl-C twice,
/quit or exit ends the chat. /help lists the other commands and keys. With --plain,
ACCESSIBLE or TERM=dumb nothing is redrawn. Without a terminal each line of stdin is a
prompt.

If a gateway runs, the chat is a session there, and a prompt that a provider injects
gets a turn as soon as no other runs.

Examples:
  lsclient chat --ask
  lsclient chat --continue
  lsclient chat -w ~/src/app --model gpt-4.1
  printf 'read go.mod\nwhat is it for?\n' | lsclient chat`,
		Flags: slices.Concat([]ucli.Flag{
			&ucli.BoolFlag{Name: "no-tools", Usage: "only talk: the model gets no tools"},
			plainFlag(),
		}, turnFlags(), resumeFlags()),
		BashComplete: completeResume,
		Action:       action(0, 0, runChat),
	}
}

func runChat(c *command) error {
	o, err := c.turnOptions()
	if err != nil {
		return err
	}
	if o.Resume, err = c.resumed(); err != nil {
		return err
	}
	if c.Bool("no-tools") {
		o.Mode = langserver.Ask
	}
	c.console.More = "/diff shows all"
	return chat.Run(c.ctx, c.console, o, c.policy)
}
