package main

import (
	"path/filepath"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func providersCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "providers",
		Usage:       "list providers; stop, start and read those that files name",
		Description: listedProviders + "\n\nExamples:\n  tapctl providers\n  tapctl providers restart hello\n  tapctl providers log hello -f",
		Action:      short(0, listProviders),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list providers",
				Description: listedProviders + "\n\nExamples:\n  tapctl providers list --json\n  tapctl providers list --json | jq -r '.[] | select(.state==\"failed\") | .reason'",
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
			providerLogCommand(),
		},
	}
}

const listedProviders = `What is connected, then what files name, with its file and whether that is running,
stopped, failed or waiting, and why. A file's provider has a line for each connection
besides.`

// providerNames offers what files name, and what is connected besides.
func providerNames() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag != "" || k.NArg() > 0 {
			return
		}
		offered := map[string]bool{}
		offer := func(name, about string) {
			if name != "" && !offered[name] {
				offered[name] = true
				cli.Candidate(k.Context, name, about)
			}
		}
		if configured, err := k.gw.Configured(k.ctx); err == nil {
			for _, c := range configured {
				offer(c.Name, c.State+" "+c.File)
			}
		}
		if providers, err := k.gw.Providers(k.ctx); err == nil {
			for _, p := range providers {
				offer(p.Name, p.State)
			}
		}
	})
}

// providerRow is a connection, or what a file names: then the first members but name
// and state are empty.
type providerRow struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Instance    string     `json:"instance"`
	Trust       string     `json:"trust"`
	State       string     `json:"state"`
	Session     string     `json:"session"`
	Tools       int        `json:"tools"`
	InFlight    int        `json:"inFlight"`
	ConnectedAt *time.Time `json:"connectedAt"` // null: of a file
	File        string     `json:"file,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	Reason      string     `json:"reason,omitempty"`
}

func providerRows(connected []client.Provider, configured []client.Configured) []providerRow {
	rows := make([]providerRow, 0, len(connected)+len(configured))
	for _, p := range connected {
		rows = append(rows, providerRow{ID: p.ID, Name: p.Name, Instance: p.Instance, Trust: p.Trust, State: p.State,
			Session: p.Session, Tools: p.Tools, InFlight: p.InFlight, ConnectedAt: &p.ConnectedAt})
	}
	for _, c := range configured {
		rows = append(rows, providerRow{Name: c.Name, State: c.State, File: c.File, Kind: c.Kind, Reason: c.Reason})
	}
	return rows
}

func listProviders(k *call) error {
	connected, err := k.gw.Providers(k.ctx)
	if err != nil {
		return err
	}
	configured, err := k.gw.Configured(k.ctx)
	if err != nil {
		return err
	}
	rows := providerRows(connected, configured)
	if k.out.JSON {
		return k.out.Document(rows)
	}
	return k.out.Table(providersTable(rows), "no providers; they connect to "+k.gw.URL()+", or a file names them: "+providerFiles())
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
func providerName(k *call) (string, error) {
	name := k.Args().First()
	if name == "" {
		return "", cli.Usage("providers %s: needs the name of a provider: tapctl providers lists them", k.Command.Name)
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
