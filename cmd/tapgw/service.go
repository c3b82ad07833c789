package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// serviceTimeout bounds what the service manager does for us: a gateway takes up
// to 15 s to end, and another needs its time to start.
const serviceTimeout = time.Minute

// serviceLine is how the service is, as --json shows it.
type serviceLine struct {
	Action    string `json:"action,omitzero"` // what was done: installed, updated, started, unchanged, removed, none
	Manager   string `json:"manager"`
	File      string `json:"file"`
	Installed bool   `json:"installed"`
	Enabled   bool   `json:"enabled"`
	Running   bool   `json:"running"`
	PID       int    `json:"pid,omitzero"`
	URL       string `json:"url,omitzero"`
	Version   string `json:"version,omitzero"`
}

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
				Description: `Does nothing when all is as it should be, else writes the file anew: run it again
after the program has moved, or to give other flags; a gateway that runs is then
restarted, and its sessions end. It works in your home directory unless -w names
another. When it cannot be started, all is left as it was.

Examples:
  tapgw service install
  tapgw service install --listen 127.0.0.1:9500 --config ~/tapgw.toml
  tapgw service install --print`,
				Flags: []ucli.Flag{
					listenFlag(),
					&ucli.BoolFlag{Name: "print", Usage: "print the file and change nothing"},
					&ucli.BoolFlag{Name: "no-start", Usage: "leave it for the next login to start or restart"},
				},
				Action: installService,
			},
			{
				Name:  "uninstall",
				Usage: "stop the service and remove its file",
				Description: `Sessions end as with every stop. Config, sign-in and logs stay.

Examples:
  tapgw service uninstall`,
				Action: serviceAction(dropService),
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

func serviceAction(do func(context.Context, serviceManager, *cli.Output) error) ucli.ActionFunc {
	return func(c *ucli.Context) error {
		m, err := thisServiceManager()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context, serviceTimeout)
		defer cancel()
		return do(ctx, m, cli.Out(c))
	}
}

func installService(c *ucli.Context) error {
	m, err := thisServiceManager()
	if err != nil {
		return err
	}
	p, err := theServiceProgram(c)
	if err != nil {
		return err
	}
	definition, err := m.define(p)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if c.Bool("print") {
		if out.JSON {
			return out.Document(map[string]string{"manager": m.name(), "file": m.file(), "definition": string(definition)})
		}
		return out.Printf("%s", definition)
	}
	ctx, cancel := context.WithTimeout(c.Context, serviceTimeout)
	defer cancel()
	return putService(ctx, m, definition, !c.Bool("no-start"), out)
}

// putService makes the service be as defined, or leaves all as it was.
func putService(ctx context.Context, m serviceManager, definition []byte, start bool, out *cli.Output) error {
	old, err := ownServiceFile(m)
	if err != nil {
		return err
	}
	was, err := m.look(ctx)
	if err != nil {
		return err
	}
	if start && !was.running {
		if g, ok := stateDir(configs.StateDir()).running(ctx); ok {
			return cli.Failed("service install: a gateway runs already: process %d at %s; end it (tapgw stop), or leave the start to the next login with --no-start", g.PID, g.URL)
		}
	}
	action := "installed"
	switch same := bytes.Equal(old, definition); {
	case same && was.enabled && (was.running || !start):
		return reportService(ctx, m, out, "unchanged")
	case same && start:
		action = "started"
	case old != nil && !same:
		action = "updated"
	}
	err = writeServiceFile(m.file(), definition)
	if err == nil {
		err = m.apply(ctx, was, start)
	}
	if err != nil {
		// Also when the user has lost patience.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serviceTimeout)
		defer cancel()
		if undone := restoreService(ctx, m, old, was); undone != nil {
			return fmt.Errorf("%w; putting back what was there: %w", err, undone)
		}
		return fmt.Errorf("%w; all is as it was", err)
	}
	if err := reportService(ctx, m, out, action); err != nil {
		return err
	}
	if was.running && !start {
		out.Notef("tapgw: it runs on as it was until: %s", m.restart())
	}
	for _, hint := range m.hints() {
		out.Notef("tapgw: %s", hint)
	}
	return nil
}

// restoreService puts back the file that was there before, or none, and what the
// manager made of it.
func restoreService(ctx context.Context, m serviceManager, old []byte, was serviceState) error {
	now, err := m.look(ctx)
	untouched := was.running && now.pid == was.pid
	if err == nil && !untouched {
		err = m.withdraw(ctx, now)
	}
	if old == nil {
		return errors.Join(err, removeServiceFile(ctx, m))
	}
	if err := errors.Join(err, writeServiceFile(m.file(), old)); err != nil {
		return err
	}
	if untouched || !was.enabled && !was.running {
		return m.forget(ctx)
	}
	return m.apply(ctx, serviceState{}, was.running)
}

// dropService stops the service and removes its file.
func dropService(ctx context.Context, m serviceManager, out *cli.Output) error {
	line := serviceLine{Action: "none", Manager: m.name(), File: m.file()}
	old, err := ownServiceFile(m)
	if err != nil {
		return err
	}
	if old != nil {
		was, err := m.look(ctx)
		if err != nil {
			return err
		}
		if err := m.withdraw(ctx, was); err != nil {
			return err
		}
		if err := removeServiceFile(ctx, m); err != nil {
			return err
		}
		line.Action = "removed"
	}
	switch {
	case out.JSON:
		return out.Document(line)
	case old == nil:
		return out.Printf("not installed: there is no %s\n", m.file())
	}
	return out.Printf("removed: %s\n", m.file())
}

// showService prints how the service is; its error has the exit code that says so.
func showService(ctx context.Context, m serviceManager, out *cli.Output) error {
	old, err := ownServiceFile(m)
	if err != nil {
		return err
	}
	if old == nil {
		if out.JSON {
			err = out.Document(serviceLine{Manager: m.name(), File: m.file()})
		} else {
			err = out.Printf("not installed: there is no %s\n", m.file())
		}
		if err != nil {
			return err
		}
		return cli.Reported(cli.ExitNotFound)
	}
	line, err := serviceNow(ctx, m)
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
		out.Notef("tapgw: it runs version %s, this program is %s: %s", line.Version, own, m.restart())
	}
	return nil
}

// reportService prints what was done, and how the service is now.
func reportService(ctx context.Context, m serviceManager, out *cli.Output, action string) error {
	line, err := serviceNow(ctx, m)
	if err != nil {
		return err
	}
	line.Action = action
	return printService(out, line, action)
}

func printService(out *cli.Output, line serviceLine, title string) error {
	if out.JSON {
		return out.Document(line)
	}
	state := "does not run"
	switch {
	case line.Running && line.URL != "":
		state = fmt.Sprintf("runs as process %d at %s", line.PID, line.URL)
	case line.Running:
		state = fmt.Sprintf("runs as process %d", line.PID)
	}
	if !line.Enabled {
		state += ", and is not started at login"
	}
	return out.Printf("%s: %s\nthe service %s\n", title, line.File, state)
}

// serviceNow asks the manager, and the gateway that it runs.
func serviceNow(ctx context.Context, m serviceManager) (serviceLine, error) {
	now, err := m.look(ctx)
	if err != nil {
		return serviceLine{}, err
	}
	line := serviceLine{Manager: m.name(), File: m.file(), Installed: true, Enabled: now.enabled, Running: now.running, PID: now.pid}
	if now.running {
		if g, ok := stateDir(configs.StateDir()).running(ctx); ok && g.PID == now.pid {
			line.URL, line.Version = g.URL, g.Version
		}
	}
	return line, nil
}
