package main

import (
	"strconv"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func modelsCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "models",
		Usage:       "list the models that sessions can use",
		Description: "Examples:\n  tapctl models\n  tapctl models --json | jq -r '.[].id'",
		Flags:       []ucli.Flag{&ucli.StringFlag{Name: "host", Usage: "`local|copilot`: of which kind of session", Value: "copilot"}},
		Action: short(0, func(k *call) error {
			host, err := cli.OneOf(k.Context, "host", "local", "copilot")
			if err != nil {
				return err
			}
			models, err := k.gw.Models(k.ctx, host)
			if err != nil {
				return err
			}
			if k.out.JSON {
				return k.out.Document(list(models))
			}
			t := &cli.Table{Columns: []string{"ID", "NAME", "MULTIPLIER"}}
			for _, m := range models {
				t.Row(m.ID, m.Name, strconv.FormatFloat(m.Multiplier, 'g', -1, 64))
			}
			return k.out.Table(t, "no models; is Copilot signed in? see: tapgw doctor")
		}),
	}
}
