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
  tapctl sessions start --host local --label scratch`,
		Action: shortAction(0, listSessions),
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

func listSessions(c *command) error {
	sessions, err := c.gw.Sessions(c.ctx)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(list(sessions))
	}
	return c.out.Table(sessionsTable(sessions), client.NoSessions)
}

func sessionsTable(sessions []adminapi.Session) *cli.Table {
	t := &cli.Table{Ink: stateInk(4), Columns: []string{
		"ID", "LABEL", "HOST", "MODEL", "STATE", "PROVIDERS", "TOOLS", "CWD",
	}}
	for _, s := range sessions {
		state := s.State
		if s.Foreground {
			state += ", foreground"
		}
		t.Row(s.ID, s.Label, s.Host, s.Model, state, s.Providers, s.Tools, s.CWD)
	}
	return t
}

// stateInk colours a table's column of states of sessions or providers.
func stateInk(column int) func(int, string) cli.Ink {
	return func(c int, text string) cli.Ink {
		if c != column {
			return cli.Plain
		}
		switch text {
		case "busy", "busy, foreground":
			return cli.Yellow
		case "idle", "idle, foreground", "bound", "running":
			return cli.Green
		case "failed":
			return cli.Red
		}
		return cli.Dim
	}
}

// list returns an empty list for nil, so that JSON has an array and not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// printDone prints what was done to a session, or its id with --json.
func (c *command) printDone(id, what string) error {
	if c.out.JSON {
		return c.out.Document(map[string]string{"id": id})
	}
	c.out.Notef("%s %s", what, id)
	return nil
}

// clock is a time of today as people read it.
func clock(t time.Time) string { return t.Local().Format("15:04:05") }

// ago is how long ago a time was, roughly.
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
