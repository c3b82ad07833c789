package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/mcpclients"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// envMCPToken is the variable of a client's environment that has the token for /mcp.
const envMCPToken = "TAP_MCP_TOKEN" //nolint:gosec // a name

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
token in the variable ` + envMCPToken + ` of its environment.

Examples:
  tapgw mcp install claude
  tapgw mcp install vscode --project --dry-run
  tapgw mcp install copilot --session review --yes
  tapgw mcp install codex --http`,
		Flags: append(mcpFileFlags(),
			&ucli.StringFlag{Name: "session", Usage: "give it the session `ID`, not the foreground one"},
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
			change, err := client.Install(server, project)
			if err != nil {
				return err
			}
			if err := errors.Join(applyChange(c, client, change), noteProject(c, project)); err != nil {
				return err
			}
			if server.URL != "" && change.Kind != mcpclients.None {
				cli.Out(c).Notef("%s needs the token in %s of its environment; tapctl mcp token prints one",
					client.Name, envMCPToken)
			}
			return nil
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
			change, err := client.Uninstall(project)
			if err != nil {
				return err
			}
			return errors.Join(applyChange(c, client, change), noteProject(c, project))
		},
	}
}

func mcpFileFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "project", Usage: "in the working directory's file, not in the user's"},
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "show the change and write nothing"},
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
		return client, "", cli.Usage("mcp %s: %q is none of %s", c.Command.Name, c.Args().First(), names)
	case c.Bool("project"):
		project, err = cli.Workdir(c)
	}
	return client, project, err
}

// canAsk reports whether somebody can answer a question.
func canAsk(c *ucli.Context) bool {
	in, ok := c.App.Reader.(*os.File)
	return ok && cli.Terminal(in) && cli.Terminal(c.App.ErrWriter) && !cli.Out(c).JSON
}

// mcpServer returns how the client is to reach the gateway.
func mcpServer(c *ucli.Context, client mcpclients.Client) (s mcpclients.Server, err error) {
	session := c.String("session")
	if c.IsSet("session") && session == "" {
		return s, cli.Usage("flag --session: is empty")
	}
	if c.Bool("http") {
		if c.Bool("ensure") {
			return s, cli.Usage("flags --ensure and --http exclude each other: a URL starts nothing")
		}
		return mcpURL(c, client, session)
	}
	var args []string
	if session != "" {
		args = append(args, "--session", session)
	}
	if c.Bool("ensure") {
		args = append(args, "--ensure")
	}
	program, err := ownProgram()
	if err == nil {
		err = checkProgram("mcp install", program)
	}
	if err != nil {
		return s, err
	}
	return stdioServer(program, args...)
}

// stdioServer is tapgw mcp with some flags. Most clients start servers with few of their own variables.
func stdioServer(program string, args ...string) (s mcpclients.Server, err error) {
	s.Command = append([]string{program, "mcp"}, args...)
	if os.Getenv(statedir.EnvHome) != "" {
		home, err := statedir.Home()
		if err != nil {
			return s, err
		}
		s.Env = map[string]string{statedir.EnvHome: home}
	}
	return s, nil
}

// ownProgram returns the absolute path of this program: as PATH has it if it is the same file, because such a path
// stays when a new version is installed elsewhere and linked.
func ownProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	named, err := exec.LookPath(filepath.Base(os.Args[0]))
	if err != nil {
		return self, nil //nolint:nilerr // it is not on PATH
	}
	a, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	if b, err := os.Stat(named); err != nil || !os.SameFile(a, b) {
		return self, nil //nolint:nilerr // another program's name
	}
	return filepath.Abs(named)
}

// mcpURL returns the URL of the gateway that runs, or that the config makes.
func mcpURL(c *ucli.Context, client mcpclients.Client, session string) (s mcpclients.Server, err error) {
	if !client.HasVariables() {
		return s, cli.Usage(
			"flag --http: %s can't read a token from a variable, and a token does not belong in its file; "+
				"leave --http out",
			client.Name,
		)
	}
	base := ""
	if g, runs := stateDir().Running(c.Context); runs {
		base = "http" + strings.TrimPrefix(g.URL, "ws")
	} else {
		config, _, err := loadConfig(c)
		if err != nil {
			return s, err
		}
		scheme := "http"
		if config.TLSCert != "" {
			scheme = "https"
		}
		base = scheme + "://" + config.Listen
		if strings.HasSuffix(config.Listen, ":0") {
			return s, cli.Failed("mcp install --http: the gateway takes another port at each start; set listen")
		}
	}
	s.URL, s.TokenEnv = base+"/mcp", envMCPToken
	if session != "" {
		s.URL += "/s/" + url.PathEscape(session)
	}
	return s, nil
}

// changeResult is what tapgw mcp install and uninstall show as JSON.
type changeResult struct {
	Client  string `json:"client"`
	File    string `json:"file"`
	Change  string `json:"change"` // none, added, updated, removed
	Written bool   `json:"written"`
	Diff    string `json:"diff,omitempty"`
}

// applyChange shows a change and writes it, unless the user says no.
func applyChange(c *ucli.Context, client mcpclients.Client, change *mcpclients.Change) error {
	if change.Kind != mcpclients.None && !c.Bool("yes") && !c.Bool("dry-run") && !canAsk(c) {
		return cli.Usage(
			"mcp %s: there is no terminal to ask on: give --yes to write %s, or --dry-run to see the change",
			c.Command.Name,
			visible.Line(change.File),
		)
	}
	out := cli.Out(c)
	d := change.Diff()
	r := changeResult{Client: client.Name, File: change.File, Change: change.Kind, Diff: d.String()}
	if change.Kind == mcpclients.None {
		if out.JSON {
			return out.Document(r)
		}
		return out.Printf("%s: nothing changes\n", visible.Line(change.File))
	}
	if !out.JSON {
		if err := printDiff(out, &d); err != nil {
			return err
		}
	}
	if r.Written = !c.Bool("dry-run"); r.Written {
		if !c.Bool("yes") {
			if err := confirm(c.Context, c, "Write it?"); err != nil {
				return err
			}
		}
		if err := change.Write(); err != nil {
			return err
		}
	}
	if out.JSON {
		return out.Document(r)
	}
	if !r.Written {
		return nil
	}
	return out.Printf("%s: %s %s\n", client.Name, change.Kind, visible.Line(change.File))
}

// printDiff prints a diff with its colours.
func printDiff(out *cli.Output, d *diff.Diff) error {
	var b strings.Builder
	for line := range strings.Lines(d.String()) {
		line = visible.Line(strings.TrimRight(line, "\r\n"))
		ink := cli.Plain
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
			ink = cli.Bold
		case strings.HasPrefix(line, "+"):
			ink = cli.Green
		case strings.HasPrefix(line, "-"):
			ink = cli.Red
		case strings.HasPrefix(line, "@@"):
			ink = cli.Blue
		}
		b.WriteString(out.Paint(ink, line) + "\n")
	}
	return out.Printf("%s", b.String())
}

// confirm asks a question on the terminal. An answer other than yes is an error.
func confirm(ctx context.Context, c *ucli.Context, question string) error {
	_, _ = fmt.Fprintf(c.App.ErrWriter, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the line, or with the process
		line, _ := bufio.NewReader(c.App.Reader).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return cli.Failed("nothing was written")
	case <-ctx.Done():
		return errors.Join(cli.Failed("nothing was written"), context.Cause(ctx))
	}
}
