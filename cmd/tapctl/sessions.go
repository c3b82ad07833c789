package main

import (
	"fmt"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func sessionsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "sessions",
		Usage: "list sessions; start, query, follow and stop one",
		Description: `Examples:
  tapctl sessions
  tapctl sessions --json | jq -r '.[].id'
  tapctl sessions --all
  tapctl sessions start --host local --label scratch`,
		Flags:  []ucli.Flag{allFlag()},
		Action: shortAction(0, sessionResource.print),
		Subcommands: []*ucli.Command{
			listCommand(),
			showCommand(),
			startCommand(),
			resumeCommand(),
			deleteCommand(),
			modelCommand(),
			renameCommand(),
			stopCommand(),
			sessionsQueryCommand(),
			liveCommand(),
			logCommand(),
			usageCommand(),
			answerCommand(),
			queueCommand(),
			interruptCommand(),
			foregroundCommand(),
		},
	}
}

// allFlag makes a list cover all gateways of the cluster.
func allFlag() ucli.Flag {
	return &ucli.BoolFlag{Name: "all", Usage: "also those that other gateways of the cluster share"}
}

var sessionResource = resource[adminapi.Session]{
	list: (*command).sessions,
	columns: []string{
		"ID", "LABEL", "HOST", "MODEL", "STATE", "PROVIDERS", "TOOLS", "CWD", gatewayColumn,
	},
	optional: []string{gatewayColumn},
	ink:      stateInk,
	inked:    4,
	row: func(s adminapi.Session) []any {
		return []any{s.ID, s.Label, s.Host, s.Model, stateText(s), s.Providers, s.Tools, s.CWD,
			gatewayCell(s.Gateway, s.Doubtful)}
	},
	empty:    always(client.NoSessions),
	argument: "[ID]",
	find:     (*command).findSession,
	suggest:  (*command).suggestSessions,
}

func stateText(s adminapi.Session) string {
	if s.Foreground {
		return s.State + ", foreground"
	}
	return s.State
}

// sessions returns the gateway's sessions, or with --all the sessions of all gateways of the
// cluster.
func (c *command) sessions() ([]adminapi.Session, error) {
	if !c.Bool("all") {
		return c.gw.Sessions(c.ctx)
	}
	state, err := c.cluster()
	return state.Sessions, err
}

// cluster returns the gateway's view of the others. It notes a fault, so that an incomplete list
// says so.
func (c *command) cluster() (adminapi.Cluster, error) {
	state, err := c.gw.Cluster(c.ctx)
	if err == nil && state.Fault != "" {
		c.out.Notef("cluster: %s", state.Fault)
	}
	return state, err
}

// gatewayColumn is the column of lists that names the gateway of the cluster that has the line's
// session or provider.
const gatewayColumn = "GATEWAY"

func gatewayCell(name string, isDoubtful bool) string {
	if isDoubtful {
		return name + " (doubtful)"
	}
	return name
}

// stateInk colours the state of a session or provider.
func stateInk(state string) cli.Ink {
	switch state {
	case "busy", "busy, foreground":
		return cli.Yellow
	case "idle", "idle, foreground", "bound", "running":
		return cli.Green
	case "failed":
		return cli.Red
	}
	return cli.Dim
}

// clock returns a time of today as text for people.
func clock(t time.Time) string { return t.Local().Format("15:04:05") }

// ago returns roughly how long ago a time was.
func ago(t time.Time) string {
	d := max(time.Since(t), 0)
	switch {
	case d >= 48*time.Hour:
		return t.Local().Format("2006-01-02 15:04")
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm ago", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds ago", int(d.Seconds()))
}
