package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// The app of tapctl: its commands, and the client and time limits that they share.

// shortTimeout is for requests that the gateway answers at once, without waiting for a session or a
// person.
const shortTimeout = 30 * time.Second

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newApp(), args, stdin, stdout, stderr)
}

func newApp() *ucli.App {
	return &ucli.App{
		Name:  "tapctl",
		Usage: "steer a running gateway: sessions, providers, tools, streams",
		Description: `tapctl talks to the gateway that --url or $TAP_GATEWAY_URL names, else to the one that
runs for this user. It sends nothing before the gateway has proved that it knows the
admin token. An ID may be shortened to a unique beginning, or be the session's label.
Without an ID a command means the only session, or the foreground session.

Exit codes: 0 done, 1 it ran and failed, 2 wrong usage, 3 gateway not reachable,
4 not found, 5 refused, 124 timed out.

Examples:
  tapctl sessions start --host local
  tapctl sessions query 'call:hello {"name":"you"}'
  tapctl push --level inject 'the build is broken'
  tapctl tools call hello --args '{"name":"you"}'`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "url",
				Usage: "the gateway's `URL` (default: $TAP_GATEWAY_URL, else as found)"},
			&ucli.StringFlag{Name: "token",
				Usage: "the admin `TOKEN`; other users of the machine can read it here " +
					"(default: $TAP_ADMIN_TOKEN, else from the gateway's file)"},
			&ucli.StringFlag{Name: "gateway",
				Usage: "act on the gateway `NAME` of the cluster, if that allows it"},
			&ucli.DurationFlag{
				Name: "timeout", Usage: "give up after `TIME`",
				DefaultText: "30s for short requests, else none",
			},
			cli.ConfigFlag(),
			cli.WorkdirFlag(),
			cli.VerboseFlag(),
		},
		Commands: []*ucli.Command{
			sessionsCommand(),
			pushCommand(),
			queryCommand(),
			providersCommand(),
			sourcesCommand(),
			goalsCommand(),
			recordsCommand(),
			evalsCommand(),
			pairCommand(),
			toolsCommand(),
			mcpCommand(),
			modelsCommand(),
			statusCommand(),
			reloadCommand(),
			watchCommand(),
			openCommand(),
			recordCommand(),
			attachCommand(),
			conformanceCommand(),
			replayCommand(),
		},
	}
}

// command is a command that runs: its flags and arguments, a context that ends at --timeout or
// Ctrl-C, its output, and the gateway.
type command struct {
	*ucli.Context
	ctx context.Context
	out *cli.Output
	gw  *client.Client
}

// shortAction makes the action of a command that the gateway answers at once. It ends
// after shortTimeout, unless one of the named flags makes it wait, such as --follow. args is how
// many arguments the command takes at most.
func shortAction(args int, do func(*command) error, unless ...string) ucli.ActionFunc {
	return func(flags *ucli.Context) error {
		if slices.ContainsFunc(unless, flags.Bool) {
			return action(args, 0, do)(flags)
		}
		return action(args, shortTimeout, do)(flags)
	}
}

// longAction makes the action of a command that may wait for a turn or a person. It ends at
// --timeout only.
func longAction(args int, do func(*command) error) ucli.ActionFunc { return action(args, 0, do) }

const anyArgs = 1 << 20 // as many arguments as the user gives

func action(args int, timeout time.Duration, do func(*command) error) ucli.ActionFunc {
	return func(flags *ucli.Context) error {
		if err := cli.MaxArgs(flags, args); err != nil {
			return err
		}
		c, cancel, err := newCommand(flags, timeout)
		if err != nil {
			return err
		}
		defer cancel()
		return do(c)
	}
}

func newCommand(flags *ucli.Context, timeout time.Duration) (*command, context.CancelFunc, error) {
	ctx, cancel, err := cli.Limited(flags, timeout)
	if err != nil {
		return nil, nil, err
	}
	gw, err := newClient(flags)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	c := &command{flags, ctx, cli.Out(flags), gw}
	if c.out.Verbose {
		gw.Trace = func(format string, args ...any) {
			_, _ = fmt.Fprintf(c.out.Err, format+"\n", args...)
		}
	}
	return c, func() { cancel(); gw.Close() }, nil
}

func newClient(flags *ucli.Context) (*client.Client, error) {
	if _, err := configFiles(flags); err != nil {
		return nil, err
	}
	return client.New(client.Options{URL: flags.String("url"), Token: flags.String("token"),
		Gateway: flags.String("gateway")})
}

// configFiles finds the configuration that --config and -w name.
func configFiles(flags *ucli.Context) (configs.Files, error) {
	dir, err := cli.Workdir(flags)
	if err != nil {
		return configs.Files{}, err
	}
	files, err := configs.Find(dir, flags.String("config"))
	if err != nil {
		return configs.Files{}, cli.Usage("%v", err)
	}
	return files, nil
}

// ignoreInterrupt returns nil in place of err if the user pressed Ctrl-C: a command that follows
// something ends so.
func ignoreInterrupt(c *command, err error) error {
	if errors.Is(c.Err(), context.Canceled) { // by a signal; --timeout is c.ctx's alone
		return nil
	}
	return err
}
