package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/service"
)

const defaultLogLines = 100

func logsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "logs",
		Usage: "show the log of the gateway in the background",
		Description: `A gateway of tapgw ensure logs to gateway.log beside its token files, a service to
systemd or launchd. A gateway in the foreground logs to its own stderr, which nothing
keeps: exit code 4. With --json each line is an object with time, level, msg and
further fields, as it was logged.

Examples:
  tapgw logs -f
  tapgw logs --last 500 --json | jq 'select(.level=="WARN")'`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until Ctrl-C"},
			&ucli.IntFlag{Name: "last", Usage: "print at most the last `N` lines",
				Value: defaultLogLines},
		},
		Action: showLogs,
	}
}

func showLogs(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	last, follow := c.Int("last"), c.Bool("follow")
	if last < 1 {
		return cli.Usage("flag --last: must be at least 1, got %d", last)
	}
	out := cli.Out(c)
	log, err := service.FindLog(c.Context, stateDir(), last, follow, noteTo(out))
	if err != nil {
		return err
	}
	emit := func(line string) error { return printLog(out, line) }
	if log.File != "" {
		err = daemon.PrintFile(c.Context, log.File, last, follow, emit)
	} else {
		err = daemon.PrintCommand(c.Context, log.Command, emit)
	}
	if follow && errors.Is(c.Err(), context.Canceled) {
		return nil
	}
	return err
}

// printLog prints a line of a log: unchanged with --json, else in columns for people.
func printLog(out *cli.Output, line string) error {
	fields, ok := logFields(line)
	switch {
	case !ok && out.JSON: // a line of a panic, or of a service manager
		return out.Line(map[string]string{"msg": line})
	case !ok:
		return out.Printf("%s\n", cli.Clean(line))
	case out.JSON:
		return out.Printf("%s\n", line)
	}
	var b strings.Builder
	for _, f := range fields {
		switch f.name {
		case "time":
			if t, err := time.Parse(time.RFC3339Nano, f.text); err == nil {
				f.text = t.Local().Format("15:04:05")
			}
			b.WriteString(out.Paint(cli.Dim, f.text))
		case "level":
			ink := map[string]cli.Ink{"WARN": cli.Yellow, "ERROR": cli.Red}[f.text]
			if ink == "" {
				ink = cli.Plain
			}
			b.WriteString("  " + out.Paint(ink, fmt.Sprintf("%-5s", f.text)))
		case "msg":
			b.WriteString("  " + f.text)
		default:
			b.WriteString("  " + out.Paint(cli.Blue, f.name+"=") + f.text)
		}
	}
	return out.Printf("%s\n", b.String())
}

// logField is a member of a log line's object, with its value as text.
type logField struct{ name, text string }

// logFields returns the members of a line in their order; ok is false for a line that is
// not an object.
func logFields(line string) (fields []logField, ok bool) {
	dec := json.NewDecoder(strings.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		text := string(value)
		if value[0] == '"' {
			_ = json.Unmarshal(value, &text) // Decode has checked the value
		}
		fields = append(fields, logField{cli.OneLine(fmt.Sprint(name)), cli.OneLine(text)})
	}
	_, err := dec.Token()
	return fields, err == nil
}
