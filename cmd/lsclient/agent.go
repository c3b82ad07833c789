package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// turnFlags returns the flags of commands that run turns.
func turnFlags() []ucli.Flag {
	return append([]ucli.Flag{
		&ucli.StringFlag{Name: "model", Aliases: []string{"m"},
			Usage: "`ID` of the model (default: the server's, see lsclient models)"},
		&ucli.StringFlag{
			Name:        "effort",
			Usage:       "`low|medium|high|xhigh`: how much the model reasons, if it can be told",
			DefaultText: "the server's",
		},
		&ucli.BoolFlag{Name: "plan", Usage: "only read: the model gets no tool that edits, runs commands or reaches " +
			"the web, and is told to plan"},
		&ucli.IntFlag{Name: "max-rounds", Usage: "end a turn after `N` rounds of tool calls", DefaultText: "25"},
		&ucli.StringFlag{Name: "gateway",
			Usage: "`auto|on|off|URL`: be a session of a gateway if one runs, always (else fail), never, " +
				"or of the one at URL",
			DefaultText: "auto"},
		&ucli.StringFlag{Name: "label", Usage: "the session's `LABEL` in the gateway",
			DefaultText: "the workspace's name"},
	}, policyFlags()...)
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
(--ask) allow them. Ctrl-C ends the turn and the tool that runs in it. On a terminal
Markdown is rendered, and a line shows what runs; --plain, ACCESSIBLE or TERM=dumb
prevents both.

If a gateway runs, the turn is a session there: the model has its providers' tools,
their gates apply, and each prompt that they inject gets a turn afterwards.

Examples:
  lsclient agent 'why does the build fail?' --ask
  lsclient agent --continue 'then fix it'
  git diff | lsclient agent 'review this'
  lsclient agent - --model gpt-4.1 <prompt.md
  lsclient agent --output-schema risks.schema.json 'which files are risky, and why?'
  lsclient agent -w ~/src/app --tools ./my-tools 'use my_tool' --json | jq -c .`,
		Flags: slices.Concat([]ucli.Flag{
			&ucli.IntFlag{Name: "max-turns", Usage: "end with exit code 1 after `N` answers of the model, in all turns",
				DefaultText: "no limit"},
			&ucli.StringFlag{Name: "output-schema", Usage: "the answer is JSON that matches the JSON Schema in `FILE`"},
			&ucli.IntFlag{Name: "schema-retries", Usage: "ask `N` times again for an answer that matches", Value: 2},
			plainFlag(),
		}, turnFlags(), resumeFlags()),
		BashComplete: completeResume,
		Action:       action(2, 0, runAgent),
	}
}

func plainFlag() ucli.Flag {
	return &ucli.BoolFlag{Name: "plain", Usage: "redraw nothing: plain text as it comes, for screen readers"}
}

// efforts are the reasoning efforts that some model takes.
var efforts = []string{"low", "medium", "high", "xhigh"}

// maxRounds is how many rounds a turn may have.
func (c *command) maxRounds() int { return cmp.Or(c.rounds, c.workspace.Config().MaxRounds) }

// turnOptions reads the flags of a turn that override the configuration.
func (c *command) turnOptions() error {
	if c.IsSet("max-rounds") {
		if c.rounds = c.Int("max-rounds"); c.rounds < 1 || c.rounds > 500 {
			return cli.Usage("flag --max-rounds: must be 1 to 500")
		}
	}
	if c.IsSet("max-turns") && c.Int("max-turns") < 1 {
		return cli.Usage("flag --max-turns: must be 1 or more")
	}
	if _, err := cli.OneOf(c.Context, "effort", efforts...); err != nil {
		return err
	}
	_, _, err := c.gatewayChoice()
	return err
}

func runAgent(c *command) error {
	if err := c.turnOptions(); err != nil {
		return err
	}
	schema, err := c.outputSchema()
	if err != nil {
		return err
	}
	prompt, err := c.readPrompt()
	if err != nil {
		return err
	}
	defer c.openStatus()()
	c.working("starting the language server")
	v, err := c.converse(c.ctx, langserver.Agent)
	if err != nil {
		return err
	}
	defer v.close(context.WithoutCancel(c.ctx))
	r := &agentRun{v: v, printer: &turnPrinter{cmd: c, v: v, onlyOutput: schema != nil}, maxTurns: c.Int("max-turns")}
	if schema != nil {
		err = r.answer(c.ctx, schema, prompt, c.Int("schema-retries"))
	} else {
		err = r.printer.done(r.turn(c.ctx, prompt, ""))
	}
	for err == nil && v.session != nil { // prompts that providers have injected
		p, ok := v.session.waitPrompt(c.ctx)
		if !ok {
			break
		}
		r.printer.injected(p.Prompt)
		err = r.printer.done(r.turn(c.ctx, p.Prompt, p.Source))
	}
	return err
}

// agentRun is a run of the command agent. Its turns share the rounds of --max-turns.
type agentRun struct {
	v        *conversation
	printer  *turnPrinter
	maxTurns int // 0: no limit
	rounds   int // of all turns so far
}

// turn runs a turn within the rounds that are left.
func (r *agentRun) turn(ctx context.Context, prompt, source string) (langserver.Turn, error) {
	tooMany := &cli.Error{Exit: cli.ExitFailed, Code: "MAX_TURNS", Message: fmt.Sprintf(
		"the model has not finished after %s (--max-turns)", visible.Count(r.maxTurns, "round"))}
	if r.maxTurns > 0 {
		left := r.maxTurns - r.rounds
		if left < 1 {
			return langserver.Turn{}, tooMany
		}
		if err := r.v.server.SetMaxRounds(min(left, r.v.cmd.maxRounds())); err != nil {
			return langserver.Turn{}, err
		}
	}
	r.v.cmd.working("thinking")
	defer r.v.cmd.working("")
	result, err := r.v.runTurn(ctx, prompt, source, r.printer)
	r.rounds += result.Rounds
	failed, ok := errors.AsType[*langserver.TurnError](err)
	if ok && failed.Code == langserver.CodeTooManyRounds && r.rounds == r.maxTurns {
		err = tooMany
	}
	return result, err
}
