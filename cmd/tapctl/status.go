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
			if err := c.out.Printf("%s", statusText(c.out, s)); err != nil {
				return err
			}
			return printFaults(c, s.Faults)
		}),
	}
}

func statusText(o *cli.Output, s adminapi.Status) string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%-11s%v\n", name, value) }
	line("url", s.URL)
	line("pid", s.PID)
	line("version", cli.Clean(s.Version))
	line("started", ago(s.StartedAt))
	line("sessions", s.Sessions)
	line("providers", s.Providers)
	if len(s.WaitsFor) > 0 {
		line("waits for", o.Paint(cli.Red, cli.OneLine(strings.Join(s.WaitsFor, ", "))+
			": required and not connected; calls wait, and are then denied"))
	}
	if s.WebhooksURL != "" {
		line("webhooks", cli.Clean(s.WebhooksURL)+"/hooks/NAME")
	}
	if s.RESTOpen {
		line("/api/", o.Paint(cli.Yellow, "open to every program on this machine (api.auth)"))
	}
	return b.String()
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
