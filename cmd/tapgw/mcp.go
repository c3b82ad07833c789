package main

import ucli "github.com/urfave/cli/v2"

func mcpCommand() *ucli.Command {
	return &ucli.Command{
		Name:        "mcp",
		Usage:       "give MCP clients the tools of a session",
		Description: "Examples:\n  tapgw mcp install claude",
		Subcommands: []*ucli.Command{mcpInstallCommand(), mcpUninstallCommand()},
	}
}
