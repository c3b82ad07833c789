package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/service"
	"tapgw/internal/statedir"
)

func restartCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "restart",
		Usage: "end the gateway that runs, and start it again as it was started",
		Description: `A gateway of tapgw ensure starts with the flags that it had, and with the environment
of this shell. systemd or launchd restarts a service as its file says. A gateway in
the foreground (tapgw serve) runs on, with exit code 1: restart it in its terminal.
So does one whose config file has a fault. Exit code 3 when no gateway runs. The next
gateway gets the open addresses of the one before, so browsers stay signed in. Sessions
end; tapctl sessions resume brings those of the Copilot runtime back. It prints the
URL.

Examples:
  tapgw restart`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context, daemon.StopTimeout+service.Timeout)
			defer cancel()
			out := cli.Out(c)
			plan := func(g statedir.Info) (func(context.Context) error, error) {
				return service.PlanRestart(ctx, g)
			}
			g, err := stateDir().Restart(ctx, plan, noteTo(out))
			if err != nil {
				return err
			}
			return printInfo(out, g)
		},
	}
}
