package main

import (
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func recordsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "records",
		Usage: "show what happened: sessions, turns, calls, gates, pushes, runs of sources",
		Description: `It shows the newest records that have all the given values, oldest first, also of sessions
that have ended. docs/records.md says what each kind has, and how long they are kept.

Examples:
  tapctl records --since 1h
  tapctl records --kind call --outcome failed --last 20
  tapctl records --session review --json | jq -s 'map(.[].durationMs // 0) | add'`,
		Flags: []ucli.Flag{
			sinceFlag(),
			&ucli.StringFlag{Name: "until", Usage: "nothing after `TIME`, as in --since"},
			&ucli.StringFlag{Name: "kind", Usage: "only `KIND`: session, turn, call, gate, push, source or goal"},
			&ucli.StringFlag{
				Name: "session", Aliases: []string{"s"},
				Usage: "only of a session: its `ID`; while it runs, also the ID's beginning or its label",
			},
			&ucli.StringFlag{Name: "provider", Usage: "only of the provider `NAME`"},
			&ucli.StringFlag{Name: "tool", Usage: "only about the tool `NAME`"},
			&ucli.StringFlag{
				Name:  "outcome",
				Usage: "only with `OUTCOME`: ok, failed, deny, allow, context, or the fate of a push",
			},
			&ucli.StringFlag{Name: "trace", Usage: "only of the trace `ID`, 32 hexadecimal digits"},
			&ucli.IntFlag{Name: "last", Usage: "at most `N` records", Value: 100},
		},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(0, listRecords),
	}
}

func listRecords(c *command) error {
	q := adminapi.RecordQuery{
		Kind: c.String("kind"), Provider: c.String("provider"), Tool: c.String("tool"), Outcome: c.String("outcome"),
		Trace: c.String("trace"), Last: c.Int("last"), Session: c.String("session"),
	}
	if q.Last < 1 || q.Last > 10_000 {
		return cli.Usage("flag --last: must be from 1 to 10000")
	}
	now := time.Now()
	var err error
	if q.Since, err = flagTime("since", c.String("since"), now); err != nil {
		return err
	}
	if q.Until, err = flagTime("until", c.String("until"), now); err != nil {
		return err
	}
	if q.Session != "" {
		if id, err := c.findSession(q.Session); err == nil { // else it may have ended
			q.Session = id
		}
	}
	found, err := c.gw.Records(c.ctx, q)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(list(found.Records))
	}
	t := &cli.Table{Ink: stateInk(5), Columns: []string{
		"TIME", "KIND", "SESSION", "PROVIDER", "WHAT", "OUTCOME", "MS", "WHY",
	}}
	for _, r := range found.Records {
		ms := ""
		if r.DurationMs > 0 {
			ms = fmt.Sprintf("%.1f", r.DurationMs)
		}
		t.Row(r.TS.Local().Format("2006-01-02 15:04:05"), r.Kind, cli.Shorten(cli.Clean(r.Session), 13),
			cli.Clean(r.Provider), recordSubject(r), recordOutcome(r), ms, cli.Shorten(cli.Clean(r.Reason), 80))
	}
	return c.out.Table(t, "no records; tapctl status says whether they can be written")
}

// recordSubject is what a record is about.
func recordSubject(r adminapi.Record) string {
	text := r.Tool
	switch r.Kind {
	case adminapi.RecordSession:
		text = r.Label
	case adminapi.RecordTurn:
		text = "prompt of " + r.By
	case adminapi.RecordGate:
		text = r.Tool + ", by " + r.By
	case adminapi.RecordPush:
		text = strings.TrimSpace(r.Stream + " " + r.Event + r.Prompt)
	case adminapi.RecordSource:
		text = r.Stream
	case adminapi.RecordGoal:
		text = r.ID
	}
	return cli.Shorten(cli.Clean(text), 60)
}

func recordOutcome(r adminapi.Record) string {
	switch {
	case r.Code != "":
		return cli.Clean(r.Code)
	case r.Fate != "":
		return cli.Clean(string(r.Fate))
	case r.State != "":
		return cli.Clean(r.State)
	}
	return cli.Clean(r.Outcome)
}
