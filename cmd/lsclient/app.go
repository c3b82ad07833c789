package main

import (
	"context"
	"io"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/agent/console"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
)

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newApp(), args, stdin, stdout, stderr)
}

func newApp() *ucli.App {
	return &ucli.App{
		Name:  "lsclient",
		Usage: "run agent turns on the Copilot language server",
		Description: `Tools are built in, or files of a directory: a Python module, or any program with a
manifest. The language server uses them and, with "provide", a gateway's sessions do.

Exit codes: 0 done, 1 it ran and failed, 2 wrong usage, 3 gateway not reachable,
4 not found, 5 refused or not signed in, 124 timed out.

Examples:
  lsclient agent 'why does the build fail?'
  git diff | lsclient agent 'review this'
  lsclient agent --plan 'how would you split this package?'
  lsclient chat --continue
  lsclient tools call grep_search --args '{"query":"main"}'
  lsclient provide`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "config",
				Usage: "read `FILE` (default: $" + configs.EnvLSConfig +
					", else the user's and the workspace's)"},
			&ucli.StringSliceFlag{Name: "tools", Usage: "also use the drop-in tools of `DIR`"},
			&ucli.StringSliceFlag{
				Name:  "mcp",
				Usage: "`FILE|JSON`: also run MCP servers, in the form that editors write",
			},
			&ucli.StringFlag{Name: "proxy", Usage: "reach GitHub through the proxy at `URL`"},
			&ucli.BoolFlag{Name: "no-ssl-verify",
				Usage: "do not check certificates of GitHub and the proxy"},
			&ucli.DurationFlag{Name: "timeout", Usage: "give up after `TIME`",
				DefaultText: "30s for short requests, else none"},
			cli.WorkdirFlag(),
			cli.VerboseFlag(),
		},
		Commands: []*ucli.Command{
			agentCommand(),
			chatCommand(),
			conversationsCommand(),
			orchestrateCommand(),
			undoCommand(),
			completeCommand(),
			modelsCommand(),
			loginCommand(),
			statusCommand(),
			logoutCommand(),
			doctorCommand(),
			toolsCommand(),
			mcpCommand(),
			provideCommand(),
		},
	}
}

// command is a running command: its flags and arguments, a context that ends at --timeout or
// Ctrl-C, its output, and its workspace.
type command struct {
	*ucli.Context
	ctx       context.Context
	out       *cli.Output
	console   *console.Console
	workspace *workspace.Workspace
}

// shortTimeout bounds requests that the server answers without a model.
const shortTimeout = 30 * time.Second

// action makes the action of a command with at most args arguments. It ends after --timeout, else
// after timeout; 0 means never.
func action(args int, timeout time.Duration, do func(*command) error) ucli.ActionFunc {
	return func(uc *ucli.Context) error {
		if err := cli.MaxArgs(uc, args); err != nil {
			return err
		}
		ctx, cancel, err := cli.Limited(uc, timeout)
		if err != nil {
			return err
		}
		defer cancel()
		c, err := newCommand(uc)
		if err != nil {
			return err
		}
		defer c.workspace.Close()
		c.ctx = ctx
		if err := do(c); err != nil {
			return err
		}
		return c.out.Failure()
	}
}

func newCommand(uc *ucli.Context) (*command, error) {
	dir, err := cli.Workdir(uc)
	if err != nil {
		return nil, err
	}
	c := &command{Context: uc, ctx: uc.Context, out: cli.Out(uc)}
	c.console = console.New(console.Options{Out: c.out, Stdin: c.App.Reader, Stdout: c.App.Writer,
		Stderr: c.App.ErrWriter, Plain: c.Bool("plain")})
	o := workspace.Options{Dir: dir, ConfigFile: c.String("config"),
		ToolDirs:   c.StringSlice("tools"),
		MCPServers: c.StringSlice("mcp"), NoSSLVerify: c.Bool("no-ssl-verify"),
		Plan: c.Bool("plan"), Note: c.out.Notef}
	if c.IsSet("proxy") {
		proxy := c.String("proxy")
		o.Proxy = &proxy
	}
	if c.out.Verbose {
		o.Log = stderr{c.out}
	}
	c.workspace, err = workspace.Open(o)
	return c, err
}

// stderr writes to the present place of messages, which changes when the command begins to draw on
// a terminal.
type stderr struct{ out *cli.Output }

func (s stderr) Write(p []byte) (int, error) { return s.out.Err.Write(p) }
