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
	"tapgw/tools"
)

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newApp(), args, stdin, stdout, stderr)
}

func newApp() *ucli.App {
	return &ucli.App{
		Name:  "lsclient",
		Usage: "run agent turns on the Copilot language server",
		Description: `Tools are built in, or lie in a directory: a Python module or any program with a
manifest. They serve the language server and, as a provider, a gateway's sessions.

Exit codes: 0 done, 1 it ran and failed, 2 wrong usage, 3 gateway not reachable,
4 not found, 5 refused or not signed in, 124 timed out.

Examples:
  lsclient agent 'why does the build fail?'
  git diff | lsclient agent -
  lsclient tools call grep_search --args '{"query":"main"}'
  lsclient provide`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "config", Usage: "read `FILE` (default: $" + configs.EnvLSConfig +
				", else the user's own and the workspace's)"},
			&ucli.StringSliceFlag{Name: "tools", Usage: "take drop-in tools from `DIR`, too"},
			&ucli.DurationFlag{Name: "timeout", Usage: "give up after `TIME`",
				DefaultText: "30s for short requests, else none"},
			cli.WorkdirFlag(),
			cli.VerboseFlag(),
		},
		Commands: []*ucli.Command{
			agentCommand(),
			chatCommand(),
			completeCommand(),
			modelsCommand(),
			loginCommand(),
			statusCommand(),
			logoutCommand(),
			doctorCommand(),
			toolsCommand(),
			provideCommand(),
		},
	}
}

// call is what a command has at hand: its flags and arguments, a context that
// ends at --timeout or Ctrl-C, its output, and the configuration: see conf.
type call struct {
	*ucli.Context
	ctx       context.Context
	out       *cli.Output
	workspace string
	named     []string // directories of --tools
	files     configs.LSFiles
	config    atomic.Pointer[configs.LSClient]
	external  *tools.External

	rounds int    // of --max-rounds; 0: the configuration's
	chosen string // the model that the person chose; "": that of --model or the configuration
}

// shortTimeout is for what the server answers by itself.
const shortTimeout = 30 * time.Second

// action makes the action of a command with at most args arguments, that ends
// at --timeout, else after timeout, 0 for never.
func action(args int, timeout time.Duration, do func(*call) error) ucli.ActionFunc {
	return func(c *ucli.Context) error {
		if err := cli.MaxArgs(c, args); err != nil {
			return err
		}
		if c.IsSet("timeout") {
			if timeout = c.Duration("timeout"); timeout <= 0 {
				return cli.Usage("flag --timeout: must be more than 0")
			}
		}
		k, err := newCall(c)
		if err != nil {
			return err
		}
		defer tools.Close()
		defer k.external.Close()
		if timeout > 0 {
			var cancel context.CancelFunc
			k.ctx, cancel = context.WithTimeout(k.ctx, timeout)
			defer cancel()
		}
		return do(k)
	}
}

func newCall(c *ucli.Context) (*call, error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return nil, err
	}
	k := &call{Context: c, ctx: c.Context, out: cli.Out(c), workspace: dir, external: &tools.External{}}
	if k.named, err = k.namedDirs(); err != nil {
		return nil, err
	}
	config, files, err := k.readConfig()
	if _, faulty := errors.AsType[configs.Faults](err); faulty {
		return nil, cli.Failed("%v", err)
	}
	if err != nil {
		return nil, err
	}
	k.files = files
	k.external.Check = k.checkTools
	k.config.Store(&config)
	if k.out.Verbose {
		k.external.Log = func(file, line string) { k.out.Notef("%s: %s", filepath.Base(file), cli.Clean(line)) }
	}
	if k.files.Untrusted != "" {
		k.out.Notef("lsclient: %s is left out: %s", cli.OneLine(k.files.Untrusted), cli.OneLine(k.whyUntrusted()))
	}
	return k, nil
}
