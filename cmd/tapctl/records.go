package main

import (
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/protocol"
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
			&ucli.StringFlag{
				Name:  "kind",
				Usage: "only `KIND`: session, turn, call, gate, push, source, goal or webhook",
			},
			&ucli.StringFlag{
				Name: "session", Aliases: []string{"s"},
				Usage: "only of a session: its `ID`; while it runs, also the ID's beginning or " +
					"its label",
			},
			&ucli.StringFlag{Name: "provider", Usage: "only of the provider `NAME`"},
			&ucli.StringFlag{Name: "tool", Usage: "only about the tool `NAME`"},
			&ucli.StringFlag{
				Name: "outcome",
				Usage: "only with `OUTCOME`: ok, failed, deny, allow, context, refused, ignored, " +
					"or the fate of a push",
			},
			&ucli.StringFlag{
				Name: "trace",
				Usage: "only of the trace `ID`, 32 hexadecimal digits; each below what it is " +
					"part of",
			},
			&ucli.IntFlag{Name: "last", Usage: "at most `N` records", Value: 100},
		},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(0, listRecords),
		Subcommands:  []*ucli.Command{recordsSQLCommand()},
	}
}

// recordQuery reads the flags. A value that no record can have is wrong usage, so that a typo does
// not look like a day without records.
func (c *command) recordQuery() (q adminapi.RecordQuery, err error) {
	for _, name := range []string{"since", "until", "session", "provider", "tool", "trace"} {
		if c.IsSet(name) && strings.TrimSpace(c.String(name)) == "" {
			return q, cli.Usage("flag --%s: must not be empty; leave it out for all", name)
		}
	}
	q = adminapi.RecordQuery{
		Provider: c.String("provider"), Tool: c.String("tool"), Trace: c.String("trace"),
		Last:    c.Int("last"),
		Session: c.String("session"),
	}
	if q.Kind, err = cli.OneOf(c.Context, "kind", adminapi.RecordKinds...); err != nil {
		return q, err
	}
	if q.Outcome, err = cli.OneOf(c.Context, "outcome", adminapi.RecordOutcomes...); err != nil {
		return q, err
	}
	now := time.Now()
	if q.Since, err = flagTime("since", c.String("since"), now); err != nil {
		return q, err
	}
	if q.Until, err = flagTime("until", c.String("until"), now); err != nil {
		return q, err
	}
	switch {
	case q.Last < 1 || q.Last > 10_000:
		return q, cli.Usage("flag --last: must be from 1 to 10000")
	case q.Trace != "" && !adminapi.IsTraceID(q.Trace):
		return q, cli.Usage("flag --trace: %q is not 32 hexadecimal digits in lower case", q.Trace)
	case q.Provider != "" && !protocol.ValidName(q.Provider):
		return q, cli.Usage("flag --provider: %q is not the name of a provider", q.Provider)
	case !q.Until.IsZero() && q.Until.Before(q.Since):
		return q, cli.Usage("flag --until: is before --since, so there is nothing between them")
	}
	return q, nil
}

// findRecords asks for records. The session may have ended: then q must have its whole id, and the
// gateway knows whether there was such a session.
func (c *command) findRecords(q adminapi.RecordQuery) (adminapi.Records, error) {
	if q.Session == "" {
		return c.gw.Records(c.ctx, q)
	}
	id, unknown := c.findSession(q.Session)
	if unknown == nil {
		q.Session = id
	}
	found, err := c.gw.Records(c.ctx, q)
	if err != nil && unknown != nil && cli.AsError(unknown).Exit == cli.ExitUsage {
		return found, unknown // several running sessions match the word
	}
	return found, err
}

func listRecords(c *command) error {
	q, err := c.recordQuery()
	if err != nil {
		return err
	}
	found, err := c.findRecords(q)
	if err != nil {
		return err
	}
	t := &cli.Table{Ink: stateInk, Inked: 5, Columns: []string{
		"TIME", "KIND", "SESSION", "PROVIDER", "WHAT", "OUTCOME", "MS", "WHY",
	}}
	rows := make([]placed, 0, len(found.Records))
	for _, r := range found.Records {
		rows = append(rows, placed{r, 0})
	}
	if q.Trace != "" {
		rows = placeAll(found.Records)
	}
	for _, p := range rows {
		r, ms := p.Record, ""
		if r.DurationMs > 0 {
			ms = fmt.Sprintf("%.1f", r.DurationMs)
		}
		t.Row(
			r.TS.Local().Format("2006-01-02 15:04:05"),
			strings.Repeat("· ", p.depth)+r.Kind,
			cli.Shorten(cli.Clean(r.Session), 13),
			cli.Clean(r.Provider),
			recordSubject(r),
			recordOutcome(r),
			ms,
			cli.Shorten(cli.Clean(r.Reason), 80),
		)
	}
	return c.out.List(list(found.Records), t,
		"no records; tapctl status says whether they can be written")
}

// recordSubject returns the subject of a record, such as its tool or stream.
func recordSubject(r adminapi.Record) string {
	text := r.Tool
	switch r.Kind {
	case adminapi.RecordCall:
		if r.Command != "" {
			text += ": " + r.Command
		}
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
	case r.ExitCode != nil && *r.ExitCode != 0:
		return fmt.Sprint("exit ", *r.ExitCode)
	case r.Fate != "":
		return cli.Clean(string(r.Fate))
	case r.State != "":
		return cli.Clean(r.State)
	}
	return cli.Clean(r.Outcome)
}
