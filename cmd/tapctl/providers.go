package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func providersCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "providers",
		Usage:       "list connected providers; stop, start and read those that files name",
		Description: "Examples:\n  tapctl providers\n  tapctl providers restart hello\n  tapctl providers log hello",
		Action:      short(0, listProviders),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list connected providers",
				Description: "Examples:\n  tapctl providers list --json",
				Action:      short(0, listProviders),
			},
			{
				Name: "stop", Usage: "stop what runs of a provider, or close its connections", ArgsUsage: "NAME",
				Description: `A provider that a file names stays stopped until it is started, or the gateway is.
Of another the connections are closed, and it may come back. NAME is the file's, or
what its program calls itself where no other file's program does.

Examples:
  tapctl providers stop hello`,
				BashComplete: providerNames(),
				Action: short(1, steerProvider("stopped", func(k *call, name string) (int, error) {
					return k.gw.StopProvider(k.ctx, name)
				})),
			},
			{
				Name: "start", Usage: "start a provider that a file names", ArgsUsage: "NAME",
				Description:  "One that was stopped, or has failed too often. What runs goes on.\n\nExamples:\n  tapctl providers start hello",
				BashComplete: providerNames(),
				Action: short(1, steerProvider("started", func(k *call, name string) (int, error) {
					return k.gw.StartProvider(k.ctx, name)
				})),
			},
			{
				Name: "restart", Usage: "stop what runs of a provider that a file names, and start it", ArgsUsage: "NAME",
				Description:  "Examples:\n  tapctl providers restart hello",
				BashComplete: providerNames(),
				Action: short(1, steerProvider("restarted", func(k *call, name string) (int, error) {
					return k.gw.RestartProvider(k.ctx, name)
				})),
			},
			{
				Name: "log", Usage: "show the last lines of a provider that a file names", ArgsUsage: "NAME",
				Description:  "What it printed, and what became of its processes.\n\nExamples:\n  tapctl providers log hello",
				BashComplete: providerNames(),
				Action:       short(1, providerLog),
			},
		},
	}
}

// providerNames offers what is connected, and the files that a gateway started
// here would read.
func providerNames() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag != "" || k.NArg() > 0 {
			return
		}
		if providers, err := k.gw.Providers(k.ctx); err == nil {
			for _, p := range providers {
				cli.Candidate(k.Context, p.Name, p.State)
			}
		}
		if files, err := configs.Find(".", ""); err == nil {
			for _, p := range files.Providers() {
				if p.Name != "" && !p.Barred {
					cli.Candidate(k.Context, p.Name, "file")
				}
			}
		}
	})
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

// providerName is the argument of a subcommand.
func providerName(k *call) (string, error) {
	name := k.Args().First()
	if name == "" {
		return "", cli.Usage("providers %s: needs the name of a provider (see tapctl providers)", k.Command.Name)
	}
	return name, nil
}

// steerProvider does something with a provider and says to how many processes or
// connections it was done.
func steerProvider(done string, do func(*call, string) (int, error)) func(*call) error {
	return func(k *call) error {
		name, err := providerName(k)
		if err != nil {
			return err
		}
		n, err := do(k, name)
		if err != nil {
			return err
		}
		if k.out.JSON {
			return k.out.Document(map[string]int{done: n})
		}
		k.out.Notef("%s %s: %d", done, name, n)
		return nil
	}
}

func providerLog(k *call) error {
	name, err := providerName(k)
	if err != nil {
		return err
	}
	lines, err := k.gw.ProviderLog(k.ctx, name)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(list(lines))
	}
	for _, line := range lines {
		if err := k.out.Printf("%s\n", cli.Clean(line)); err != nil {
			return err
		}
	}
	return nil
}

func reloadCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "reload",
		Usage:       "make the gateway read its config and provider files now",
		Description: "It follows their changes by itself; this is for whoever can't wait. Exit code 1 when\na file has a fault, or a setting waits for the gateway's next start: each is a line.\n\nExamples:\n  tapctl reload",
		Action: short(0, func(k *call) error {
			faults, err := k.gw.Reload(k.ctx)
			if err != nil {
				return err
			}
			if k.out.JSON {
				err = k.out.Document(map[string][]client.Fault{"faults": list(faults)})
			} else {
				err = printFaults(k, faults)
			}
			if err == nil && len(faults) > 0 {
				err = cli.Reported(cli.ExitFailed)
			}
			return err
		}),
	}
}
