package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func liveCommand() *ucli.Command {
	return &ucli.Command{
		Name:         "live",
		Usage:        "follow a session's callbacks, one JSON object a line",
		ArgsUsage:    "[ID]",
		Description:  "It ends with the session, or at Ctrl-C.\n\nExamples:\n  tapctl sessions live 3f2a | jq -r 'select(.callback==\"onMessage\").delta'",
		BashComplete: completeSession(),
		Action: long(1, func(k *call) error {
			id, err := k.session(k.Args().First())
			if err != nil {
				return err
			}
			for line, err := range k.gw.Live(k.ctx, id) {
				if err != nil {
					return followed(k, err)
				}
				if err := k.out.Line(withLine(line)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// withLine is a callback with what every line of a timeline has besides: a script
// that reads the one reads the other.
func withLine(l client.LiveLine) json.RawMessage {
	level, source, message := "info", "session", l.Callback
	switch l.Callback {
	case "onStartReasoning", "onReasoning", "onEndReasoning", "onStartMessage", "onMessage", "onEndMessage":
		source = "assistant"
	}
	switch {
	case l.SessionError != "":
		level, message = "error", l.SessionError
	case l.Error != nil:
		level, message = "error", l.Error.Message
	case l.Result != nil:
		message = l.Result.Content
	default:
		message = cmp.Or(l.Delta, l.CompleteContent, l.Prompt, l.ToolName, message)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	object, whole := bytes.CutSuffix(bytes.TrimSpace(l.Raw), []byte("}"))
	if !whole || e.Encode(message) != nil {
		return l.Raw
	}
	return fmt.Appendf(nil, `%s,"level":%q,"source":%q,"message":%s}`, object, level, source, bytes.TrimSpace(b.Bytes()))
}

func logCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "log",
		Usage:     "show a session's timeline",
		ArgsUsage: "[ID]",
		Description: `The last 1,000 lines are kept. With --events, what the session's runtime reports
instead, as it came: one JSON object a line with ts, type and data. The last 2,000 are
kept. docs/copilot.md says what becomes of each type.

Examples:
  tapctl sessions log --last 20
  tapctl sessions log review --since 10m
  tapctl sessions log 3f2a --follow --json
  tapctl sessions log --events --follow | jq -c 'select(.type | startswith("model."))'`,
		Flags: []ucli.Flag{
			followFlag("the session ends"),
			&ucli.IntFlag{Name: "last", Usage: "at most `N` of the lines that there are (default: all)"},
			sinceFlag(),
			&ucli.BoolFlag{Name: "events", Usage: "the events of the session's runtime, raw"},
		},
		BashComplete: completeSession(),
		Action: long(1, func(k *call) error {
			q, err := k.logQuery()
			if err != nil {
				return err
			}
			id, err := k.session(k.Args().First())
			if err != nil {
				return err
			}
			if k.Bool("events") {
				return logEvents(k, id, q)
			}
			for line, err := range k.gw.Timeline(k.ctx, id, q) {
				if err != nil {
					return followed(k, err)
				}
				if k.out.JSON {
					err = k.out.Line(line)
				} else {
					err = k.out.Printf("%s\n", timelineText(k.out, line))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// logQuery is what --follow, --last and --since say.
func (k *call) logQuery() (q client.LogQuery, err error) {
	q = client.LogQuery{Follow: k.Bool("follow"), Last: k.Int("last")}
	if k.IsSet("last") && q.Last < 1 {
		return q, cli.Usage("flag --last: must be at least 1, got %d", q.Last)
	}
	q.Since, err = sinceTime(k.String("since"), time.Now())
	return q, err
}

func logEvents(k *call, id string, q client.LogQuery) error {
	for event, err := range k.gw.RuntimeEvents(k.ctx, id, q) {
		if err != nil {
			return followed(k, err)
		}
		if err := k.out.Line(event); err != nil {
			return err
		}
	}
	return nil
}

func followFlag(until string) ucli.Flag {
	return &ucli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until " + until + ", or until Ctrl-C"}
}

// timelineText is a line of a timeline as people read it; further lines of its
// text are indented.
func timelineText(o *cli.Output, l client.TimelineLine) string {
	ink := cli.Plain
	switch l.Level {
	case "warning":
		ink = cli.Yellow
	case "error":
		ink = cli.Red
	}
	text := strings.ReplaceAll(cli.Clean(strings.TrimSpace(l.Message)), "\n", "\n          ")
	return o.Paint(cli.Dim, clock(l.TS)) + "  " + o.Paint(cli.Blue, cli.Clean(l.Source)+":") + " " + o.Paint(ink, text)
}
