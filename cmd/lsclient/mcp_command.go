package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
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

// readFlagMCP returns the MCP servers of --mcp. The caller names and so trusts them.
func (c *command) readFlagMCP() (map[string]configs.MCPServer, error) {
	servers := map[string]configs.MCPServer{}
	for _, value := range c.StringSlice("mcp") {
		text, from := []byte(value), ""
		if !strings.HasPrefix(strings.TrimSpace(value), "{") {
			var err error
			if text, err = os.ReadFile(value); err != nil {
				return nil, cli.Usage("flag --mcp: %v", err)
			}
			from = value + ": "
		}
		more, err := configs.ParseMCP(text)
		if err != nil {
			return nil, cli.Usage("flag --mcp: %s%v", from, err)
		}
		maps.Copy(servers, more)
	}
	return servers, nil
}

// mcp returns the MCP servers of flags and the configuration, by name. A flag's replaces the configuration's of its
// name. With --plan there are none: nobody knows what their tools do.
func (c *command) mcp() map[string]configs.MCPServer {
	if c.Bool("plan") {
		return nil
	}
	servers := maps.Clone(c.conf().MCP)
	if servers == nil {
		servers = map[string]configs.MCPServer{}
	}
	maps.Copy(servers, c.flagMCP)
	return servers
}

// mcpNames returns the names of the server that the command line names, or of all.
func (c *command) mcpNames(server string) ([]string, error) {
	names := slices.Sorted(maps.Keys(c.mcp()))
	if server == "" {
		return names, nil
	}
	if !slices.Contains(names, server) {
		there := "there are none; add [mcp.NAME] to lsclient.toml, or use --mcp"
		if len(names) > 0 {
			there = "there are " + strings.Join(names, ", ")
		}
		return nil, cli.NotFound("there is no MCP server %q: %s", server, there)
	}
	return []string{server}, nil
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

// mcpState returns the state of a server; one that the language server does not name has not started.
func mcpState(states []langserver.MCPState, name string) langserver.MCPState {
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	return langserver.MCPState{Name: name, Status: "stopped"}
}

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
	names, err := c.mcpNames(c.Args().First())
	if err != nil {
		return err
	}
	var states []langserver.MCPState
	err = c.server(func(c *command, server *langserver.Client) error {
		states, err = c.changeMCP(c.ctx, server, names, action)
		return err
	})
	if err != nil {
		return err
	}
	lines, table, failed := []any{}, &cli.Table{}, false
	none := "none; add [mcp.NAME] to lsclient.toml, or use --mcp"
	if len(names) > 0 {
		none = "no tools"
	}
	for _, name := range names {
		s := mcpState(states, name)
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

// changeMCP does something to MCP servers, nothing for an empty action, and returns the states of all.
func (c *command) changeMCP(ctx context.Context, server *langserver.Client, names []string,
	action langserver.MCPAction) ([]langserver.MCPState, error) {
	status, err := server.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !status.OK {
		return nil, langserver.ErrNotSignedIn
	}
	// They start by themselves, and what has not ended starting can't be stopped.
	states, err := c.mcpStates(ctx, server)
	if err != nil || action == "" {
		return states, err
	}
	reasons := map[string]string{}
	for _, name := range names {
		if err := server.ChangeMCP(ctx, name, action); err != nil {
			reasons[name] = err.Error()
		}
	}
	states, err = server.MCPServers(ctx)
	for i := range states {
		states[i].Error = cmp.Or(states[i].Error, reasons[states[i].Name])
	}
	return states, err
}

// mcp runs the line /mcp [start|stop|restart [SERVER]] of a chat.
func (c *chat) mcp(ctx context.Context, arguments string) error {
	action, name, _ := strings.Cut(arguments, " ")
	actions := []langserver.MCPAction{"", langserver.MCPStart, langserver.MCPStop, langserver.MCPRestart}
	if !slices.Contains(actions, langserver.MCPAction(action)) {
		return cli.Usage("/mcp %s: use /mcp, or /mcp start, stop or restart, and a server's name or none", action)
	}
	names, err := c.cmd.mcpNames(strings.TrimSpace(name))
	if err != nil {
		return err
	}
	return c.interruptible(ctx, func(ctx context.Context) error {
		var states []langserver.MCPState
		var err error
		if action == "" {
			states, err = c.v.server.MCPServers(ctx)
		} else {
			states, err = c.cmd.changeMCP(ctx, c.v.server, names, langserver.MCPAction(action))
		}
		if err != nil {
			return withExitCode(err)
		}
		if len(names) == 0 {
			c.cmd.out.Notef("none; add [mcp.NAME] to lsclient.toml, or use --mcp")
		}
		for _, name := range names {
			s := mcpState(states, name)
			line := s.Name + "  " + s.Status
			if isRunning(s) {
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
