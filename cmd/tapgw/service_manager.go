package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

// serviceManager is what keeps a user's programs running: systemd or launchd.
type serviceManager interface {
	name() string
	// file is where the manager reads what to run.
	file() string
	// define writes a program down as the manager reads it.
	define(p serviceProgram) ([]byte, error)
	// look asks the manager how the service is. Its error says what to do when
	// there is none to ask.
	look(ctx context.Context) (serviceState, error)
	// apply makes the manager act on a new or changed file: from the next login
	// on, with start also now.
	apply(ctx context.Context, was serviceState, start bool) error
	// withdraw stops the service, now and for later logins; its file may go then.
	withdraw(ctx context.Context, was serviceState) error
	// forget makes the manager act on a file that is gone.
	forget(ctx context.Context) error
	// hints are what to do next, a line each.
	hints() []string
	// start starts the service, which does not run, as its file says.
	start(ctx context.Context) error
	// logs prints the last lines of the service's log, a line each, and with follow
	// those to come.
	logs(ctx context.Context, last int, follow bool, print func(line string) error) error
	// restart is the command that restarts the service.
	restart() string
}

// serviceState is what a manager says of the service.
type serviceState struct {
	enabled bool // from the next login on
	known   bool // the manager has it, running or not
	running bool
	pid     int // 0 when it does not run
}

// thisServiceManager is the one that this system has.
func thisServiceManager() (serviceManager, error) {
	switch runtime.GOOS {
	case "linux":
		return systemd{}, nil
	case "darwin":
		return launchd{uid: os.Getuid()}, nil
	}
	return nil, cli.Failed("service: no service manager is known on %s; start tapgw serve by what starts your programs, or tapgw ensure when it is needed", runtime.GOOS)
}

// serviceMark stands at the top of the files that we write. One without it is
// somebody else's, and is left alone.
const serviceMark = "Written by tapgw service install, which replaces it."

// ownServiceFile reads the service's file, nil when there is none. One that we
// did not write is an error.
func ownServiceFile(m serviceManager) ([]byte, error) {
	info, err := os.Lstat(m.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var data []byte
	if info.Mode().IsRegular() {
		if data, err = os.ReadFile(m.file()); err != nil {
			return nil, err
		}
	}
	if !bytes.Contains(data, []byte(serviceMark)) {
		return nil, cli.Failed("service: %s is not of tapgw's making: move it away first", m.file())
	}
	return data, nil
}

func writeServiceFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making the directory of %s: %w", filepath.Base(file), err)
	}
	return proc.WritePrivate(file, data)
}

func removeServiceFile(ctx context.Context, m serviceManager) error {
	if err := os.Remove(m.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.forget(ctx)
}

// managed runs the manager's program and returns what it printed; its error is
// the program's own words.
func managed(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		why := strings.TrimSpace(stderr.String())
		if why == "" {
			why = strings.TrimSpace(stdout.String())
		}
		if why != "" {
			why = ": " + why
		}
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, why)
	}
	return stdout.String(), nil
}
