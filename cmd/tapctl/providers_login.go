package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func providerLoginCommand() *ucli.Command {
	return &ucli.Command{
		Name: "login", Usage: "log in at the MCP server of a provider", ArgsUsage: "NAME",
		Description: `For a provider of kind mcp with a URL whose server wants OAuth. Prints a link, and on a
terminal opens it in a browser. The browser returns to a port of the gateway's machine, so
a browser elsewhere needs that port forwarded: ssh -L. The command waits for that, for five
minutes at most. The gateway keeps the token and renews it; the provider then connects.

Exit code 5 means that the login was denied, 124 that nobody logged in.

With --json the first line has url, the last has provider and loggedIn.

Examples:
  tapctl providers login tools
  tapctl providers login tools --print`,
		Flags:        []ucli.Flag{&ucli.BoolFlag{Name: "print", Usage: "only print the link, and wait"}},
		BashComplete: providerNames(),
		Action:       longAction(1, loginProvider),
	}
}

func loginProvider(c *command) error {
	name, err := providerName(c)
	if err != nil {
		return err
	}
	browser := c.out.Terminal && !c.out.JSON && !c.Bool("print")
	for step, err := range c.gw.LoginProvider(c.ctx, name, browser) {
		switch {
		case err != nil:
			return err
		case step.Done && c.out.JSON:
			return c.out.Line(map[string]any{"provider": name, "loggedIn": true})
		case step.Done:
			c.out.Notef("logged in for %s", cli.OneLine(name))
			return nil
		case c.out.JSON:
			err = c.out.Line(map[string]string{"url": step.URL})
		default:
			err = c.out.Printf("%s\n", step.URL)
		}
		if err != nil {
			return err
		}
		if browser && !browse(step.File) {
			c.out.Notef("found no browser here: open the link in one yourself")
		}
		c.out.Notef("waiting for the browser; Ctrl-C cancels")
	}
	return nil
}

func providerLogoutCommand() *ucli.Command {
	return &ucli.Command{
		Name: "logout", Usage: "forget the login at the MCP server of a provider", ArgsUsage: "NAME",
		Description: `Removes what the gateway keeps of the login. The server is not told: its own pages say how
to withdraw what you allowed.

Examples:
  tapctl providers logout tools`,
		BashComplete: providerNames(),
		Action:       shortAction(1, logoutProvider),
	}
}

func logoutProvider(c *command) error {
	name, err := providerName(c)
	if err != nil {
		return err
	}
	had, err := c.gw.LogoutProvider(c.ctx, name)
	switch {
	case err != nil:
		return err
	case c.out.JSON:
		return c.out.Document(map[string]any{"provider": name, "loggedOut": had})
	case had:
		c.out.Notef("logged out for %s", cli.OneLine(name))
	default:
		c.out.Notef("%s has no login", cli.OneLine(name))
	}
	return nil
}
