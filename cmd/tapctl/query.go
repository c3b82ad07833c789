package main

import (
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func queryCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "query",
		Usage:     "show what was pushed into streams, newest first",
		ArgsUsage: "[STREAM[@PROVIDER]...]",
		Description: `Without a stream it shows all of them. With --follow it shows the newest events, oldest
first, and then each new one. With --all it shows what the gateways of the cluster keep of
streams that last, whichever sessions got it (docs/cluster.md).

Examples:
  tapctl query builds --last 5
  tapctl query builds@ci --since 10m --json
  tapctl query --follow
  tapctl query --all deploys --since 24h`,
		Flags: []ucli.Flag{
			sessionFlag(),
			&ucli.IntFlag{Name: "last", Usage: "at most `N` events of each stream", Value: 20},
			sinceFlag(),
			followFlag("the session ends"),
			&ucli.BoolFlag{Name: "all",
				Usage: "of all gateways of the cluster, instead of a session"},
		},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(anyArgs, queryStreams, "follow"),
	}
}

func queryStreams(c *command) error {
	q := client.HistoryQuery{Streams: c.Args().Slice(), Last: c.Int("last")}
	if q.Last < 1 {
		return cli.Usage("flag --last: must be at least 1")
	}
	var err error
	if q.Since, err = sinceTime(c.String("since"), time.Now()); err != nil {
		return err
	}
	if c.Bool("all") {
		return c.queryKept(q)
	}
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return err
	}
	if c.Bool("follow") {
		return follow(c, c.gw.FollowHistory(c.ctx, id, q), func(e adminapi.StreamRow) error {
			ts, name := c.out.Paint(cli.Dim, clock(e.TS)), c.out.Paint(cli.Blue, streamName(e))
			return c.line(e, ts+"  "+name+"  "+eventText(e))
		})
	}
	events, err := c.gw.History(c.ctx, id, q)
	if err != nil {
		return err
	}
	return eventResource.printRows(c, events)
}

var eventResource = resource[adminapi.StreamRow]{
	columns: []string{"TIME", "STREAM", "LEVEL", "EVENT"},
	row: func(e adminapi.StreamRow) []any {
		return []any{clock(e.TS), streamName(e), e.Level, eventText(e)}
	},
	empty: always("no events; push one with: tapctl push TEXT"),
}

var keptResource = resource[adminapi.StreamRow]{
	columns: append(eventResource.columns[:4:4], gatewayColumn),
	row: func(e adminapi.StreamRow) []any {
		origin, _, _ := strings.Cut(e.ID, "/")
		return append(eventResource.row(e), origin)
	},
	empty: always("no events are kept; [cluster.keep] in tapgw.toml says which streams last"),
}

// queryKept shows the events that the gateways of the cluster keep.
func (c *command) queryKept(q client.HistoryQuery) error {
	for _, flag := range []string{"session", "follow"} {
		if c.IsSet(flag) {
			return cli.Usage("flag --%s: does not go with --all", flag)
		}
	}
	kept, err := c.gw.KeptHistory(c.ctx, q)
	if err != nil {
		return err
	}
	for _, fault := range kept.Faults {
		c.out.Notef("cluster: events may be missing: %s", cli.Clean(fault))
	}
	return keptResource.printRows(c, kept.Events)
}

func sinceFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "since",
		Usage: "nothing before `TIME`: 2026-01-02T15:04:05Z, or 10m for the last ten minutes"}
}

// sinceTime reads the value of --since.
func sinceTime(text string, now time.Time) (time.Time, error) {
	return flagTime("since", text, now)
}

// flagTime reads the value of a flag that is a time, or a span before now.
func flagTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, cli.Usage(
		"flag --%s: %q is neither a time like 2026-01-02T15:04:05Z nor a span like 10m", flag, text,
	)
}

func streamName(e adminapi.StreamRow) string { return cli.Clean(e.Stream + "@" + e.Provider) }

func eventText(e adminapi.StreamRow) string {
	text := e.Event
	if text == "" {
		text = "prompt: " + e.Prompt
	}
	return cli.Shorten(cli.Clean(text), 200)
}
