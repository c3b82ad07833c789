package main

import (
	"path/filepath"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func providersCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "providers",
		Usage:       "list providers; stop, start and read those that files name",
		Description: listedProviders + "\n\nExamples:\n  tapctl providers\n  tapctl providers restart hello\n  tapctl providers log hello -f",
		Action:      shortAction(0, listProviders),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list providers",
				Description: listedProviders + "\n\nExamples:\n  tapctl providers list --json\n  tapctl providers list --json | jq -r '.[] | select(.state==\"failed\") | .reason'",
				Action:      shortAction(0, listProviders),
			},
			{
				Name: "stop", Usage: "stop what runs of a provider, or close its connections", ArgsUsage: "NAME",
				Description: `A provider that a file names stays stopped until it is started, or the gateway is.
Of another the connections are closed, and it may come back. NAME is the file's, or
what its program calls itself where no other file's program does.

Examples:
  tapctl providers stop hello`,
				BashComplete: providerNames(),
				Action: shortAction(1, providerAction("stopped", func(c *command, name string) (int, error) {
					return c.gw.StopProvider(c.ctx, name)
				})),
			},
			{
				Name: "start", Usage: "start a provider that a file names", ArgsUsage: "NAME",
				Description:  "One that was stopped, or has failed too often. What runs goes on.\n\nExamples:\n  tapctl providers start hello",
				BashComplete: providerNames(),
				Action: shortAction(1, providerAction("started", func(c *command, name string) (int, error) {
					return c.gw.StartProvider(c.ctx, name)
				})),
			},
			{
				Name: "restart", Usage: "stop what runs of a provider that a file names, and start it", ArgsUsage: "NAME",
				Description:  "Examples:\n  tapctl providers restart hello",
				BashComplete: providerNames(),
				Action: shortAction(1, providerAction("restarted", func(c *command, name string) (int, error) {
					return c.gw.RestartProvider(c.ctx, name)
				})),
			},
			providerLogCommand(),
		},
	}
}

const listedProviders = `What is connected, then what files name, with its file and whether that is running,
stopped, failed or waiting, and why. A file's provider has a line for each connection
besides.`

// providerNames offers what files name, and what is connected besides.
func providerNames() ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag != "" || c.NArg() > 0 {
			return
		}
		offered := map[string]bool{}
		offer := func(name, about string) {
			if name != "" && !offered[name] {
				offered[name] = true
				cli.Candidate(c.Context, name, about)
			}
		}
		if configured, err := c.gw.Configured(c.ctx); err == nil {
			for _, p := range configured {
				offer(p.Name, p.State+" "+p.File)
			}
		}
		if providers, err := c.gw.Providers(c.ctx); err == nil {
			for _, p := range providers {
				offer(p.Name, p.State)
			}
		}
	})
}

// providerRow is a connection, or a provider that a file names. The second has a name, a state,
// a file, a kind and a reason; its other fields are empty.
type providerRow struct {
	adminapi.Provider
	ConnectedAt *time.Time `json:"connectedAt"` // nil for a provider that a file names
	File        string     `json:"file,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	Reason      string     `json:"reason,omitempty"`
}

func providerRows(connected []adminapi.Provider, configured []adminapi.ConfiguredProvider) []providerRow {
	rows := make([]providerRow, 0, len(connected)+len(configured))
	for _, p := range connected {
		rows = append(rows, providerRow{Provider: p, ConnectedAt: &p.ConnectedAt})
	}
	for _, p := range configured {
		rows = append(rows, providerRow{
			Provider: adminapi.Provider{Name: p.Name, State: p.State}, File: p.File, Kind: p.Kind, Reason: p.Reason,
		})
	}
	return rows
}

func listProviders(c *command) error {
	connected, err := c.gw.Providers(c.ctx)
	if err != nil {
		return err
	}
	configured, err := c.gw.Configured(c.ctx)
	if err != nil {
		return err
	}
	rows := providerRows(connected, configured)
	if c.out.JSON {
		return c.out.Document(rows)
	}
	return c.out.Table(providersTable(rows), "no providers; they connect to "+c.gw.URL()+", or a file names them: "+providerFiles())
}

func providersTable(rows []providerRow) *cli.Table {
	t := &cli.Table{Columns: []string{"ID", "NAME", "INSTANCE", "TRUST", "STATE", "SESSION", "TOOLS", "IN FLIGHT", "CONNECTED"}, Ink: stateInk(4)}
	files := slices.ContainsFunc(rows, func(r providerRow) bool { return r.File != "" })
	if files {
		t.Columns = append(t.Columns, "FILE")
	}
	for _, r := range rows {
		if r.ConnectedAt == nil {
			about := r.File
			if r.Reason != "" {
				about += ": " + r.Reason
			}
			t.Row("", r.Name, "", "", r.State, "", "", "", "", about)
			continue
		}
		cells := []any{r.ID, r.Name, r.Instance, r.Trust, r.State, r.Session, r.Tools, r.InFlight, ago(*r.ConnectedAt)}
		if files {
			cells = append(cells, "")
		}
		t.Row(cells...)
	}
	return t
}

// providerFiles is where a user's provider files lie.
func providerFiles() string { return filepath.Join(configs.UserDir(), "providers", "NAME.toml") }

// providerName is the argument of a subcommand.
func providerName(c *command) (string, error) {
	name := c.Args().First()
	if name == "" {
		return "", cli.Usage("providers %s: needs the name of a provider: tapctl providers lists them", c.Command.Name)
	}
	return name, nil
}

// providerAction does something with a provider and says to how many processes or
// connections it was done.
func providerAction(done string, do func(*command, string) (int, error)) func(*command) error {
	return func(c *command) error {
		name, err := providerName(c)
		if err != nil {
			return err
		}
		n, err := do(c, name)
		if err != nil {
			return err
		}
		if c.out.JSON {
			return c.out.Document(map[string]int{done: n})
		}
		c.out.Notef("%s %s: %d", done, name, n)
		return nil
	}
}

func reloadCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "reload",
		Usage:       "make the gateway read its config and provider files now",
		Description: "It follows their changes by itself; this is for whoever can't wait. Exit code 1 when\na file has a fault, or a setting waits for the gateway's next start: each is a line.\n\nExamples:\n  tapctl reload",
		Action: shortAction(0, func(c *command) error {
			faults, err := c.gw.Reload(c.ctx)
			if err != nil {
				return err
			}
			if c.out.JSON {
				err = c.out.Document(adminapi.Faults{Faults: list(faults)})
			} else {
				err = printFaults(c, faults)
			}
			if err == nil && len(faults) > 0 {
				err = cli.Reported(cli.ExitFailed)
			}
			return err
		}),
	}
}
