package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func renameCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "rename",
		Usage:     "give a session another label",
		ArgsUsage: "[ID] LABEL",
		Description: `A label names the session in commands. Provider files can choose sessions by their label,
too. A Copilot session keeps its label on disk.

Examples:
  tapctl sessions rename review
  tapctl sessions rename 3f2a review`,
		BashComplete: completeArgument((*command).suggestSessions),
		Action: shortAction(2, func(c *command) error {
			id, label, err := c.sessionAnd("sessions rename: needs the new label")
			if err != nil {
				return err
			}
			if err := c.gw.Rename(c.ctx, id, label); err != nil {
				return err
			}
			return c.doneTo(id, "label is now "+cli.OneLine(label)+" of")
		}),
	}
}
