package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent"
	"tapgw/internal/cli"
)

func orchestrateCommand() *ucli.Command {
	return &ucli.Command{
		Name: "orchestrate", Usage: "give a goal to several agents with roles",
		ArgsUsage: "GOAL|- [-]",
		Description: `The model first plans: which tasks, of which roles, after which others. Then a worker for each
task has a conversation of its own, as many at once as --workers says, all on one
language server. A worker gets the results of the tasks that its own depends on. At the
end the model's summary goes to stdout. What the workers do goes to stderr, or with
--json to stdout, an event a line with the worker's name.

Roles are tables [roles.NAME] of lsclient.toml; without any there are researcher, coder
and reviewer. If a worker fails, those that depend on it don't start, and the exit code
is 1. If a gateway runs, each worker is a session there, labelled with its name.

Examples:
  lsclient orchestrate 'find out why the tests are slow, and make them fast' --ask
  lsclient orchestrate --config roles.toml --workers 5 - <goal.md`,
		Flags: append([]ucli.Flag{
			&ucli.IntFlag{Name: "workers", Usage: "at most `N` workers at once",
				Value: defaultWorkers},
		}, turnFlags()...),
		Action: action(2, 0, runOrchestrate),
	}
}

// Limits of --workers.
const (
	defaultWorkers = 3
	maxWorkers     = 16
)

func runOrchestrate(c *command) error {
	o, err := c.turnOptions()
	if err != nil {
		return err
	}
	limit := c.Int("workers")
	if limit < 1 || limit > maxWorkers {
		return cli.Usage("flag --workers: must be 1 to %d", maxWorkers)
	}
	goal, err := c.console.ReadPrompt(c.ctx, "orchestrate", c.Args().Slice())
	if err != nil {
		return err
	}
	defer c.console.OpenStatus(c.ctx, true)()
	return c.withAgent(o, func(a *agent.Conversation) error {
		return a.Orchestrate(c.ctx, goal, limit)
	})
}
