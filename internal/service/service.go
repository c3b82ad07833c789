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

	"github.com/adrg/xdg"

	"tapgw/internal/cli"
	"tapgw/internal/ownfile"
	"tapgw/internal/proc"
)

// Timeout bounds a service manager's time for one command. A gateway takes up to 15 s to end, and
// the next one needs time to start. Callers put it into the context of [Service.Install] and its
// like.
const Timeout = time.Minute

// Program is the command line and the environment that a service runs. The words must have no
// control characters, because the manager's file can't hold them.
type Program struct {
	Path string // absolute
	Args []string
	Env  []string // NAME=value
}

// State is the service's state as the service manager reports it at one moment. The zero value is a
// service that neither runs nor starts at login. PID is the gateway's process.
type State struct {
	Enabled bool // the service starts at login
	Running bool
	PID     int // 0 when the service does not run

	isKnown bool // the manager has loaded the service, running or not
}

// Log names the place of a service's output: the path of a file (launchd), or else the command line
// that prints it (journalctl under systemd). Exactly one of the fields is set.
type Log struct {
	File    string
	Command []string // instead of File
}

// Service is the gateway as a service of this user, installed or not. The methods that change it
// must not run at the same time; there is no lock.
type Service struct{ m manager }

// New returns this user's service: of systemd on Linux, of launchd on macOS. On other systems it
// fails with a [cli.Error] that names another way to start the gateway. It does not ask the
// manager.
func New() (*Service, error) {
	switch runtime.GOOS {
	case "linux":
		return &Service{systemd{}}, nil
	case "darwin":
		return &Service{launchd{uid: os.Getuid()}}, nil
	}
	return nil, cli.Failed("service: no service manager is known on %s%s", runtime.GOOS, otherwise)
}

// Manager returns the service manager's name, for people: systemd or launchd.
func (s *Service) Manager() string { return s.m.name() }

// File returns the absolute path of the file that defines the service: a user unit of systemd or an
// agent of launchd. The file need not exist.
func (s *Service) File() string { return s.m.file() }

// Hints returns advice for a person after an installation, a line each: the command for the log,
// and under systemd that the service ends at logout unless the user may linger.
func (s *Service) Hints() []string { return s.m.hints() }

// RestartCommand returns the shell command by which a person restarts the service. It is for
// messages; tapgw never runs it.
func (s *Service) RestartCommand() string { return s.m.restartCommand() }

// Log returns where the service's log is. A command in it prints the last lines (last says how
// many) and with follow goes on with new ones; a file is the same for all arguments.
func (s *Service) Log(last int, follow bool) Log { return s.m.log(last, follow) }

// Start makes the manager start the service as its file says. The service must be installed and
// must not run. Under systemd it returns when the gateway is ready, and its error names the command
// that shows the log.
func (s *Service) Start(ctx context.Context) error { return s.m.start(ctx) }

// Define returns the content of the file that makes the manager run p at login. It does not write
// the file. A word with a control character is an error.
func (s *Service) Define(p Program) ([]byte, error) { return s.m.define(p) }

// Installed reports whether the service's file exists. A file without the mark that tapgw writes is
// an error, because the user or another program made it: tapgw neither replaces nor removes it.
func (s *Service) Installed() (bool, error) {
	data, err := s.read()
	return data != nil, err
}

// Program returns the program that the installed service runs, read from its file. The error names
// the file: it is missing or can't be parsed, so the service must be installed again, or tapgw did
// not write it.
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

// State asks the service manager for the service's state. If no manager answers, for example in a
// container or after su, the error is a [cli.Error] with advice.
func (s *Service) State(ctx context.Context) (State, error) { return s.m.state(ctx) }

// Actions that [Service.Install] and [Service.Uninstall] return. [Updated] means that the file
// changed; [Started] that the file was right and the service was not running or not enabled.
const (
	Installed = "installed"
	Updated   = "updated"
	Started   = "started"
	Unchanged = "unchanged"
	Removed   = "removed"
	None      = "none"
)

// Install writes the definition, enables the service and, with start, starts or restarts it. Before
// any change it calls check with the present state; an error of check ends the installation. If a
// step fails or ctx ends, it restores the file and the state from before. It returns [Installed],
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

// restore puts back the old file, or removes the new one if there was no old file, and brings the
// manager back to its state from before.
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

// Uninstall stops the service, disables it and removes its file, with directories that become
// empty. It returns [Removed], or [None] if the service was not installed or a step before the
// removal failed. It returns an error if tapgw did not write the file.
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
	if _, ok := s.m.(systemd); ok { // launchd's directory is the system's
		ownfile.RemoveEmpty(filepath.Dir(s.File()), xdg.Home)
	}
	return s.m.reload(ctx)
}
