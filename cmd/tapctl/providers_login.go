package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func providerLoginCommand() *ucli.Command {
	return providerResource.long(&ucli.Command{
		Name: "login", Usage: "log in at the MCP server of a provider",
		Description: `For a provider of kind mcp with a URL whose server wants OAuth. Prints a link, and on a
terminal opens it in a browser. The browser returns to a port of the gateway's machine, so
a browser elsewhere needs that port forwarded: ssh -L. The command waits for that, for five
minutes at most. The gateway keeps the token and renews it; the provider then connects.

Exit code 5 means that the login was denied, 124 that nobody logged in.

With --json the first line has url, the last has provider and loggedIn.

Examples:
  tapctl providers login tools
  tapctl providers login tools --print`,
		Flags: []ucli.Flag{&ucli.BoolFlag{Name: "print", Usage: "only print the link, and wait"}},
	}, loginProvider)
}

func loginProvider(c *command, name string) error {
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
		}
		if err := c.line(map[string]string{"url": step.URL}, step.URL); err != nil {
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
	return providerResource.short(&ucli.Command{
		Name: "logout", Usage: "forget the login at the MCP server of a provider",
		Description: `Removes what the gateway keeps of the login. The server is not told: its own pages say how
to withdraw what you allowed.

Examples:
  tapctl providers logout tools`,
	}, logoutProvider)
}

func logoutProvider(c *command, name string) error {
	had, err := c.gw.LogoutProvider(c.ctx, name)
	if err != nil {
		return err
	}
	text := "%s has no login"
	if had {
		text = "logged out for %s"
	}
	return c.out.Done(map[string]any{"provider": name, "loggedOut": had}, text, cli.OneLine(name))
}
