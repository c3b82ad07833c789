package main

import (
	"context"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// turnFlags returns the flags of commands that run turns.
func turnFlags() []ucli.Flag {
	return slices.Concat([]ucli.Flag{
		&ucli.StringFlag{Name: "model", Aliases: []string{"m"},
			Usage: "`ID` of the model (default: the server's, see lsclient models)"},
		&ucli.IntFlag{Name: "max-rounds", Usage: "end a turn after `N` rounds of tool calls", DefaultText: "25"},
		&ucli.StringFlag{Name: "gateway",
			Usage: "`auto|on|off|URL`: be a session of a gateway if one runs, always (else fail), never, " +
				"or of the one at URL",
			DefaultText: "auto"},
		&ucli.StringFlag{Name: "label", Usage: "the session's `LABEL` in the gateway",
			DefaultText: "the workspace's name"},
	}, resumeFlags(), policyFlags())
}

func agentCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "agent",
		Usage:     "run an agent turn",
		ArgsUsage: "PROMPT|- [-]",
		Description: `A file or pipe on stdin goes to the model below PROMPT; without PROMPT, or with -, stdin is
the prompt. A pipe that says nothing for 3 s is left out; with "PROMPT -" lsclient waits for it.

The model's text goes to stdout as it comes, a line for each tool call to stderr. With
--json each event is a line, and the last one is {"type":"done",…}. Commands, paths
outside the workspace and MCP tools are refused unless lsclient.toml, --yes or you
(--ask) allow them. Ctrl-C ends the turn and the tool that runs in it.

If a gateway runs, the turn is a session there: the model has its providers' tools,
their gates apply, and each prompt that they inject gets a turn afterwards.

Examples:
  lsclient agent 'why does the build fail?' --ask
  lsclient agent --continue 'then fix it'
  git diff | lsclient agent 'review this'
  lsclient agent - --model gpt-4.1 <prompt.md
  lsclient agent -w ~/src/app --tools ./my-tools 'use my_tool' --json | jq -c .`,
		Flags:        turnFlags(),
		BashComplete: completeResume,
		Action:       action(2, 0, runAgent),
	}
}

// turnOptions reads the flags of a turn that override the configuration.
func (c *command) turnOptions() error {
	if c.IsSet("max-rounds") {
		if c.rounds = c.Int("max-rounds"); c.rounds < 1 || c.rounds > 500 {
			return cli.Usage("flag --max-rounds: must be 1 to 500")
		}
	}
	_, _, err := c.gatewayChoice()
	return err
}

func runAgent(c *command) error {
	if err := c.turnOptions(); err != nil {
		return err
	}
	prompt, err := c.readPrompt()
	if err != nil {
		return err
	}
	v, err := c.converse(c.ctx, langserver.Agent)
	if err != nil {
		return err
	}
	defer v.close(context.WithoutCancel(c.ctx))
	printer := &turnPrinter{cmd: c, v: v}
	err = v.turn(c.ctx, prompt, "", printer)
	for err == nil && v.session != nil { // prompts that providers have injected
		p, ok := v.session.waitPrompt(c.ctx)
		if !ok {
			break
		}
		printer.injected(p.Prompt)
		err = v.turn(c.ctx, p.Prompt, p.Source, printer)
	}
	return err
}
