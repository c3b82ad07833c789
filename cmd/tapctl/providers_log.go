package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func providerLogCommand() *ucli.Command {
	return &ucli.Command{
		Name: "log", Usage: "show the last lines of a provider that a file names", ArgsUsage: "NAME",
		Description: `What it printed, and what became of its processes: the last 200 lines. With --follow
and --json a line is an object with ts, level, source (stdout, stderr, tapgw) and
message.

Examples:
  tapctl providers log hello
  tapctl providers log hello -f --last 10`,
		Flags: []ucli.Flag{
			followFlag("its file is removed"),
			&ucli.IntFlag{Name: "last", Usage: "at most `N` of the lines that there are (default: all)"},
		},
		BashComplete: providerNames(),
		Action: func(c *ucli.Context) error {
			if c.Bool("follow") {
				return long(1, followProviderLog)(c)
			}
			return short(1, providerLog)(c)
		},
	}
}

func providerLog(k *call) error {
	name, q, err := providerLogArgs(k)
	if err != nil {
		return err
	}
	lines, err := k.gw.ProviderLog(k.ctx, name, q)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(list(lines))
	}
	for _, line := range lines {
		if err := k.out.Printf("%s\n", cli.Clean(line)); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		k.out.Notef("%s has printed nothing", cli.OneLine(name))
	}
	return nil
}

func followProviderLog(k *call) error {
	name, q, err := providerLogArgs(k)
	if err != nil {
		return err
	}
	for line, err := range k.gw.FollowProviderLog(k.ctx, name, q) {
		if err != nil {
			return followed(k, err)
		}
		if k.out.JSON {
			err = k.out.Line(line)
		} else {
			if line.Source == "tapgw" {
				line.Message = "tapgw: " + line.Message
			}
			err = k.out.Printf("%s\n", cli.Clean(line.Message))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func providerLogArgs(k *call) (name string, q client.LogQuery, err error) {
	if name, err = providerName(k); err != nil {
		return "", q, err
	}
	q, err = k.logQuery()
	return name, q, err
}
