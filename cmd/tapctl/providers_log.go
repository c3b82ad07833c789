package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func providerLogCommand() *ucli.Command {
	return &ucli.Command{
		Name: "log", Usage: "show the last lines of a provider that a file names", ArgsUsage: "NAME",
		Description: `Shows the last 200 lines: what the provider printed, and when its processes started and
ended. With --follow and --json each line is an object with ts, level, source (stdout,
stderr, tapgw) and message.

Examples:
  tapctl providers log hello
  tapctl providers log hello -f --last 10`,
		Flags: []ucli.Flag{
			followFlag("its file is removed"),
			&ucli.IntFlag{Name: "last", Usage: "at most the last `N` lines that are there (default: all)"},
		},
		BashComplete: providerNames(),
		Action: func(flags *ucli.Context) error {
			if flags.Bool("follow") {
				return longAction(1, followProviderLog)(flags)
			}
			return shortAction(1, providerLog)(flags)
		},
	}
}

func providerLog(c *command) error {
	name, q, err := providerLogArgs(c)
	if err != nil {
		return err
	}
	lines, err := c.gw.ProviderLog(c.ctx, name, q)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(list(lines))
	}
	for _, line := range lines {
		if err := c.out.Printf("%s\n", cli.Clean(line)); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		c.out.Notef("%s has printed nothing", cli.OneLine(name))
	}
	return nil
}

func followProviderLog(c *command) error {
	name, q, err := providerLogArgs(c)
	if err != nil {
		return err
	}
	for line, err := range c.gw.FollowProviderLog(c.ctx, name, q) {
		if err != nil {
			return ignoreInterrupt(c, err)
		}
		if c.out.JSON {
			err = c.out.Line(timelineRow{TimelineLine: line})
		} else {
			if line.Source == "tapgw" {
				line.Message = "tapgw: " + line.Message
			}
			err = c.out.Printf("%s\n", cli.Clean(line.Message))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func providerLogArgs(c *command) (name string, q client.LogQuery, err error) {
	if name, err = providerName(c); err != nil {
		return "", q, err
	}
	q, err = c.logQuery()
	return name, q, err
}
