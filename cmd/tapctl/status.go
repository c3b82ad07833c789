package main

import (
	"fmt"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func statusCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "status",
		Usage:       "show the gateway's state and the faults in its config files",
		Description: "Examples:\n  tapctl status\n  tapctl status --json | jq .url",
		Action: short(0, func(k *call) error {
			s, err := k.gw.Status(k.ctx)
			if err != nil {
				return err
			}
			if s.Faults = list(s.Faults); k.out.JSON {
				return k.out.Document(s)
			}
			if err := k.out.Printf("url        %s\npid        %d\nversion    %s\nstarted    %s\nsessions   %d\nproviders  %d\n",
				s.URL, s.PID, cli.Clean(s.Version), ago(s.StartedAt), s.Sessions, s.Providers); err != nil {
				return err
			}
			if s.RESTOpen {
				if err := k.out.Printf("/api/      %s\n", k.out.Paint(cli.Yellow, "open to every program on this machine (api.auth)")); err != nil {
					return err
				}
			}
			return printFaults(k, s.Faults)
		}),
	}
}

func printFaults(k *call, faults []client.Fault) error {
	for _, f := range faults {
		if err := k.out.Printf("%s\n", k.out.Paint(cli.Red, cli.OneLine(fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)))); err != nil {
			return err
		}
	}
	return nil
}
