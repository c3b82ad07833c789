package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
)

const effortUsage = "`low|medium|high|xhigh|max`: how hard the model thinks; tapctl models lists " +
	"what each knows"

func modelCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "model",
		Usage:     "change the model of a running session",
		ArgsUsage: "[ID] MODEL",
		Description: `The session uses the model from its next request on, and keeps its history. Without
--effort a GitHub model gets its own default; on an endpoint of your own the effort stays
as it is.

Examples:
  tapctl sessions model 3f2a gpt-5-mini
  tapctl sessions model gpt-5-mini --effort high`,
		Flags: []ucli.Flag{&ucli.StringFlag{Name: "effort", Usage: effortUsage}},
		BashComplete: completing(func(c *command, flag string) {
			if flag != "" || c.NArg() > 1 {
				return
			}
			if c.NArg() == 0 {
				c.suggestSessions()
			}
			c.suggestModels()
		}),
		Action: shortAction(2, func(c *command) error {
			id, model, err := c.sessionAnd("which model? give its id, see: tapctl models")
			if err != nil {
				return err
			}
			r := adminapi.ModelRequest{Model: model, Effort: c.String("effort")}
			if err := c.gw.SetModel(c.ctx, id, r); err != nil {
				return err
			}
			return c.doneTo(id, "model is now "+model+" in")
		}),
	}
}

func (c *command) suggestModels() {
	suggest(c, func(ctx context.Context) ([]adminapi.Model, error) { return c.gw.Models(ctx, "") },
		func(m adminapi.Model) (word, about string) { return m.ID, m.Name })
}
