package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func providersCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "providers",
		Usage: "list providers; stop, start and read the ones that files name",
		Description: listedProviders + "\n\nExamples:\n  tapctl providers\n  tapctl providers --all\n" +
			"  tapctl providers restart hello\n  tapctl providers log hello -f",
		Flags:  []ucli.Flag{allFlag()},
		Action: shortAction(0, listProviders),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list providers",
				Description: listedProviders + "\n\nExamples:\n  tapctl providers list --json\n" +
					"  tapctl providers list --json | jq -r '.[] | select(.state==\"failed\") | .reason'",
				Flags:  []ucli.Flag{allFlag()},
				Action: shortAction(0, listProviders),
			},
			{
				Name: "stop", Usage: "stop a provider's processes, or close its connections", ArgsUsage: "NAME",
				Description: `A provider that a file names stays stopped until you start it, or the gateway starts
again. For any other provider this closes its connections, and it may connect again.
While a provider is stopped that its file requires, calls of its sessions are denied.
NAME is the file's name, or the name that its program uses if no other file's does.

Examples:
  tapctl providers stop hello`,
				BashComplete: providerNames(),
				Action:       shortAction(1, providerAction("stopped", stopProvider)),
			},
			{
				Name: "start", Usage: "start a provider that a file names", ArgsUsage: "NAME",
				Description: "Starts a provider that was stopped, or that failed too often. A running one goes on." +
					"\n\nExamples:\n  tapctl providers start hello",
				BashComplete: providerNames(),
				Action: shortAction(1, providerAction("started", func(c *command, name string) (int, error) {
					return c.gw.StartProvider(c.ctx, name)
				})),
			},
			{
				Name: "restart", Usage: "start a provider that a file names anew", ArgsUsage: "NAME",
				Description: `The new process starts beside the old one, which ends when the new one has joined the
sessions, so that they have its tools and gates all the time. If the new one fails, the
exit code is 1 and the old one goes on. One that has not joined after ten seconds is
waited for no longer: the old one goes on until it has. What can't run twice, because of
a fixed port for example, is stopped and started: tapctl providers stop, then start.

Examples:
  tapctl providers restart hello`,
				BashComplete: providerNames(),
				Action:       shortAction(1, restartProvider),
			},
			providerLogCommand(),
			providerLoginCommand(),
			providerLogoutCommand(),
		},
	}
}

const listedProviders = `Lists the connections, then the providers that files name: each with its file, its state
(running, stopped, failed or waiting) and the reason. Such a provider has a line for each
of its connections, too.`

// providerNames completes the names of providers: first those that files name, then the
// connected ones.
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
	connected, err := c.providers()
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
	none := "no providers; they connect to " + c.gw.URL()
	if file := c.providerFile("NAME"); file != "" {
		none += ", or a file names them: " + file
	}
	return c.out.Table(providersTable(rows), none)
}

// providers are the gateway's, or with --all those of all gateways of the cluster.
func (c *command) providers() ([]adminapi.Provider, error) {
	if !c.Bool("all") {
		return c.gw.Providers(c.ctx)
	}
	state, err := c.cluster()
	return state.Providers, err
}

// providerFile is the path that a provider file of the user's would have, "" if nobody can say it.
func (c *command) providerFile(name string) string {
	files, err := configs.Find(c.String("workdir"), c.String("config"))
	if err != nil {
		return ""
	}
	file, err := files.UserProvider(name)
	if err != nil {
		return ""
	}
	return file
}

func providersTable(rows []providerRow) *cli.Table {
	t := &cli.Table{Ink: stateInk(4), Columns: []string{
		"ID", "NAME", "INSTANCE", "TRUST", "STATE", "SESSION", "TOOLS", "IN FLIGHT", "CONNECTED",
	}}
	files := slices.ContainsFunc(rows, func(r providerRow) bool { return r.File != "" })
	if files {
		t.Columns = append(t.Columns, "FILE")
	}
	isCluster := slices.ContainsFunc(rows, func(r providerRow) bool { return r.Gateway != "" })
	if isCluster {
		t.Columns = append(t.Columns, gatewayColumn)
	}
	for _, r := range rows {
		if r.ConnectedAt == nil {
			about := r.File
			if r.Reason != "" {
				about += ": " + r.Reason
			}
			cells := []any{"", r.Name, "", "", r.State, "", "", "", "", about}
			if isCluster {
				cells = append(cells, "")
			}
			t.Row(cells...)
			continue
		}
		cells := []any{r.ID, r.Name, r.Instance, r.Trust, r.State, r.Session, r.Tools, r.InFlight, ago(*r.ConnectedAt)}
		if files {
			cells = append(cells, "")
		}
		if isCluster {
			cells = append(cells, gatewayCell(r.Gateway, r.Doubtful))
		}
		t.Row(cells...)
	}
	return t
}

// providerName is the argument of a subcommand.
func providerName(c *command) (string, error) {
	name := c.Args().First()
	if name == "" {
		return "", cli.Usage("providers %s: needs the name of a provider; tapctl providers lists them", c.Command.Name)
	}
	return name, nil
}

// stopProvider stops a provider, and says what that means if its file requires it.
func stopProvider(c *command, name string) (int, error) {
	n, err := c.gw.StopProvider(c.ctx, name)
	if err != nil {
		return n, err
	}
	configured, err := c.gw.Configured(c.ctx)
	for _, p := range configured {
		if p.Name == name && p.Required && p.State == adminapi.ConfiguredStopped {
			c.out.Notef("%s is required: calls of its sessions are denied until tapctl providers start %s; "+
				"enabled = false or required = false in %s lets them go on", name, name, p.File)
		}
	}
	return n, err
}

func restartProvider(c *command) error {
	name, err := providerName(c)
	if err != nil {
		return err
	}
	done, err := c.gw.RestartProvider(c.ctx, name)
	switch {
	case err != nil:
		return err
	case c.out.JSON:
		return c.out.Document(done)
	case done.Waiting > 0: // the old processes go on until the new ones have joined
		c.out.Notef("restarted %s: %d; not joined yet: %d", name, done.Restarted, done.Waiting)
	default:
		c.out.Notef("restarted %s: %d", name, done.Restarted)
	}
	return nil
}

// providerAction makes the action of a command that stops or starts a provider. done is the
// word for it, do returns how many processes or connections it was done to.
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
		Name:  "reload",
		Usage: "make the gateway read its config and provider files now",
		Description: "The gateway reads changed files by itself, a moment later. The exit code is 1 if a file\n" +
			"has a fault, or a setting waits for the gateway's next start; each is a line.\n\n" +
			"Examples:\n  tapctl reload",
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
