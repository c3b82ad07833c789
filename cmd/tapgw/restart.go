package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/service"
	"tapgw/internal/statedir"
)

func restartCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "restart",
		Usage: "end the gateway that runs, and start it again as it was started",
		Description: `A gateway of tapgw ensure starts with the flags that it had, and with the environment
of this shell. systemd or launchd restarts a service as its file says. A gateway in
the foreground (tapgw serve) runs on, with exit code 1: restart it in its terminal.
So does one whose config file has a fault. Exit code 3 when no gateway runs. The next
gateway gets the open addresses of the one before, so browsers stay signed in. Sessions
end; tapctl sessions resume brings those of the Copilot runtime back. It prints the
URL.

Examples:
  tapgw restart`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context, daemon.StopTimeout+service.Timeout)
			defer cancel()
			out := cli.Out(c)
			plan := func(g statedir.Info) (func(context.Context) error, error) { return planRestart(ctx, g) }
			g, err := stateDir().Restart(ctx, plan, noteTo(out))
			if err != nil {
				return err
			}
			return printInfo(out, g)
		},
	}
}

// planRestart returns how to start the gateway g again, nil when tapgw ensure started it.
// It refuses a gateway in the foreground, and one whose config file has a fault.
func planRestart(ctx context.Context, g statedir.Info) (start func(context.Context) error, err error) {
	args := g.Args
	configFile := argValue(args, "--config=")
	if len(args) == 0 {
		s, err := runningService(ctx, g.PID)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, cli.Failed("the gateway of process %d runs in the foreground (tapgw serve) and can't be "+
				"restarted from here: end it (Ctrl-C there, or tapgw stop) and start it there again", g.PID)
		}
		p, err := s.Program()
		if err != nil {
			return nil, err
		}
		start, args, configFile = s.Start, p.Args, serviceConfig(p)
	}
	files, err := configs.Find(argValue(args, "--workdir="), configFile)
	if err == nil {
		_, err = files.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("%w; the gateway of process %d runs on", err, g.PID)
	}
	return start, nil
}

// serviceConfig is the config file of a service: --config of its arguments, else the file
// in its XDG_CONFIG_HOME, which may differ from this process's; "" where neither exists.
func serviceConfig(p service.Program) string {
	if named := argValue(p.Args, "--config="); named != "" {
		return named
	}
	file := filepath.Join(argValue(p.Env, "XDG_CONFIG_HOME="), "tapgw", "tapgw.toml")
	if _, err := os.Stat(file); err != nil || !filepath.IsAbs(file) {
		return ""
	}
	return file
}

// argValue returns the text behind a prefix in the first word that has the prefix.
func argValue(words []string, prefix string) string {
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, prefix); ok {
			return value
		}
	}
	return ""
}
