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
			s.Faults = list(s.Faults)
			return c.out.Result(s, "%s", statusText(c.out, s)+faultsText(c.out, s.Faults))
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

func faultsText(o *cli.Output, faults []adminapi.Fault) string {
	var b strings.Builder
	for _, f := range faults {
		text := cli.OneLine(fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message))
		b.WriteString(o.Paint(cli.Red, text) + "\n")
	}
	return b.String()
}
