package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/service"
)

// The commands tapgw service, which install, show and remove the service of the system.

func serviceCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "service",
		Usage: "run the gateway from login on, restarted when it fails",
		Description: `A systemd user unit on Linux, a launchd agent on macOS, for this user alone. It runs
this program as tapgw serve, with the COPILOT_HOME, COPILOT_CLI_PATH, XDG_CONFIG_HOME
and PATH of the shell that installs it.

Examples:
  tapgw service install
  tapgw service status
  tapgw service uninstall`,
		Subcommands: []*ucli.Command{
			{
				Name:  "install",
				Usage: "write the service's file and start it",
				Description: `It does nothing when the service is installed and runs. Run it again after the
program has moved, or with other flags: it writes the file anew and restarts the
gateway, whose sessions end. The gateway works in your home directory unless -w names
another. If the service fails to start, tapgw restores the previous one.

Examples:
  tapgw service install
  tapgw service install --listen 127.0.0.1:9500 --config ~/tapgw.toml
  tapgw service install --print`,
				Flags: []ucli.Flag{
					listenFlag(),
					&ucli.BoolFlag{Name: "print", Usage: "print the file and change nothing"},
					&ucli.BoolFlag{Name: "no-start",
						Usage: "leave it for the next login to start or restart"},
				},
				Action: installService,
			},
			{
				Name:  "uninstall",
				Usage: "stop the service and remove its file",
				Description: `Sessions end as with every stop. Config, sign-in and logs stay.

Examples:
  tapgw service uninstall`,
				Action: serviceAction(uninstallService),
			},
			{
				Name:  "status",
				Usage: "say whether the service is installed and running",
				Description: `Exit code 0 when it runs, 1 when it does not, 4 when it is not installed.

Examples:
  tapgw service status || tapgw service install`,
				Action: serviceAction(showService),
			},
		},
	}
}

func serviceAction(do func(context.Context, *service.Service, *cli.Output) error) ucli.ActionFunc {
	return func(c *ucli.Context) error {
		s, err := service.New()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context, service.Timeout)
		defer cancel()
		return do(ctx, s, cli.Out(c))
	}
}

func installService(c *ucli.Context) error {
	s, err := service.New()
	if err != nil {
		return err
	}
	p, err := serviceProgram(c)
	if err != nil {
		return err
	}
	definition, err := s.Define(p)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if c.Bool("print") {
		line := map[string]string{
			"manager": s.Manager(), "file": s.File(), "definition": string(definition),
		}
		return out.Result(line, "%s", definition)
	}
	ctx, cancel := context.WithTimeout(c.Context, service.Timeout)
	defer cancel()
	start, wasRunning := !c.Bool("no-start"), false
	check := func(before service.State) error {
		wasRunning = before.Running
		if !start || before.Running {
			return nil
		}
		if g, ok := stateDir().Running(ctx); ok {
			return cli.Failed(
				"service install: a gateway runs already: process %d at %s; end it (tapgw stop), "+
					"or leave the start to the next login with --no-start", g.PID, g.URL)
		}
		return nil
	}
	var action string
	err = stateDir().KeepSockets(ctx, noteTo(out), func() error {
		action, err = s.Install(ctx, definition, start, check)
		return err
	})
	if err != nil {
		return err
	}
	line, err := s.Line(ctx)
	if err != nil {
		return err
	}
	line.Action = action
	if err := printService(out, line, action); err != nil || action == service.Unchanged {
		return err
	}
	if wasRunning && !start {
		out.Notef("tapgw: the gateway runs on with the old file until: %s", s.RestartCommand())
	}
	for _, hint := range s.Hints() {
		out.Notef("tapgw: %s", hint)
	}
	return nil
}

func uninstallService(ctx context.Context, s *service.Service, out *cli.Output) error {
	action, err := s.Uninstall(ctx)
	if err != nil {
		return err
	}
	line, text := service.Line{Action: action, Manager: s.Manager(), File: s.File()},
		"removed: %s\n"
	if action == service.None {
		text = notInstalled
	}
	return out.Result(line, text, s.File())
}

const notInstalled = "not installed: there is no %s\n"

// showService prints the service's state; the exit code of its error says it as well.
func showService(ctx context.Context, s *service.Service, out *cli.Output) error {
	isInstalled, err := s.Installed()
	if err != nil {
		return err
	}
	if !isInstalled {
		line := service.Line{Manager: s.Manager(), File: s.File()}
		if err := out.Result(line, notInstalled, s.File()); err != nil {
			return err
		}
		return cli.Reported(cli.ExitNotFound)
	}
	line, err := s.Line(ctx)
	if err != nil {
		return err
	}
	if err := printService(out, line, "installed"); err != nil {
		return err
	}
	switch own := cli.Version(); {
	case !line.Running:
		return cli.Reported(cli.ExitFailed)
	case line.Version != "" && line.Version != own:
		out.Notef("tapgw: the service runs version %s, this program is %s: %s", line.Version, own,
			s.RestartCommand())
	}
	return nil
}

func printService(out *cli.Output, line service.Line, title string) error {
	state := "does not run"
	switch {
	case line.Running && line.URL != "":
		state = fmt.Sprintf("runs as process %d at %s", line.PID, line.URL)
	case line.Running:
		state = fmt.Sprintf("runs as process %d", line.PID)
	}
	if !line.Enabled {
		state += ", and does not start at login"
	}
	return out.Result(line, "%s: %s\nthe service %s\n", title, line.File, state)
}

// serviceProgram is this program as the service runs it: with the flags that were given
// and parts of this environment. It checks the flags and the config file as tapgw serve
// does.
func serviceProgram(c *ucli.Context) (service.Program, error) {
	p := service.Program{Args: []string{"serve"}}
	dir, err := cli.Workdir(c)
	if err != nil {
		return p, err
	}
	named := c.String("config")
	if named == "" {
		named = os.Getenv(configs.EnvConfig)
	}
	if named != "" && !filepath.IsAbs(named) {
		named = filepath.Join(dir, named)
	}
	if c.IsSet("workdir") {
		p.Args = append(p.Args, "--workdir="+dir)
	} else {
		dir = xdg.Home
	}
	if named != "" {
		p.Args = append(p.Args, "--config="+named)
	}
	if c.IsSet("listen") {
		p.Args = append(p.Args, "--listen="+c.String("listen"))
	}
	files, err := configs.Find(dir, named)
	if err != nil {
		return p, err
	}
	config, err := files.Load()
	if err != nil {
		return p, err
	}
	if err := override(c, &config); err != nil {
		return p, err
	}
	if p.Path, err = os.Executable(); err != nil {
		return p, fmt.Errorf("finding our own program: %w", err)
	}
	if strings.Contains(p.Path, string(filepath.Separator)+"go-build") {
		return p, cli.Failed("service install: go run deletes %s when it ends; "+
			"build a program that stays: go install ./cmd/...", p.Path)
	}
	p.Env = service.Environ()
	return p, nil
}
