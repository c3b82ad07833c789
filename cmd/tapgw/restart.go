package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

func restartCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "restart",
		Usage: "end the gateway that runs, and start it again as it was started",
		Description: `One of tapgw ensure is started with the flags that it had, and the environment of
this shell; a service by systemd or launchd, as its file says. One in the foreground
(tapgw serve) is left alone, with exit code 1: whoever started it has its terminal.
Exit code 3 when none runs. Sessions end; tapctl sessions resume brings those of the
Copilot runtime back. It prints the URL.

Examples:
  tapgw restart`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context, stopTimeout+serviceTimeout)
			defer cancel()
			out := cli.Out(c)
			g, err := stateDir(configs.StateDir()).restart(ctx, out)
			if err != nil {
				return err
			}
			return announce(out, g)
		},
	}
}

func (d stateDir) restart(ctx context.Context, out *cli.Output) (gatewayInfo, error) {
	// Nobody's ensure is to start another one in between.
	if err := proc.PrivateDir(string(d)); err != nil {
		return gatewayInfo{}, err
	}
	lock, err := proc.WaitLock(ctx, d.starting())
	if err != nil {
		return gatewayInfo{}, err
	}
	defer lock.Unlock()
	g, err := d.holder()
	if err != nil {
		return g, err
	}
	if len(g.Args) > 0 {
		if err := startable(g.Args); err != nil {
			return g, fmt.Errorf("%w; the gateway of process %d runs on", err, g.PID)
		}
		if _, err := d.stop(ctx, out); err != nil {
			return g, err
		}
		return d.ensure(ctx, g.Args)
	}
	m, err := runningService(ctx, g.PID)
	if err != nil {
		return g, err
	}
	if m == nil {
		return g, cli.Failed("the gateway of process %d runs in the foreground (tapgw serve) and can't be restarted from here: end it (Ctrl-C there, or tapgw stop) and start it there again", g.PID)
	}
	if _, err := d.stop(ctx, out); err != nil {
		return g, err
	}
	if err := m.start(ctx); err != nil {
		return g, err
	}
	next, ok, err := d.present(ctx)
	if err == nil && !ok {
		err = errors.New("the service was started and its gateway has ended again (see tapgw logs)")
	}
	return next, err
}

// startable says what keeps a gateway with these arguments, which are tapgw ensure's,
// from reading its config files.
func startable(args []string) error {
	var dir, named string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--workdir="); ok {
			dir = value
		} else if value, ok := strings.CutPrefix(arg, "--config="); ok {
			named = value
		}
	}
	files, err := configs.Find(dir, named)
	if err != nil {
		return err
	}
	_, err = files.Load()
	return err
}

// runningService is the manager that runs a process as our service, nil if none does.
func runningService(ctx context.Context, pid int) (serviceManager, error) {
	m, err := thisServiceManager()
	if err != nil {
		return nil, nil //nolint:nilerr // a system without one
	}
	if file, err := ownServiceFile(m); err != nil || file == nil {
		return nil, nil //nolint:nilerr // another's file is no service of ours
	}
	now, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	if !now.running || now.pid != pid {
		return nil, nil
	}
	return m, nil
}
