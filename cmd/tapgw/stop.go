package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func stopCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "stop",
		Usage: "end the gateway that runs, and wait until it is gone",
		Description: `It ends any gateway of this COPILOT_HOME, however that was started. Sessions and
providers have 10 seconds to end; tapgw says which ones it waits for. Exit code 3
when no gateway runs. A service starts again at the next login; to end it for good,
use tapgw service uninstall.

Examples:
  tapgw stop
  tapgw stop || [ $? = 3 ]     # a gateway that does not run is fine`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			out := cli.Out(c)
			g, err := stateDir().Stop(c.Context, noteTo(out))
			if err != nil {
				return err
			}
			return out.Done(map[string]any{"pid": g.PID, "url": g.URL},
				"tapgw: stopped the gateway of process %d", g.PID)
		},
	}
}

// noteTo prints lines for people, after the program's name.
func noteTo(out *cli.Output) func(line string) {
	return func(line string) { out.Notef("tapgw: %s", line) }
}
