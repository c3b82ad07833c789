package main

import ucli "github.com/urfave/cli/v2"

func mcpCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "mcp",
		Usage: "MCP servers and clients",
		Description: "Examples:\n  tapctl mcp token --session review\n" +
			"  tapctl mcp import .vscode/mcp.json --dry-run",
		Subcommands: []*ucli.Command{mcpTokenCommand(), mcpImportCommand()},
	}
}
