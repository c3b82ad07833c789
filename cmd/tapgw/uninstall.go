package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/install"
)

func uninstallCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "uninstall",
		Usage: "take away what tapgw wrote into other programs' files, and the service",
		Description: `Without a name it removes all that tapgw install, tapgw mcp install and tapgw service install
wrote: for you, in the working directory, and in the projects where --project wrote something.
The service stops. It shows everything first; on a terminal it asks, elsewhere it needs --yes.

Files have the bytes again that they had before. A file of tapgw that a person has changed
stays, and so does one that can't be read; the exit code is 1 then. Sign-in, config and records
stay as well: docs/operations.md says where they are.

Examples:
  tapgw uninstall --dry-run
  tapgw uninstall
  tapgw uninstall --yes --json
  tapgw uninstall mcp`,
		Flags:  uninstallFlags(),
		Action: func(c *ucli.Context) error { return uninstall(c, install.Dialog.Uninstall) },
		Subcommands: []*ucli.Command{
			uninstallCopilotCommand(),
			uninstallSkillsCommand(),
			{
				Name:  "mcp",
				Usage: "take the gateway out of the config files of all MCP clients",
				Description: `It removes the entry tapgw for you, in the working directory, and in the projects where
--project wrote something. tapgw mcp uninstall CLIENT does it for one client.

Examples:
  tapgw uninstall mcp --dry-run
  tapgw uninstall mcp --yes`,
				Flags: uninstallFlags(),
				Action: func(c *ucli.Context) error {
					return uninstall(c, install.Dialog.UninstallClients)
				},
			},
			{
				Name:  "service",
				Usage: "stop the service and remove its file",
				Description: `It does what tapgw service uninstall does, and asks first. Sessions end as with every stop.

Examples:
  tapgw uninstall service --dry-run
  tapgw uninstall service --yes`,
				Flags: uninstallFlags(),
				Action: func(c *ucli.Context) error {
					return uninstall(c, install.Dialog.UninstallService)
				},
			},
		},
	}
}

func uninstallFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"},
			Usage: "show what would go, and remove nothing"},
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "remove without asking"},
	}
}

// uninstall runs an uninstallation of the user's.
func uninstall(c *ucli.Context, do func(install.Dialog, context.Context) error) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	return do(dialog(c), c.Context)
}
