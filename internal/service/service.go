// Package service installs the gateway as a service of this user: a user unit of systemd
// on Linux, an agent of launchd on macOS. It also tells the service manager that started
// this process how the gateway is.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

// Timeout bounds what a service manager does for one command: a gateway takes up to 15 s
// to end, and the next one needs time to start.
const Timeout = time.Minute

// Program is what a service runs.
type Program struct {
	Path string // absolute
	Args []string
	Env  []string // NAME=value
}

// State is what the service manager says about the service.
type State struct {
	Enabled bool // the service starts at login
	Running bool
	PID     int // 0 when the service does not run

	isKnown bool // the manager has loaded the service, running or not
}

// Log is where a service's output goes: to a file, or to what a command prints.
type Log struct {
	File    string
	Command []string // instead of File
}

// Service is the gateway as a service of this user, installed or not.
type Service struct{ m manager }

// New returns this user's service. It fails on a system whose service manager is unknown.
func New() (*Service, error) {
	switch runtime.GOOS {
	case "linux":
		return &Service{systemd{}}, nil
	case "darwin":
		return &Service{launchd{uid: os.Getuid()}}, nil
	}
	return nil, cli.Failed("service: no service manager is known on %s%s", runtime.GOOS, otherwise)
}

// Manager is the service manager's name: systemd or launchd.
func (s *Service) Manager() string { return s.m.name() }

// File is the path of the file that defines the service.
func (s *Service) File() string { return s.m.file() }

// Hints are what a person may do after an installation, a line each.
func (s *Service) Hints() []string { return s.m.hints() }

// RestartCommand is the shell command that restarts the service.
func (s *Service) RestartCommand() string { return s.m.restartCommand() }

// Log says where the service's log is; last and follow go into its command.
func (s *Service) Log(last int, follow bool) Log { return s.m.log(last, follow) }

// Start starts the service as its file says. It must be installed and must not run.
func (s *Service) Start(ctx context.Context) error { return s.m.start(ctx) }

// Define returns the content of the file that makes the manager run p. It refuses words
// that such a file can't hold.
func (s *Service) Define(p Program) ([]byte, error) { return s.m.define(p) }

// Installed reports whether the service's file exists. A file that tapgw did not write is
// an error: it belongs to somebody else.
func (s *Service) Installed() (bool, error) {
	data, err := s.read()
	return data != nil, err
}

// Program returns what the installed service runs, as its file says.
func (s *Service) Program() (Program, error) {
	data, err := s.read()
	if err != nil {
		return Program{}, err
	}
	p, err := s.m.parse(data)
	if err != nil {
		return p, fmt.Errorf("reading %s: %w; run tapgw service install again", s.File(), err)
	}
	return p, nil
}

// State asks the service manager. Its error says what to do where no manager answers.
func (s *Service) State(ctx context.Context) (State, error) { return s.m.state(ctx) }

// Actions of [Service.Install] and [Service.Uninstall].
const (
	Installed = "installed"
	Updated   = "updated"
	Started   = "started"
	Unchanged = "unchanged"
	Removed   = "removed"
	None      = "none"
)

// Install writes the definition, enables the service and, with start, starts or restarts
// it. It calls check before it changes anything, with the state at that time. When a step
// fails, it restores the file and the state from before. It returns [Installed],
// [Updated], [Started] or [Unchanged].
func (s *Service) Install(
	ctx context.Context, definition []byte, start bool, check func(State) error,
) (action string, err error) {
	old, err := s.read()
	if err != nil {
		return "", err
	}
	before, err := s.m.state(ctx)
	if err != nil {
		return "", err
	}
	if err := check(before); err != nil {
		return "", err
	}
	action = Installed
	switch isSame := bytes.Equal(old, definition); {
	case isSame && before.Enabled && (before.Running || !start):
		return Unchanged, nil
	case isSame && start:
		action = Started
	case old != nil && !isSame:
		action = Updated
	}
	err = s.write(definition)
	if err == nil {
		err = s.m.apply(ctx, before, start)
	}
	if err == nil {
		return action, nil
	}
	// A user who cancelled gets the old state back, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if restoreErr := s.restore(ctx, old, before); restoreErr != nil {
		return "", fmt.Errorf("%w; restoring the service from before: %w", err, restoreErr)
	}
	return "", fmt.Errorf("%w; all is as it was", err)
}

// restore puts back the old file, or removes the new one where there was none, and makes
// the manager do what it did before.
func (s *Service) restore(ctx context.Context, old []byte, before State) error {
	now, err := s.m.state(ctx)
	isUntouched := before.Running && now.PID == before.PID
	if err == nil && !isUntouched {
		err = s.m.disable(ctx, now)
	}
	if old == nil {
		return errors.Join(err, s.remove(ctx))
	}
	if err := errors.Join(err, s.write(old)); err != nil {
		return err
	}
	if isUntouched || !before.Enabled && !before.Running {
		return s.m.reload(ctx)
	}
	return s.m.apply(ctx, State{}, before.Running)
}

// Uninstall stops the service and removes its file. It returns [Removed], or [None] when
// the service was not installed.
func (s *Service) Uninstall(ctx context.Context) (action string, err error) {
	isInstalled, err := s.Installed()
	if err != nil || !isInstalled {
		return None, err
	}
	before, err := s.m.state(ctx)
	if err != nil {
		return None, err
	}
	if err := s.m.disable(ctx, before); err != nil {
		return None, err
	}
	return Removed, s.remove(ctx)
}

// read returns the content of the service's file, nil when there is no file. A file
// without the mark is an error.
func (s *Service) read() ([]byte, error) {
	info, err := os.Lstat(s.File())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var data []byte
	if info.Mode().IsRegular() {
		if data, err = os.ReadFile(s.File()); err != nil {
			return nil, err
		}
	}
	if !bytes.Contains(data, []byte(mark)) {
		return nil, cli.Failed("service: tapgw did not write %s: move it away first", s.File())
	}
	return data, nil
}

func (s *Service) write(data []byte) error {
	if err := os.MkdirAll(filepath.Dir(s.File()), 0o700); err != nil {
		return fmt.Errorf("making the directory of %s: %w", filepath.Base(s.File()), err)
	}
	return proc.WritePrivate(s.File(), data)
}

func (s *Service) remove(ctx context.Context) error {
	if err := os.Remove(s.File()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.m.reload(ctx)
}
