package main

import (
	"context"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

func mcpCommand() *ucli.Command {
	run := func(do langserver.MCPAction,
		show func(langserver.MCPState) (lines []any, rows [][]any, columns []string)) ucli.ActionFunc {
		return action(1, shortTimeout, func(c *command) error { return c.runMCP(do, show) })
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
		Action: run("", mcpRow),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Usage: "list the MCP servers with their states", ArgsUsage: "[SERVER]",
				Description: `Exit code 1 if one has failed.

Examples:
  lsclient mcp list --json | jq -r '.[].status'`,
				Action: run("", mcpRow),
			},
			{
				Name: "tools", Usage: "list the tools of the MCP servers", ArgsUsage: "[SERVER]",
				Description: "Examples:\n  lsclient mcp tools --json | jq -r '.[] | .server + \"/\" + .name'",
				Action:      run("", mcpToolRows),
			},
			{
				Name: "start", Usage: "start MCP servers, all or one", ArgsUsage: "[SERVER]",
				Description: "Exit code 1 if one does not start.\n\nExamples:\n  lsclient mcp start files",
				Action:      run(langserver.MCPStart, mcpRow),
			},
			{
				Name: "stop", Usage: "stop MCP servers, all or one", ArgsUsage: "[SERVER]",
				Description: "Examples:\n  lsclient mcp stop files",
				Action:      run(langserver.MCPStop, mcpRow),
			},
			{
				Name: "restart", Usage: "stop MCP servers and start them again, all or one", ArgsUsage: "[SERVER]",
				Description: "Exit code 1 if one does not start.\n\nExamples:\n  lsclient mcp restart",
				Action:      run(langserver.MCPRestart, mcpRow),
			},
		},
	}
}

// mcpLine is an MCP server, or one of its tools, as --json prints it.
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

func mcpRow(s langserver.MCPState) (lines []any, rows [][]any, columns []string) {
	return []any{mcpLine{s.Name, s.Status, len(s.Tools), s.Error}},
		[][]any{{s.Name, s.Status, len(s.Tools), cli.Shorten(cli.OneLine(s.Error), 80)}},
		[]string{"NAME", "STATUS", "TOOLS", "ERROR"}
}

func mcpToolRows(s langserver.MCPState) (lines []any, rows [][]any, columns []string) {
	for _, t := range s.Tools {
		lines = append(lines, mcpToolLine{s.Name, t.Name, t.Description})
		rows = append(rows, []any{s.Name, t.Name, cli.Shorten(cli.OneLine(t.Description), 80)})
	}
	return lines, rows, []string{"SERVER", "TOOL", "DESCRIPTION"}
}

// runMCP does something to the MCP server that the command line names, or to all, and prints them as show turns each
// into lines of JSON and rows of a table. Without an action it waits until each runs or has failed.
func (c *command) runMCP(action langserver.MCPAction,
	show func(langserver.MCPState) (lines []any, rows [][]any, columns []string)) error {
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
	lines, table, failed := []any{}, &cli.Table{}, false
	none := workspace.NoMCPServers
	if len(names) > 0 {
		none = "no tools"
	}
	for _, name := range names {
		s := workspace.MCPState(states, name)
		more, rows, columns := show(s)
		lines, table.Columns = append(lines, more...), columns
		for _, row := range rows {
			table.Row(row...)
		}
		if s.Error != "" && len(rows) == 0 {
			c.out.Notef("lsclient: MCP server %s: %s", name, cli.OneLine(s.Error))
		}
		failed = failed || s.Error != ""
	}
	if c.out.JSON {
		err = c.out.Document(lines)
	} else {
		err = c.out.Table(table, none)
	}
	if err == nil && failed {
		return cli.Reported(cli.ExitFailed)
	}
	return err
}

// mcp runs the line /mcp [start|stop|restart [SERVER]] of a chat.
func (c *chat) mcp(ctx context.Context, arguments string) error {
	action, name, _ := strings.Cut(arguments, " ")
	actions := []langserver.MCPAction{"", langserver.MCPStart, langserver.MCPStop, langserver.MCPRestart}
	if !slices.Contains(actions, langserver.MCPAction(action)) {
		return cli.Usage("/mcp %s: use /mcp, or /mcp start, stop or restart, and a server's name or none", action)
	}
	names, err := c.cmd.workspace.MCPNames(strings.TrimSpace(name))
	if err != nil {
		return err
	}
	return c.interruptible(ctx, func(ctx context.Context) error {
		var states []langserver.MCPState
		var err error
		if action == "" {
			states, err = c.v.server.MCPServers(ctx)
		} else {
			states, err = c.cmd.workspace.ChangeMCP(ctx, c.v.server, names, langserver.MCPAction(action))
		}
		if err != nil {
			return workspace.ExitError(err)
		}
		if len(names) == 0 {
			c.cmd.out.Notef(workspace.NoMCPServers)
		}
		for _, name := range names {
			s := workspace.MCPState(states, name)
			line := s.Name + "  " + s.Status
			if workspace.IsRunning(s) {
				line += ", " + visible.Count(len(s.Tools), "tool")
			}
			if s.Error != "" {
				line += ": " + cli.OneLine(s.Error)
			}
			c.cmd.out.Notef("%s", line)
		}
		return nil
	})
}
