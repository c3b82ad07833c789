package main

import "tapgw/internal/cli"

func mcpCommand() *cli.Command {
	return &cli.Command{
		Name:  "mcp",
		Usage: "MCP servers and clients",
		Description: "Examples:\n  tapctl mcp token --session review\n" +
			"  tapctl mcp import .vscode/mcp.json --dry-run",
		Subcommands: []*cli.Command{mcpTokenCommand(), mcpImportCommand()},
	}
}
