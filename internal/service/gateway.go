package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/statedir"
)

// The gateway's service: its command line, its variables, its restart and its log.

// Line is the service and its gateway as --json shows it.
type Line struct {
	// of [Service.Install] or [Service.Uninstall]; "" for status
	Action    string `json:"action,omitzero"`
	Manager   string `json:"manager"`
	File      string `json:"file"`
	Installed bool   `json:"installed"`
	Enabled   bool   `json:"enabled"`
	Running   bool   `json:"running"`
	PID       int    `json:"pid,omitzero"`
	URL       string `json:"url,omitzero"`
	Version   string `json:"version,omitzero"`
}

// Current returns this user's service if tapgw has installed one, else nil.
func Current() *Service {
	s, err := New()
	if err != nil {
		return nil // this system has no service manager
	}
	if isInstalled, err := s.Installed(); err != nil || !isInstalled {
		return nil // a file that tapgw did not write is no service of tapgw
	}
	return s
}

// Of returns the service if the process pid is its gateway, else nil.
func Of(ctx context.Context, pid int) (*Service, error) {
	s := Current()
	if s == nil {
		return nil, nil
	}
	now, err := s.State(ctx)
	if err != nil || !now.Running || now.PID != pid {
		return nil, err
	}
	return s, nil
}

// Line asks the manager for the state of the installed service, and the gateway that it runs for
// its URL and version.
func (s *Service) Line(ctx context.Context) (Line, error) {
	now, err := s.State(ctx)
	if err != nil {
		return Line{}, err
	}
	line := Line{
		Manager: s.Manager(), File: s.File(), Installed: true,
		Enabled: now.Enabled, Running: now.Running, PID: now.PID,
	}
	if now.Running {
		if g, ok := daemon.Dir(configs.StateDir()).Running(ctx); ok && g.PID == now.PID {
			line.URL, line.Version = g.URL, g.Version
		}
	}
	return line, nil
}

// Environ returns the variables that a service needs to find the same programs and files as this
// shell. Secrets are not among them: they have a file of their own.
func Environ() []string {
	env := []string{}
	for _, name := range []string{statedir.EnvHome, "COPILOT_CLI_PATH", "XDG_CONFIG_HOME"} {
		if value := os.Getenv(name); value != "" {
			if abs, err := filepath.Abs(value); err == nil {
				value = abs
			}
			env = append(env, name+"="+value)
		}
	}
	var path []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) { // the service runs in another directory
			path = append(path, dir)
		}
	}
	return append(env, "PATH="+strings.Join(path, string(filepath.ListSeparator)))
}

// PlanRestart returns how to start the gateway g again, nil when tapgw ensure started it.
// It refuses a gateway in the foreground, and one whose config file has a fault.
func PlanRestart(
	ctx context.Context, g statedir.Info,
) (start func(context.Context) error, err error) {
	args := g.Args
	configFile := argValue(args, "--config=")
	if len(args) == 0 {
		s, err := Of(ctx, g.PID)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil,
				cli.Failed(
					"the gateway of process %d runs in the foreground (tapgw serve) and can't be "+
						"restarted from here: end it (Ctrl-C there, or tapgw stop) and start "+
						"it there again", g.PID)
		}
		p, err := s.Program()
		if err != nil {
			return nil, err
		}
		start, args, configFile = s.Start, p.Args, configOf(p)
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

// configOf is the config file of a service: --config of its arguments, else the file
// in its XDG_CONFIG_HOME, which may differ from this process's; "" where neither exists.
func configOf(p Program) string {
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

// FindLog finds the log of the gateway that runs here. While no gateway runs, it is the service's
// log, else the log of the last gateway of tapgw ensure.
func FindLog(
	ctx context.Context, state daemon.Dir, last int, follow bool, note func(string),
) (Log, error) {
	ensured := Log{File: state.LogFile()}
	g, isRunning, err := state.Current()
	switch {
	case err != nil:
		return Log{}, err
	case len(g.Args) > 0:
		return ensured, nil
	case isRunning:
		s, err := Of(ctx, g.PID)
		if err == nil && s == nil {
			err = cli.NotFound(
				"the gateway of process %d runs in the foreground (tapgw serve): it "+
					"logs to its own "+
					"stderr and to no file; keep it with: tapgw serve 2>FILE", g.PID)
		}
		if err != nil {
			return Log{}, err
		}
		return s.Log(last, follow), nil
	}
	if s := Current(); s != nil {
		return s.Log(last, follow), nil
	}
	switch _, err := os.Stat(ensured.File); {
	case errors.Is(err, fs.ErrNotExist):
		return Log{},
			cli.NotFound("no gateway runs, and none of tapgw ensure has left a log: there is no %s",
				ensured.File)
	case err != nil:
		return Log{}, fmt.Errorf("looking for a log: %w", err)
	}
	note("no gateway runs; this is the log of the last one of tapgw ensure")
	return ensured, nil
}
