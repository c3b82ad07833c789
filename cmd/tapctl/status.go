package main

import (
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func statusCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "status",
		Usage:       "show the gateway's state and the faults in its config files",
		Description: "Examples:\n  tapctl status\n  tapctl status --json | jq .url",
		Action: shortAction(0, func(c *command) error {
			s, err := c.gw.Status(c.ctx)
			if err != nil {
				return err
			}
			if s.Faults = list(s.Faults); c.out.JSON {
				return c.out.Document(s)
			}
			const format = "url        %s\npid        %d\nversion    %s\nstarted    %s\n" +
				"sessions   %d\nproviders  %d\n"
			if err := c.out.Printf(format,
				s.URL, s.PID, cli.Clean(s.Version), ago(s.StartedAt), s.Sessions, s.Providers); err != nil {
				return err
			}
			if len(s.WaitsFor) > 0 {
				waits := cli.OneLine(strings.Join(s.WaitsFor, ", ")) +
					": required and not connected; calls wait, and are then denied"
				if err := c.out.Printf("waits for  %s\n", c.out.Paint(cli.Red, waits)); err != nil {
					return err
				}
			}
			if s.WebhooksURL != "" {
				if err := c.out.Printf("webhooks   %s/hooks/NAME\n", cli.Clean(s.WebhooksURL)); err != nil {
					return err
				}
			}
			if s.RESTOpen {
				open := c.out.Paint(cli.Yellow, "open to every program on this machine (api.auth)")
				if err := c.out.Printf("/api/      %s\n", open); err != nil {
					return err
				}
			}
			return printFaults(c, s.Faults)
		}),
	}
}

func printFaults(c *command, faults []adminapi.Fault) error {
	for _, f := range faults {
		text := cli.OneLine(fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message))
		if err := c.out.Printf("%s\n", c.out.Paint(cli.Red, text)); err != nil {
			return err
		}
	}
	return nil
}
