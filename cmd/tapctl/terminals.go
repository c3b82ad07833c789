package main

import (
	"cmp"
	"strconv"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

func attachCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "attach",
		Usage:     "join a terminal that was started with: copilot --ui-server",
		ArgsUsage: "PORT|auto",
		Description: `The terminal becomes a session: providers give it tools, push to it and gate its calls. The
gateway follows it to the session that it shows, also after /clear, until the terminal
ends. The terminal prints its PORT; auto looks for your terminals and joins all of them.

The port has no authentication of its own: every program and user of the machine can
use it while the terminal runs. The extension has no port:
tapgw install copilot --extension.

Examples:
  tapctl attach 35625
  tapctl attach auto`,
		Action: shortAction(1, attach),
	}
}

func attach(c *command) error {
	word := c.Args().First()
	switch word {
	case "":
		return cli.Usage("attach: PORT is missing: give the PORT that the terminal prints, or auto")
	case "auto":
	default:
		port, err := strconv.Atoi(word)
		if err != nil || port < 1 || port > 65535 {
			return cli.Usage(
				"attach: %q is no port; give the PORT that the terminal prints, or auto", word)
		}
		return c.attachPort(port)
	}
	found, err := proc.Listeners(c.ctx, "--ui-server")
	if err != nil {
		return cli.Failed("attach auto: %v; give the PORT that the terminal prints", err)
	}
	if len(found) == 0 {
		return cli.NotFound("no terminal of yours listens; start one with: copilot --ui-server")
	}
	var failed error
	for _, l := range found {
		c.out.Notef("found process %d with port %d", l.PID, l.Port)
		if err := c.attachPort(l.Port); err != nil {
			c.out.Notef("port %d: %v", l.Port, err)
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

// attachPort makes the gateway join one terminal, and prints the warning for the person.
func (c *command) attachPort(port int) error {
	attached, err := c.gw.AttachTerminal(c.ctx, port)
	if err != nil {
		return err
	}
	c.out.Notef("warning: %s", attached.Warning)
	return c.line(attached, attached.Session)
}
