package main

import (
	"strconv"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func usageCommand() *ucli.Command {
	return sessionResource.short(&ucli.Command{
		Name: "usage", Usage: "show what a session's models read, wrote and cost",
		Description: `Shows the tokens, the cost and the time of model calls, by turn, by model and in all, since
this gateway has the session. The cost is in premium requests: each call times its
model's multiplier. Calls to an endpoint of your own cost nothing here.

Examples:
  tapctl sessions usage
  tapctl sessions usage 3f2a --json | jq .total.inputTokens`,
	}, showUsage)
}

func showUsage(c *command, id string) error {
	u, err := c.gw.Usage(c.ctx, id)
	if err != nil {
		return err
	}
	u.Models, u.Turns = list(u.Models), list(u.Turns)
	if c.out.JSON {
		return c.out.Document(u)
	}
	if err := c.out.Table(usageTable(u), "no model was called"); err != nil {
		return err
	}
	if u.ContextLimit > 0 {
		c.out.Notef("the conversation takes %d of %d tokens of the model's context",
			u.ContextTokens, u.ContextLimit)
	}
	return nil
}

// usageTable has a line for each turn, a line for each model, and a total.
func usageTable(u adminapi.Usage) *cli.Table {
	t := &cli.Table{Columns: []string{
		"", "CALLS", "FAILED", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "REASONING", "COST",
		"TIME",
	}}
	row := func(name string, s adminapi.Sums) {
		cost := strconv.FormatFloat(s.Cost, 'f', -1, 64)
		t.Row(name, s.Calls, s.Failures, s.Input, s.Output, s.CacheRead, s.CacheWrite, s.Reasoning,
			cost, milliseconds(s.DurationMs))
	}
	if u.Total.Calls == 0 {
		return t
	}
	for _, turn := range u.Turns {
		row("turn "+strconv.Itoa(turn.Turn), turn.Sums)
	}
	for _, m := range u.Models {
		row(m.Model, m.Sums)
	}
	row("total", u.Total)
	return t
}
