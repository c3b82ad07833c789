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
		Description: `The label is what people and scripts may name the session by, and what provider files
whose sessions are those of a label go by. A Copilot session keeps it on disk.

Examples:
  tapctl sessions rename review
  tapctl sessions rename 3f2a review`,
		BashComplete: completeSession(),
		Action: short(2, func(k *call) error {
			id, label := k.Args().Get(0), k.Args().Get(1)
			if k.NArg() < 2 {
				id, label = "", id
			}
			if label == "" {
				return cli.Usage("sessions rename: needs the label")
			}
			id, err := k.session(id)
			if err != nil {
				return err
			}
			if err := k.gw.Rename(k.ctx, id, label); err != nil {
				return err
			}
			return k.done(id, "label is now "+cli.OneLine(label)+" of")
		}),
	}
}
