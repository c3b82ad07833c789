package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func providersCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "providers",
		Usage:       "list connected providers, or stop one",
		Description: "Examples:\n  tapctl providers\n  tapctl providers stop hello",
		Action:      short(0, listProviders),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list connected providers",
				Description: "Examples:\n  tapctl providers list --json",
				Action:      short(0, listProviders),
			},
			{
				Name: "stop", Usage: "close the connections of a provider", ArgsUsage: "NAME",
				Description: "Examples:\n  tapctl providers stop hello",
				BashComplete: completing(func(k *call, flag string) {
					if providers, err := k.gw.Providers(k.ctx); err == nil && flag == "" && k.NArg() == 0 {
						for _, p := range providers {
							cli.Candidate(k.Context, p.Name, p.State)
						}
					}
				}),
				Action: short(1, stopProvider),
			},
		},
	}
}

func listProviders(k *call) error {
	providers, err := k.gw.Providers(k.ctx)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(list(providers))
	}
	return k.out.Table(providersTable(providers), "no providers; they connect to "+k.gw.URL())
}

func providersTable(providers []client.Provider) *cli.Table {
	t := &cli.Table{Columns: []string{"ID", "NAME", "INSTANCE", "TRUST", "STATE", "SESSION", "TOOLS", "IN FLIGHT", "CONNECTED"}, Ink: stateInk(4)}
	for _, p := range providers {
		t.Row(p.ID, p.Name, p.Instance, p.Trust, p.State, p.Session, p.Tools, p.InFlight, ago(p.ConnectedAt))
	}
	return t
}

func stopProvider(k *call) error {
	name := k.Args().First()
	if name == "" {
		return cli.Usage("providers stop: needs the name of a provider (see tapctl providers)")
	}
	n, err := k.gw.StopProvider(k.ctx, name)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(map[string]int{"stopped": n})
	}
	k.out.Notef("closed %d connections of %s", n, name)
	return nil
}
