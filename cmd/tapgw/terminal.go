package main

import (
	"context"
	"io"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/terminals/pipe"
)

// terminalCommand is the command that the extension of the Copilot CLI runs.
func terminalCommand() *ucli.Command {
	return &ucli.Command{
		Name:   "terminal",
		Hidden: true,
		Usage:  "connect a terminal of the Copilot CLI with the gateway; its extension runs this",
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "ensure", Usage: "start a gateway in the background if none runs"},
		},
		Action: terminal,
	}
}

// terminal lends the pipe on stdin and stdout to the gateway of this user, and to the next one when
// that is gone. Without a gateway it is silent: the CLI works as it does without the extension.
func terminal(c *ucli.Context) error {
	session := os.Getenv(pipe.EnvSession)
	if session == "" {
		return cli.Usage("the Copilot CLI's extension runs this: %s is not set", pipe.EnvSession)
	}
	out := cli.Out(c)
	mayStart := c.Bool("ensure")
	p := pipe.Pipe{
		In: c.App.Reader, Out: c.App.Writer, Session: session,
		Note: func(text string) { out.Notef("tapgw terminal: %s", text) },
		Dial: func(ctx context.Context, had []string) (io.ReadWriteCloser, error) {
			conn, err := pipe.Dial(ctx, session, had)
			if mayStart && err != nil && cli.AsError(err).Exit == cli.ExitUnreachable {
				if err := daemon.EnsureApart(ctx, c.String("config")); err != nil {
					mayStart = false
					return nil, err
				}
				conn, err = pipe.Dial(ctx, session, had)
			}
			// A gateway that ends later was stopped on purpose, or is being restarted.
			mayStart = false
			return conn, err
		},
	}
	return p.Run(c.Context)
}
