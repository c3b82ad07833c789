package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/mcpserver"
)

func mcpCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "mcp",
		Usage: "give MCP clients the tools of a session",
		Description: `MCP clients start it: it speaks MCP on stdin and stdout, in every revision of the
protocol, and serves the session that --session names. Without it, a Copilot CLI that starts
it gets its own session, which becomes one of the gateway; other clients get the foreground
session of each moment. It finds the gateway as tapctl does, and connects again after a
restart.

Exit code 3 means that no gateway runs. With --ensure it starts one, also in place of one
that was killed, but not of one that somebody has stopped.

Examples:
  tapgw mcp install claude
  tapgw mcp --session review --ensure`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "session",
				Usage: "a session's `ID`, its beginning, or its label"},
			&ucli.BoolFlag{Name: "ensure", Usage: "start a gateway in the background if none runs"},
		},
		Action:      mcp,
		Subcommands: []*ucli.Command{mcpInstallCommand(), mcpUninstallCommand()},
	}
}

// mcp serves a session to the MCP client that started this program.
func mcp(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	out := cli.Out(c)
	d := mcpserver.NewDialer(c.String("session"), c.Bool("ensure"), c.String("config"))
	relay := mcpserver.Relay{In: c.App.Reader, Out: c.App.Writer, Dial: d.Dial,
		Note: func(text string) { out.Notef("tapgw mcp: %s", text) },
	}
	return relay.Run(c.Context)
}
