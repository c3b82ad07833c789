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
		BashComplete: completeSession(),
		Action: shortAction(2, func(c *command) error {
			id, label := c.Args().Get(0), c.Args().Get(1)
			if c.NArg() < 2 {
				id, label = "", id
			}
			if label == "" {
				return cli.Usage("sessions rename: needs the new label")
			}
			id, err := c.findSession(id)
			if err != nil {
				return err
			}
			if err := c.gw.Rename(c.ctx, id, label); err != nil {
				return err
			}
			return c.printDone(id, "label is now "+cli.OneLine(label)+" of")
		}),
	}
}
