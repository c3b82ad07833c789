package main

import (
	"log/slog"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/assembly"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/demo"
	"tapgw/internal/gateway"
)

func demoCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "demo",
		Usage: "show a session with a tool of another process, and an event that wakes it",
		Description: `It runs a gateway on a free port with a temporary home, a scripted model endpoint, a
session, and a sample provider in another process. It checks each line that it
prints: with a Copilot session against the requests that the model endpoint received,
else against the local session's state. Nothing leaves this machine, and no account
is needed. At the end it removes everything; with --keep, it runs on until Ctrl-C.

Examples:
  tapgw demo
  tapgw demo --host local
  tapgw demo --keep`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{
				Name: "host", Value: demo.HostAuto,
				Usage: "`auto|copilot|local`: the session's host; auto is copilot if its runtime " +
					"is found",
			},
			&ucli.BoolFlag{Name: "keep", Usage: "run on after the demo, and print commands to try"},
		},
		Action: func(c *ucli.Context) error {
			host, err := cli.OneOf(c, "host", demo.HostAuto, copilot.Kind, gateway.HostLocal)
			if err != nil {
				return err
			}
			log := slog.New(slog.DiscardHandler)
			if c.Bool("verbose") {
				log = assembly.NewLogger(c.App.ErrWriter, slog.LevelDebug)
			}
			config, _, err := loadConfig(c)
			if err != nil {
				return err
			}
			return demo.Run(c.Context, demo.Options{
				Host: host, Runtime: config.Copilot.CLI, Keep: c.Bool("keep"), Out: cli.Out(c),
				Log: log,
			})
		},
	}
}

// demoProviderCommand runs the sample provider of the demo, which starts it.
func demoProviderCommand() *ucli.Command {
	return &ucli.Command{
		Name: demo.ProviderCommand, Hidden: true, Usage: "the demo's sample provider",
		Action: func(c *ucli.Context) error {
			return demo.Provide(c.Context, c.App.Reader, c.App.ErrWriter)
		},
	}
}
