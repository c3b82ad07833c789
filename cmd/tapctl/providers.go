package main

import (
	"context"
	"fmt"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// The commands tapctl providers, and tapctl reload.

func providersCommand() *ucli.Command {
	r := &providerResource
	return &ucli.Command{
		Name:  "providers",
		Usage: "list providers; stop, start and read the ones that files name",
		Description: listedProviders +
			"\n\nExamples:\n  tapctl providers\n  tapctl providers --all\n" +
			"  tapctl providers restart hello\n  tapctl providers log hello -f",
		Flags:  []ucli.Flag{allFlag()},
		Action: shortAction(0, r.print),
		Subcommands: []*ucli.Command{
			r.listCommand("list providers", listedProviders+`

Examples:
  tapctl providers list --json
  tapctl providers list --json | jq -r '.[] | select(.state=="failed") | .reason'`, allFlag()),
			r.short(&ucli.Command{
				Name: "stop", Usage: "stop a provider's processes, or close its connections",
				Description: `A provider that a file names stays stopped until you start it, or the gateway starts
again. For any other provider this closes its connections, and it may connect again.
While a provider is stopped that its file requires, calls of its sessions are denied.
NAME is the file's name, or the name that its program uses if no other file's does.

Examples:
  tapctl providers stop hello`,
			}, stopProvider),
			r.short(&ucli.Command{
				Name: "start", Usage: "start a provider that a file names",
				Description: "Starts a provider that was stopped, or that failed too often. A " +
					"running one goes on." +
					"\n\nExamples:\n  tapctl providers start hello",
			}, counted("started", (*client.Client).StartProvider)),
			r.short(&ucli.Command{
				Name: "restart", Usage: "start a provider that a file names anew",
				Description: `The new process starts beside the old one, which ends when the new one has joined the
sessions, so that they have its tools and gates all the time. If the new one fails, the
exit code is 1 and the old one goes on. One that has not joined after ten seconds is
waited for no longer: the old one goes on until it has. What can't run twice, because of
a fixed port for example, is stopped and started: tapctl providers stop, then start.

Examples:
  tapctl providers restart hello`,
			}, restartProvider),
			providerLogCommand(),
			providerLoginCommand(),
			providerLogoutCommand(),
		},
	}
}

const listedProviders = `Lists the connections, then the providers that files name: each with its file, its state
(running, stopped, failed or waiting) and the reason. Such a provider has a line for each
of its connections, too.`

var providerResource = resource[providerRow]{
	list: listProviders,
	columns: []string{
		"ID", "NAME", "INSTANCE", "TRUST", "STATE", "SESSION", "TOOLS", "IN FLIGHT", "CONNECTED",
		"FILE", gatewayColumn,
	},
	optional: []string{"FILE", gatewayColumn},
	ink:      stateInk,
	inked:    4,
	row: func(r providerRow) []any {
		if r.ConnectedAt == nil {
			about := r.File
			if r.Reason != "" {
				about += ": " + r.Reason
			}
			return []any{"", r.Name, "", "", r.State, "", "", "", "", about, ""}
		}
		return []any{r.ID, r.Name, r.Instance, r.Trust, r.State, r.Session, r.Tools, r.InFlight,
			ago(*r.ConnectedAt), "", gatewayCell(r.Gateway, r.Doubtful)}
	},
	empty: func(c *command) string {
		text := "no providers; they connect to " + c.gw.URL()
		if file := c.exampleFile(); file != "" {
			text += ", or a file names them: " + file
		}
		return text
	},
	argument: "NAME",
	find:     given("the name of a provider", "providers"),
	suggest: func(c *command) {
		suggest(c, func(ctx context.Context) ([]providerRow, error) {
			// without an answer, the other list is still offered
			configured, _ := c.gw.Configured(ctx)
			connected, _ := c.gw.Providers(ctx)
			return append(providerRows(nil, configured), providerRows(connected, nil)...), nil
		}, func(r providerRow) (word, about string) { return r.Name, r.State + " " + r.File })
	},
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

func providerRows(
	connected []adminapi.Provider, configured []adminapi.ConfiguredProvider,
) []providerRow {
	rows := make([]providerRow, 0, len(connected)+len(configured))
	for _, p := range connected {
		rows = append(rows, providerRow{Provider: p, ConnectedAt: &p.ConnectedAt})
	}
	for _, p := range configured {
		rows = append(rows, providerRow{
			Provider: adminapi.Provider{Name: p.Name, State: p.State}, File: p.File, Kind: p.Kind,
			Reason: p.Reason,
		})
	}
	return rows
}

func listProviders(c *command) ([]providerRow, error) {
	connected, err := c.providers()
	if err != nil {
		return nil, err
	}
	configured, err := c.gw.Configured(c.ctx)
	return providerRows(connected, configured), err
}

// providers returns the gateway's providers, or with --all the providers of all gateways of the
// cluster.
func (c *command) providers() ([]adminapi.Provider, error) {
	if !c.Bool("all") {
		return c.gw.Providers(c.ctx)
	}
	state, err := c.cluster()
	return state.Providers, err
}

// exampleFile is the path of a provider file of the user's, "" if there is no directory for them.
func (c *command) exampleFile() string {
	files, err := configs.Find(c.String("workdir"), c.String("config"))
	if err != nil {
		return ""
	}
	file, _ := files.UserProvider("NAME")
	return file
}

// stopProvider stops a provider, and explains the consequences if its file requires it.
func stopProvider(c *command, name string) error {
	n, err := c.gw.StopProvider(c.ctx, name)
	if err != nil {
		return err
	}
	configured, err := c.gw.Configured(c.ctx)
	if err != nil {
		return err
	}
	for _, p := range configured {
		if p.Name == name && p.Required && p.State == adminapi.ConfiguredStopped {
			c.out.Notef(
				"%s is required: calls of its sessions are denied until tapctl providers "+
					"start %s; "+
					"enabled = false or required = false in %s lets them go on", name, name, p.File)
		}
	}
	return c.doneCount("stopped", name, n)
}

func restartProvider(c *command, name string) error {
	done, err := c.gw.RestartProvider(c.ctx, name)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("restarted %s: %d", name, done.Restarted)
	if done.Waiting > 0 { // the old processes go on until the new ones have joined
		text += fmt.Sprintf("; not joined yet: %d", done.Waiting)
	}
	return c.out.Done(done, "%s", text)
}

// counted makes the function of a subcommand that the gateway answers with the number of
// processes or connections that it stopped or started.
func counted(
	done string, do func(*client.Client, context.Context, string) (int, error),
) func(*command, string) error {
	return func(c *command, name string) error {
		n, err := do(c.gw, c.ctx, name)
		if err != nil {
			return err
		}
		return c.doneCount(done, name, n)
	}
}

func (c *command) doneCount(done, name string, n int) error {
	return c.out.Done(map[string]int{done: n}, "%s %s: %d", done, name, n)
}

func reloadCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "reload",
		Usage: "make the gateway read its config and provider files now",
		Description: "The gateway reads changed files by itself, a moment later. The exit code " +
			"is 1 if a file\n" +
			"has a fault, or a setting waits for the gateway's next start; each is a line.\n\n" +
			"Examples:\n  tapctl reload",
		Action: shortAction(0, func(c *command) error {
			faults, err := c.gw.Reload(c.ctx)
			if err != nil {
				return err
			}
			err = c.out.Result(adminapi.Faults{Faults: list(faults)}, "%s",
				faultsText(c.out, faults))
			return cli.FailedIf(len(faults) > 0, err)
		}),
	}
}
