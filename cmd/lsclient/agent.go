package main

import (
	"context"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent"
	"tapgw/internal/agent/consent"
	"tapgw/internal/agent/outputschema"
	"tapgw/internal/cli"
)

// Flags, consent, the conversation to resume, and the start and end of an agent, for all commands
// that run one.

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
		&ucli.BoolFlag{Name: "plan",
			Usage: "only read: the model gets no tool that edits, runs commands or reaches " +
				"the web, and is told to plan"},
		&ucli.IntFlag{Name: "max-rounds", Usage: "end a turn after `N` rounds of tool calls",
			DefaultText: "25"},
		&ucli.StringFlag{Name: "gateway",
			Usage: "`auto|on|off|URL`: be a session of a gateway if one runs, always (else " +
				"fail), never, " +
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
			&ucli.IntFlag{Name: "max-turns",
				Usage:       "end with exit code 1 after `N` answers of the model, in all turns",
				DefaultText: "no limit"},
			&ucli.StringFlag{Name: "output-schema",
				Usage: "the answer is JSON that matches the JSON Schema in `FILE`"},
			&ucli.IntFlag{Name: "schema-retries",
				Usage: "ask `N` times again for an answer that matches", Value: 2},
			plainFlag(),
		}, turnFlags(), resumeFlags()),
		BashComplete: completeResume,
		Action:       action(2, 0, runAgent),
	}
}

func plainFlag() ucli.Flag {
	return &ucli.BoolFlag{Name: "plain",
		Usage: "redraw nothing: plain text as it comes, for screen readers"}
}

// efforts are the reasoning efforts that some model takes.
var efforts = []string{"low", "medium", "high", "xhigh"}

// resumeFlags returns the flags of commands that can go on with a kept conversation.
func resumeFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "continue", Aliases: []string{"c"},
			Usage: "go on with the workspace's latest conversation"},
		&ucli.StringFlag{Name: "resume",
			Usage: "go on with the conversation `ID`, or the one whose id begins so"},
	}
}

// policyFlags returns the flags about calls that lsclient.toml does not allow.
func policyFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
			Usage: "allow each command, file and server that a tool asks for, " +
				"but no write to protected places (.git, .tapgw)"},
		&ucli.BoolFlag{Name: "ask",
			Usage: "ask on the terminal before each edit, and before what lsclient.toml " +
				"does not allow"},
	}
}

// policy returns the policy that --yes and --ask choose.
func (c *command) policy() (*consent.Policy, error) {
	if !c.Bool("ask") {
		return consent.New(c.workspace.Config, c.Bool("yes"), nil), nil
	}
	if c.Bool("yes") {
		return nil, cli.Usage("flags --yes and --ask exclude each other: use one of them")
	}
	asker, err := c.console.Asker()
	if err != nil {
		return nil,
			cli.Usage(
				"flag --ask: there is no terminal to ask on; use allow in lsclient.toml, or --yes")
	}
	return consent.New(c.workspace.Config, false, asker), nil
}

// turnOptions returns the options of an agent from the flags of a command that runs turns.
func (c *command) turnOptions() (o agent.Options, err error) {
	o = agent.Options{Workspace: c.workspace, Show: c.console.Show, Model: c.String("model"),
		MaxRounds: c.Int("max-rounds"), Label: c.String("label"), Elsewhere: c.IsSet("workdir")}
	if c.IsSet("max-rounds") && (o.MaxRounds < 1 || o.MaxRounds > 500) {
		return o, cli.Usage("flag --max-rounds: must be 1 to 500")
	}
	if c.IsSet("max-turns") && c.Int("max-turns") < 1 {
		return o, cli.Usage("flag --max-turns: must be 1 or more")
	}
	if o.Effort, err = cli.OneOf(c.Context, "effort", efforts...); err != nil {
		return o, err
	}
	o.Gateway, err = agent.ChooseGateway(c.workspace, c.String("gateway"), c.IsSet("gateway"))
	return o, err
}

// resumed returns the id of the conversation that --continue or --resume names; "" without them.
func (c *command) resumed() (string, error) {
	switch {
	case c.Bool("continue") && c.IsSet("resume"):
		return "", cli.Usage("flags --continue and --resume: give one of them")
	case c.Bool("continue"):
		return agent.LatestKept(c.workspace.Dir)
	case c.IsSet("resume"):
		return agent.FindKept(c.String("resume"))
	}
	return "", nil
}

// outputSchema returns the schema of --output-schema; nil without the flag.
func (c *command) outputSchema() (*outputschema.Schema, error) {
	switch n := c.Int("schema-retries"); {
	case !c.IsSet("output-schema") && c.IsSet("schema-retries"):
		return nil, cli.Usage("flag --schema-retries: needs --output-schema FILE")
	case !c.IsSet("output-schema"):
		return nil, nil
	case n < 0 || n > 10:
		return nil, cli.Usage("flag --schema-retries: must be 0 to 10")
	}
	schema, err := outputschema.Read(c.String("output-schema"))
	if err != nil {
		return nil, cli.Usage("flag --output-schema: %v", err)
	}
	return schema, nil
}

func runAgent(c *command) error {
	o, err := c.turnOptions()
	if err != nil {
		return err
	}
	schema, err := c.outputSchema()
	if err != nil {
		return err
	}
	prompt, err := c.console.ReadPrompt(c.ctx, "agent", c.Args().Slice())
	if err != nil {
		return err
	}
	defer c.console.OpenStatus(c.ctx, false)()
	c.console.Working("starting the language server")
	c.console.OutputOnly = schema != nil
	return c.withAgent(o, func(a *agent.Conversation) error {
		return a.Run(c.ctx, prompt, agent.RunOptions{MaxTurns: c.Int("max-turns"), Schema: schema,
			Retries: c.Int("schema-retries")})
	})
}

// withAgent starts an agent, calls run with its conversation, and ends the agent.
func (c *command) withAgent(o agent.Options, run func(*agent.Conversation) error) (err error) {
	if o.Policy, err = c.policy(); err != nil {
		return err
	}
	if o.Resume, err = c.resumed(); err != nil {
		return err
	}
	a, err := agent.Start(c.ctx, o)
	if err != nil {
		return err
	}
	defer a.Close(context.WithoutCancel(c.ctx))
	return c.console.Reported(run(a))
}
