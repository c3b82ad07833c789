package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/terminal"
	"tapgw/tools"
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
			&ucli.StringFlag{Name: "config", Usage: "read `FILE` (default: $" + configs.EnvLSConfig +
				", else the user's and the workspace's)"},
			&ucli.StringSliceFlag{Name: "tools", Usage: "also use the drop-in tools of `DIR`"},
			&ucli.StringSliceFlag{
				Name:  "mcp",
				Usage: "`FILE|JSON`: also run MCP servers, in the form that editors write",
			},
			&ucli.StringFlag{Name: "proxy", Usage: "reach GitHub through the proxy at `URL`"},
			&ucli.BoolFlag{Name: "no-ssl-verify", Usage: "do not check certificates of GitHub and the proxy"},
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

// command is a running command: its flags and arguments, a context that ends at --timeout or Ctrl-C, its output,
// and the configuration, see [command.conf].
type command struct {
	*ucli.Context
	ctx       context.Context
	out       *cli.Output
	workspace string
	flagDirs  []string // directories of --tools
	files     configs.LSFiles
	config    atomic.Pointer[configs.LSClient]
	external  *tools.External
	flagMCP   map[string]configs.MCPServer // of --mcp, by name
	screen    *terminal.Terminal           // of a chat on a terminal; nil: none
	status    *terminal.Status             // of an agent on a terminal; nil: none
	display   display                      // the one of them that there is; nil: none

	rounds       int    // of --max-rounds; 0: as the configuration says
	chosenModel  string // of /model in a chat; "": that of --model or the configuration
	chosenEffort string // of /effort in a chat; "": that of --effort
	todoList     bool   // the model keeps a list of what is to do, which a person sees
	reasoning    bool   // the model's reasoning is shown, or hidden with -v
}

// shortTimeout bounds requests that the server answers without a model.
const shortTimeout = 30 * time.Second

// action makes the action of a command with at most args arguments. It ends after --timeout, else after timeout; 0
// means never.
func action(args int, timeout time.Duration, do func(*command) error) ucli.ActionFunc {
	return func(uc *ucli.Context) error {
		if err := cli.MaxArgs(uc, args); err != nil {
			return err
		}
		if uc.IsSet("timeout") {
			if timeout = uc.Duration("timeout"); timeout <= 0 {
				return cli.Usage("flag --timeout: must be more than 0")
			}
		}
		c, err := newCommand(uc)
		if err != nil {
			return err
		}
		defer tools.Close()
		defer c.external.Close()
		if timeout > 0 {
			var cancel context.CancelFunc
			c.ctx, cancel = context.WithTimeout(c.ctx, timeout)
			defer cancel()
		}
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
	c := &command{Context: uc, ctx: uc.Context, out: cli.Out(uc), workspace: dir, external: &tools.External{}}
	if c.flagDirs, err = c.readFlagDirs(); err != nil {
		return nil, err
	}
	if c.flagMCP, err = c.readFlagMCP(); err != nil {
		return nil, err
	}
	config, files, err := c.readConfig()
	if _, faulty := errors.AsType[configs.Faults](err); faulty {
		return nil, cli.Failed("%v", err)
	}
	if err != nil {
		return nil, err
	}
	c.files = files
	c.external.Check = c.checkTools
	c.external.Allow = func() []string { return c.conf().Tools.Env }
	c.external.Beside = tools.All
	c.external.Replace = func() []string { return c.conf().Tools.Replace }
	c.config.Store(&config)
	if c.out.Verbose {
		c.external.Log = func(file, line string) { c.out.Notef("%s: %s", filepath.Base(file), cli.Clean(line)) }
	}
	if c.files.Untrusted != "" {
		c.out.Notef("lsclient: %s is left out: %s", cli.OneLine(c.files.Untrusted), cli.OneLine(c.whyUntrusted()))
	}
	return c, nil
}
