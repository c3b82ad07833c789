package main

import (
	"context"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/doctor"
)

// doctorTimeout bounds all checks. A full Copilot CLI unpacks itself at its first start.
const doctorTimeout = time.Minute

func doctorCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "doctor",
		Usage: "check that a gateway can work here, and say what to do where it can't",
		Description: `Each line is ok, warn or fail; the line below says what to do. Exit code 1 when a line
is fail. The checks start the Copilot runtime and end it again.

Examples:
  tapgw doctor
  tapgw doctor --json | jq '.[] | select(.status != "ok")'`,
		Action: func(c *ucli.Context) error {
			ctx, cancel := context.WithTimeout(c.Context, doctorTimeout)
			defer cancel()
			if _, err := cli.Workdir(c); err != nil {
				return err
			}
			config, files, err := loadConfig(c)
			return cli.Doctor(ctx, cli.Out(c), doctor.New(ctx, config, files, err).Checks())
		},
	}
}
