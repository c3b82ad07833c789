package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/mcpclients"
	"tapgw/internal/proc"
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
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "show the files and write nothing"},
		},
		Action: importMCP,
	}
}

// States of an imported server.
const (
	importWritten   = "written"
	importNew       = "new"       // with --dry-run
	importUnchanged = "unchanged" // its file says the same already
	importExists    = "exists"    // its file says something else
	importSkipped   = "skipped"   // it can't be a provider
)

// importResult is what tapctl mcp import says about a server, in JSON.
type importResult struct {
	Server    string   `json:"server"`
	State     string   `json:"state"`
	File      string   `json:"file,omitempty"`
	Variables []string `json:"variables"` // that the gateway's environment must have
	Notes     []string `json:"notes"`
	Reason    string   `json:"reason,omitempty"` // why it was skipped

	text []byte
}

func importMCP(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 1); err != nil {
		return err
	}
	file := c.Args().First()
	if file == "" {
		return cli.Usage("mcp import: a FILE is missing, for example ~/.claude.json")
	}
	dir, err := cli.Workdir(c)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
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
		results = append(results, importOne(c, files, servers[i], p))
	}
	return showImport(cli.Out(c), file, results)
}

// importOne writes the provider file of a server, or with --dry-run says what it would be.
func importOne(c *ucli.Context, files configs.Files, s mcpclients.Imported, p *mcpclients.ProviderFile) importResult {
	r := importResult{
		Server:    s.Name,
		State:     importSkipped,
		Variables: []string{},
		Notes:     append([]string{}, s.Notes...),
	}
	if r.Reason = s.Reason; p == nil {
		return r
	}
	path, err := files.UserProvider(p.Name)
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	if _, faults := configs.ParseProvider(path, p.Text); len(faults) > 0 {
		r.Reason = faults[0].Message
		return r
	}
	r.File, r.text = path, p.Text
	r.Variables = append(r.Variables, p.Variables...)
	for _, name := range slices.Sorted(maps.Keys(p.Moved)) {
		r.Notes = append(r.Notes, fmt.Sprintf("set %s to what %s has", name, p.Moved[name]))
	}
	if c.Bool("dry-run") {
		r.State = importNew
		_, err = os.Lstat(path)
		if err == nil {
			err = fs.ErrExist
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		r.State = importWritten
		err = proc.WriteNew(path, p.Text)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		r.State = importExists
		if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, p.Text) { //nolint:gosec // a provider file
			r.State = importUnchanged
		}
	case err != nil:
		r.State, r.Reason = importSkipped, err.Error()
	}
	return r
}

// showImport prints what became of each server. It fails if one was skipped.
func showImport(out *cli.Output, file string, results []importResult) error {
	skipped := 0
	for _, r := range results {
		if r.State == importSkipped {
			skipped++
		}
	}
	if out.JSON {
		if err := out.Document(results); err != nil {
			return err
		}
	} else if err := printImport(out, results); err != nil {
		return err
	}
	switch {
	case len(results) == 0:
		out.Notef("%s has no MCP servers", visible.Line(file))
	case skipped > 0 && out.JSON:
		return cli.Reported(cli.ExitFailed)
	case skipped > 0:
		return cli.Failed("mcp import: %d of %d servers were skipped", skipped, len(results))
	}
	return nil
}

func printImport(out *cli.Output, results []importResult) error {
	for _, r := range results {
		var b strings.Builder
		switch r.State {
		case importSkipped:
			fmt.Fprintf(&b, "%s: skipped: %s\n", cli.OneLine(r.Server), cli.OneLine(r.Reason))
		case importExists:
			fmt.Fprintf(&b, "%s: exists, and is not overwritten: rename or remove it\n", visible.Line(r.File))
		default:
			fmt.Fprintf(&b, "%s: %s\n", visible.Line(r.File), r.State)
		}
		if r.State == importNew {
			for line := range strings.Lines(visible.Text(string(r.text))) {
				b.WriteString("  " + line)
			}
		}
		if err := out.Printf("%s", b.String()); err != nil {
			return err
		}
		for _, note := range r.Notes {
			out.Notef("%s: %s", cli.OneLine(r.Server), cli.OneLine(note))
		}
	}
	return nil
}
