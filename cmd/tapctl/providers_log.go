package main

import (
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func providerLogCommand() *ucli.Command {
	return providerResource.short(&ucli.Command{
		Name: "log", Usage: "show the last lines of a provider that a file names",
		Description: `Shows the last 200 lines: what the provider printed, and when its processes started and
ended. With --follow and --json each line is an object with ts, level, source (stdout,
stderr, tapgw) and message.

Examples:
  tapctl providers log hello
  tapctl providers log hello -f --last 10`,
		Flags: []ucli.Flag{followFlag("its file is removed"), lastLinesFlag()},
	}, logProvider, "follow")
}

func logProvider(c *command, name string) error {
	q, err := c.logQuery()
	if err != nil {
		return err
	}
	if q.Follow {
		return follow(c, c.gw.FollowProviderLog(c.ctx, name, q),
			func(l adminapi.TimelineLine) error {
				text := l.Message
				if l.Source == "tapgw" {
					text = "tapgw: " + text
				}
				return c.line(timelineRow{TimelineLine: l}, cli.Clean(text))
			})
	}
	lines, err := c.gw.ProviderLog(c.ctx, name, q)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return c.out.Done([]string{}, "%s has printed nothing", cli.OneLine(name))
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(cli.Clean(line) + "\n")
	}
	return c.out.Result(lines, "%s", text.String())
}
