package main

import (
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/install"
	"tapgw/internal/mcpclients"
)

func mcpInstallCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "install",
		Usage:     "add the gateway to an MCP client's config file",
		ArgsUsage: strings.Join(mcpclients.Names(), "|"),
		Description: `It adds an entry tapgw to the file where the client keeps its MCP servers, after it has
shown the change. Everything else in the file stays as it is, comments included. An entry
from before is brought up to date. On a terminal it asks first; elsewhere it needs --yes.

The entry runs tapgw mcp, which finds the gateway by itself and needs no secret in the
client's file. With --http the entry has the gateway's URL, and the client must have the
token in the variable ` + install.EnvToken + ` of its environment.

Examples:
  tapgw mcp install claude
  tapgw mcp install vscode --project --dry-run
  tapgw mcp install copilot --session review --yes
  tapgw mcp install codex --http`,
		Flags: append(mcpFileFlags(),
			&ucli.StringFlag{Name: "session",
				Usage: "give it the session `ID`, not the foreground one"},
			&ucli.BoolFlag{Name: "ensure", Usage: "let the client start a gateway if none runs"},
			&ucli.BoolFlag{Name: "http", Usage: "write the gateway's URL, not a command"},
		),
		BashComplete: completeClients,
		Action: func(c *ucli.Context) error {
			client, project, err := mcpClient(c)
			if err != nil {
				return err
			}
			server, err := mcpServer(c, client)
			if err != nil {
				return err
			}
			return dialog(c).InstallClient(c.Context, client, server, project)
		},
	}
}

func mcpUninstallCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "uninstall",
		Usage:     "take the gateway out of an MCP client's config file",
		ArgsUsage: strings.Join(mcpclients.Names(), "|"),
		Description: `It removes the entry tapgw, so that the file is what it was before tapgw mcp install.

Examples:
  tapgw mcp uninstall claude
  tapgw mcp uninstall vscode --project --yes`,
		Flags:        mcpFileFlags(),
		BashComplete: completeClients,
		Action: func(c *ucli.Context) error {
			client, project, err := mcpClient(c)
			if err != nil {
				return err
			}
			return dialog(c).UninstallClient(c.Context, client, project)
		},
	}
}

func mcpFileFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "project",
			Usage: "in the working directory's file, not in the user's"},
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"},
			Usage: "show the change and write nothing"},
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "write without asking"},
	}
}

func completeClients(c *ucli.Context) {
	if c.NArg() == 0 && cli.Completing(c) == "" {
		for _, name := range mcpclients.Names() {
			cli.Candidate(c, name, "")
		}
	}
}

// mcpClient returns the client that the argument names, and with --project the directory.
func mcpClient(c *ucli.Context) (client mcpclients.Client, project string, err error) {
	if err := cli.MaxArgs(c, 1); err != nil {
		return client, "", err
	}
	names := strings.Join(mcpclients.Names(), ", ")
	client, ok := mcpclients.Find(c.Args().First())
	switch {
	case c.NArg() == 0:
		return client, "", cli.Usage("mcp %s: a client is missing: %s", c.Command.Name, names)
	case !ok:
		return client, "", cli.Usage("mcp %s: %q is none of %s", c.Command.Name, c.Args().First(),
			names)
	case c.Bool("project"):
		project, err = cli.Workdir(c)
	}
	return client, project, err
}

// mcpServer returns how the client is to reach the gateway.
func mcpServer(c *ucli.Context, client mcpclients.Client) (s mcpclients.Server, err error) {
	session := c.String("session")
	if c.IsSet("session") && session == "" {
		return s, cli.Usage("flag --session: is empty")
	}
	if c.Bool("http") {
		if c.Bool("ensure") {
			return s,
				cli.Usage("flags --ensure and --http exclude each other: a URL starts nothing")
		}
		return install.URL(c.Context, client, session, func() (configs.Config, error) {
			config, _, err := loadConfig(c)
			return config, err
		})
	}
	var args []string
	if session != "" {
		args = append(args, "--session", session)
	}
	if c.Bool("ensure") {
		args = append(args, "--ensure")
	}
	return install.Command(args...)
}
