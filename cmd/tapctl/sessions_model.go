package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

const effortUsage = "`low|medium|high|xhigh|max`: how hard the model thinks, as far as it knows them"

func modelCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "model",
		Usage:     "change the model of a session that runs",
		ArgsUsage: "[ID] MODEL",
		Description: `Counts from the session's next request on; its history stays. Without --effort one of
GitHub's models thinks as hard as it does by itself; on an endpoint of your own the
effort stays as it is.

Examples:
  tapctl sessions model 3f2a gpt-5-mini
  tapctl sessions model gpt-5-mini --effort high`,
		Flags: []ucli.Flag{&ucli.StringFlag{Name: "effort", Usage: effortUsage}},
		BashComplete: completing(func(k *call, flag string) {
			if flag != "" || k.NArg() > 1 {
				return
			}
			if k.NArg() == 0 {
				k.offerSessions()
			}
			k.offerModels()
		}),
		Action: short(2, func(k *call) error {
			id, model := k.Args().Get(0), k.Args().Get(1)
			if k.NArg() < 2 {
				id, model = "", id
			}
			if model == "" {
				return cli.Usage("which model? give its id, see: tapctl models")
			}
			id, err := k.session(id)
			if err != nil {
				return err
			}
			if err := k.gw.SetModel(k.ctx, id, model, k.String("effort")); err != nil {
				return err
			}
			return k.done(id, "model is now "+model+" in")
		}),
	}
}

func (k *call) offerModels() {
	models, err := k.gw.Models(k.ctx, "")
	if err != nil {
		return
	}
	for _, m := range models {
		cli.Candidate(k.Context, m.ID, m.Name)
	}
}
