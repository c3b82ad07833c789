package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// The commands that show a session's timeline and its callbacks.

func liveCommand() *ucli.Command {
	return sessionResource.long(&ucli.Command{
		Name: "live", Usage: "follow a session's callbacks, one JSON object a line",
		Description: "It ends with the session, or at Ctrl-C.\n\nExamples:\n" +
			"  tapctl sessions live 3f2a | jq -r 'select(.callback==\"onMessage\").delta'",
	}, func(c *command, id string) error {
		return follow(c, c.gw.Live(c.ctx, id), func(l client.LiveLine) error {
			return c.out.Line(withTimelineFields(l))
		})
	})
}

// text is a field of a callback, "" if the callback does not have it.
func text(field *string) string {
	if field == nil {
		return ""
	}
	return *field
}

// withTimelineFields returns a callback with the fields that a timeline line has, so that a
// script can read both.
func withTimelineFields(l client.LiveLine) json.RawMessage {
	level, source, message := "info", "session", l.Name
	switch message {
	case "onStartReasoning", "onReasoning", "onEndReasoning", "onStartMessage", "onMessage",
		"onEndMessage":
		source = "assistant"
	}
	switch {
	case l.SessionError != "":
		level, message = "error", l.SessionError
	case l.Error != nil:
		level, message = "error", l.Error.Message
	case l.Result != nil:
		message = l.Result.Content
	case l.Name == "":
		message = fmt.Sprintf("took %v ms", l.DurationMs)
	default:
		message = cmp.Or(text(l.Delta), text(l.CompleteContent), text(l.Prompt), text(l.ToolName),
			message)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	object, isObject := bytes.CutSuffix(bytes.TrimSpace(l.Raw), []byte("}"))
	if !isObject || e.Encode(message) != nil {
		return l.Raw
	}
	return fmt.Appendf(nil, `%s,"level":%q,"source":%q,"message":%s}`,
		object, level, source, bytes.TrimSpace(b.Bytes()))
}

func logCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "log",
		Usage:     "show a session's timeline",
		ArgsUsage: "[ID]",
		Description: `The gateway keeps the last 20,000 lines. With --events it shows the last 2,000 events of
the session's runtime instead, as they came: one JSON object a line with ts, type and
data. docs/copilot.md explains each type.

Examples:
  tapctl sessions log --last 20
  tapctl sessions log review --since 10m
  tapctl sessions log 3f2a --follow --json
  tapctl sessions log --events --follow | jq -c 'select(.type | startswith("model."))'`,
		Flags: []ucli.Flag{
			followFlag("the session ends"),
			lastLinesFlag(),
			sinceFlag(),
			&ucli.BoolFlag{Name: "events", Usage: "the events of the session's runtime, raw"},
		},
		BashComplete: completeArgument((*command).suggestSessions),
		Action:       longAction(1, logSession),
	}
}

func logSession(c *command) error {
	q, err := c.logQuery()
	if err != nil {
		return err
	}
	id, err := c.findSession(c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("events") {
		events := c.gw.RuntimeEvents(c.ctx, id, q)
		return follow(c, events, func(e json.RawMessage) error { return c.out.Line(e) })
	}
	return follow(c, c.gw.Timeline(c.ctx, id, q), func(l adminapi.TimelineLine) error {
		return c.line(timelineRow{TimelineLine: l}, timelineText(c.out, l))
	})
}

// logQuery reads --follow, --last and --since.
func (c *command) logQuery() (q client.LogQuery, err error) {
	q = client.LogQuery{Follow: c.Bool("follow"), Last: c.Int("last")}
	if c.IsSet("last") && q.Last < 1 {
		return q, cli.Usage("flag --last: must be at least 1, got %d", q.Last)
	}
	q.Since, err = sinceTime(c.String("since"), time.Now())
	return q, err
}

func followFlag(until string) ucli.Flag {
	return &ucli.BoolFlag{Name: "follow", Aliases: []string{"f"},
		Usage: "go on until " + until + ", or until Ctrl-C"}
}

func lastLinesFlag() ucli.Flag {
	return &ucli.IntFlag{Name: "last",
		Usage: "at most the last `N` lines that are there (default: all)"}
}

// timelineRow is a timeline line as --json shows it: without its number.
type timelineRow struct {
	adminapi.TimelineLine
	Seq *struct{} `json:"seq,omitempty"` // hides the line's
}

// timelineText is a line of a timeline as people read it. Further lines of its message are
// indented.
func timelineText(o *cli.Output, l adminapi.TimelineLine) string {
	ink := cli.Plain
	switch l.Level {
	case "warning":
		ink = cli.Yellow
	case "error":
		ink = cli.Red
	}
	message := strings.ReplaceAll(cli.Clean(strings.TrimSpace(l.Message)), "\n", "\n          ")
	source := o.Paint(cli.Blue, cli.Clean(l.Source)+":")
	return o.Paint(cli.Dim, clock(l.TS)) + "  " + source + " " + o.Paint(ink, message)
}
