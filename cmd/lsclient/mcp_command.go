package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

func mcpCommand() *ucli.Command {
	run := func(do langserver.MCPAction, listsTools bool) ucli.ActionFunc {
		return action(1, shortTimeout, func(c *command) error { return c.runMCP(do, listsTools) })
	}
	return &ucli.Command{
		Name:  "mcp",
		Usage: "show the MCP servers and try them",
		Description: `The MCP servers are those of [mcp.NAME] in lsclient.toml and of --mcp. The language
server runs them for one command; so start, stop and restart show whether a server does
that, and say why not.

Examples:
  lsclient mcp
  lsclient mcp tools files --mcp ./mcp.json
  lsclient mcp restart files`,
		Action: run("", false),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Usage: "list the MCP servers with their states",
				ArgsUsage: "[SERVER]",
				Description: `Exit code 1 if one has failed.

Examples:
  lsclient mcp list --json | jq -r '.[].status'`,
				Action: run("", false),
			},
			{
				Name: "tools", Usage: "list the tools of the MCP servers", ArgsUsage: "[SERVER]",
				Description: "Examples:\n  lsclient mcp tools --json | jq -r '.[] | .server + " +
					"\"/\" + .name'",
				Action: run("", true),
			},
			{
				Name: "start", Usage: "start MCP servers, all or one", ArgsUsage: "[SERVER]",
				Description: "Exit code 1 if one does not start.\n\nExamples:\n  lsclient mcp " +
					"start files",
				Action: run(langserver.MCPStart, false),
			},
			{
				Name: "stop", Usage: "stop MCP servers, all or one", ArgsUsage: "[SERVER]",
				Description: "Examples:\n  lsclient mcp stop files",
				Action:      run(langserver.MCPStop, false),
			},
			{
				Name: "restart", Usage: "stop MCP servers and start them again, all or one",
				ArgsUsage: "[SERVER]",
				Description: "Exit code 1 if one does not start.\n\nExamples:\n  lsclient mcp " +
					"restart",
				Action: run(langserver.MCPRestart, false),
			},
		},
	}
}

// mcpLine is an MCP server as --json prints it, and mcpToolLine one of its tools.
type (
	mcpLine struct {
		Name   string `json:"name"`
		Status string `json:"status"`
		Tools  int    `json:"tools"`
		Error  string `json:"error"`
	}
	mcpToolLine struct {
		Server      string `json:"server"`
		Name        string `json:"name"`
		Description string `json:"description"`
	}
)

// runMCP runs an action on the MCP server that the command line names, or on all, and prints them
// or their tools. Without an action it waits until each runs or has failed.
func (c *command) runMCP(action langserver.MCPAction, listsTools bool) error {
	names, err := c.workspace.MCPNames(c.Args().First())
	if err != nil {
		return err
	}
	var states []langserver.MCPState
	err = c.server(func(c *command, server *langserver.Client) error {
		states, err = c.workspace.ChangeMCP(c.ctx, server, names, action)
		return err
	})
	if err != nil {
		return err
	}
	lines, table, failed := []any{},
		&cli.Table{Columns: []string{"NAME", "STATUS", "TOOLS", "ERROR"}}, false
	if listsTools {
		table.Columns = []string{"SERVER", "TOOL", "DESCRIPTION"}
	}
	for _, name := range names {
		s := workspace.MCPState(states, name)
		failed = failed || s.Error != ""
		if !listsTools {
			lines = append(lines, mcpLine{s.Name, s.Status, len(s.Tools), s.Error})
			table.Row(s.Name, s.Status, len(s.Tools), cli.Shorten(cli.OneLine(s.Error), 80))
			continue
		}
		for _, t := range s.Tools {
			lines = append(lines, mcpToolLine{s.Name, t.Name, t.Description})
			table.Row(s.Name, t.Name, cli.Shorten(cli.OneLine(t.Description), 80))
		}
		if s.Error != "" && len(s.Tools) == 0 {
			c.out.Notef("lsclient: MCP server %s: %s", name, cli.OneLine(s.Error))
		}
	}
	none := workspace.NoMCPServers
	if len(names) > 0 {
		none = "no tools"
	}
	return cli.FailedIf(failed, c.out.List(lines, table, none))
}
