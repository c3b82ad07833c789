package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/mcpclients"
	"tapgw/internal/visible"
)

func mcpImportCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "import",
		Usage:     "turn the MCP servers of a client's config file into provider files",
		ArgsUsage: "FILE",
		Description: `FILE is where an MCP client keeps its servers: Copilot, Claude Code, VS Code, Cursor, Gemini,
Codex, OpenCode or Zed. Each server becomes a provider file of kind mcp beside the config
in use, so that a gateway that runs starts it at once. A file that exists stays as it is.

No secret is copied: where the client's file has one in a variable or a header, the
provider file has a variable, and a note tells its name. Set it where the gateway starts.

Examples:
  tapctl mcp import ~/.claude.json --dry-run
  tapctl mcp import .vscode/mcp.json
  tapctl mcp import ~/.codex/config.toml --json`,
		Flags:  importFlags(),
		Action: importMCP,
	}
}

func importMCP(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 1); err != nil {
		return err
	}
	file := c.Args().First()
	if file == "" {
		return cli.Usage("mcp import: a FILE is missing, for example ~/.claude.json")
	}
	file, err := cli.Absolute(c, file)
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return cli.NotFound("mcp import: there is no file %s", visible.Line(file))
	}
	files, err := configFiles(c)
	if err != nil {
		return err
	}
	servers, err := mcpclients.ReadServers(file)
	if err != nil {
		return err
	}
	results := []importResult{}
	for i, p := range mcpclients.Providers(servers) {
		results = append(results, importServer(c, files, servers[i], p))
	}
	return showImport(cli.Out(c), imported{command: "mcp import", what: "servers",
		none: visible.Line(file) + " has no MCP servers", results: results})
}

// importServer writes the provider file of a server, or with --dry-run only reports the change.
func importServer(
	c *ucli.Context,
	files configs.Files,
	s mcpclients.Imported,
	p *mcpclients.ProviderFile,
) importResult {
	r := importResult{Server: s.Name, Variables: []string{}, Notes: append([]string{}, s.Notes...),
		Reason: s.Reason}
	if p == nil {
		r.State = importSkipped
		return r
	}
	r.write(c, files, p.Name, p.Text)
	if r.File == "" {
		return r
	}
	r.Variables = append(r.Variables, p.Variables...)
	for _, name := range slices.Sorted(maps.Keys(p.Moved)) {
		r.Notes = append(r.Notes, fmt.Sprintf("set %s to what %s has", name, p.Moved[name]))
	}
	return r
}
