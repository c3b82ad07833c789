package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/adrg/xdg"

	"tapgw/internal/cli"
)

const unitName = "tapgw.service"

// systemd is the user's own service manager on Linux.
type systemd struct{}

func (systemd) name() string { return "systemd" }

func (systemd) file() string { return filepath.Join(xdg.ConfigHome, "systemd", "user", unitName) }

// unit is the file; its three holes are the program's line, its variables and
// our mark.
//
// What confines a process would confine the sessions' shells with it (sudo,
// containers, compilers), and in a user's unit most of it needs a namespace that
// breaks them: a drop-in may add it where that is wanted.
const unit = `# %s
# Changes of your own: systemctl --user edit tapgw

[Unit]
Description=Gateway between agent sessions and the processes around them
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart=%s
ExecReload=kill -HUP $MAINPID
WorkingDirectory=~
%s# Secrets, the key of a model endpoint say: NAME=value, a line each.
EnvironmentFile=-%%E/tapgw/service.env
Restart=on-failure
RestartSec=1
# Wrong usage does not get right by itself.
RestartPreventExitStatus=2
# The gateway ends what it started, within 15 s; then whatever is left goes.
KillMode=mixed
TimeoutStopSec=20
# A session's program that takes all memory does not take the gateway along.
OOMPolicy=continue
# No tokens in core files.
LimitCORE=0:infinity

[Install]
WantedBy=default.target
`

func (systemd) define(p serviceProgram) ([]byte, error) {
	// systemd takes no other path of a program, quoted or not.
	if strings.ContainsAny(p.path, `"'\`) {
		return nil, cli.Failed("service install: systemd runs no program whose path has a quote or a backslash: %s; move it", p.path)
	}
	for _, word := range append(append([]string{p.path}, p.args...), p.env...) {
		if err := checkServiceWord(word); err != nil {
			return nil, err
		}
	}
	words := []string{unitWord(p.path)}
	for _, arg := range p.args {
		words = append(words, strings.ReplaceAll(unitWord(arg), "$", "$$"))
	}
	line := strings.Join(words, " ")
	var env strings.Builder
	for _, v := range p.env {
		fmt.Fprintf(&env, "Environment=%s\n", unitWord(v))
	}
	return fmt.Appendf(nil, unit, serviceMark, line, env.String()), nil
}

// unitWord quotes a word as units have it (systemd.syntax(7)), specifiers taken
// as they stand.
func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(s) + `"`
}

func (systemd) look(ctx context.Context) (serviceState, error) {
	const instead = "; else start tapgw serve by what starts your programs, or tapgw ensure when it is needed"
	out, err := systemctl(ctx, "show", "--property=LoadState,ActiveState,UnitFileState,MainPID", unitName)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return serviceState{}, cli.Failed("service: systemctl is not on PATH: where systemd runs this system, put it there%s", instead)
	case err != nil && ctx.Err() == nil:
		return serviceState{}, cli.Failed("service: systemd does not answer for this user (%v): log in as the user, not by su or sudo, or run: sudo loginctl enable-linger $(id -un); export XDG_RUNTIME_DIR=/run/user/$(id -u)%s", err, instead)
	case err != nil:
		return serviceState{}, err
	}
	var s serviceState
	for line := range strings.Lines(out) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "LoadState":
			s.known = value != "not-found"
		case "ActiveState":
			s.running = value == "active" || value == "reloading"
		case "UnitFileState":
			s.enabled = value == "enabled"
		case "MainPID":
			s.pid, _ = strconv.Atoi(value)
		}
	}
	return s, nil
}

func (m systemd) apply(ctx context.Context, was serviceState, start bool) error {
	if err := m.forget(ctx); err != nil { // it reads all files anew
		return err
	}
	if start && !was.running {
		return m.begin(ctx, "enable", "--now", unitName)
	}
	if _, err := systemctl(ctx, "enable", unitName); err != nil || !start {
		return err
	}
	return m.begin(ctx, "restart", unitName)
}

func (m systemd) start(ctx context.Context) error { return m.begin(ctx, "start", unitName) }

// begin waits until the gateway says that it is ready. Why it does not is in its
// log, not in what systemctl says.
func (systemd) begin(ctx context.Context, args ...string) error {
	_, err := systemctl(ctx, args...)
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return cli.Failed("service: the gateway does not start under systemd (its log: tapgw logs --last 20)")
	}
	return err
}

func (systemd) withdraw(ctx context.Context, was serviceState) error {
	if !was.known {
		return nil
	}
	if _, err := systemctl(ctx, "disable", "--now", unitName); err != nil {
		return err
	}
	_, _ = systemctl(ctx, "reset-failed", unitName) // an error where it had not failed
	return nil
}

func (systemd) forget(ctx context.Context) error {
	_, err := systemctl(ctx, "daemon-reload")
	return err
}

func (systemd) hints() []string {
	return []string{
		"its log: tapgw logs -f",
		"it ends when you log out, unless: loginctl enable-linger",
	}
}

// logs asks the journal, where a unit's output goes.
func (systemd) logs(ctx context.Context, last int, follow bool, print func(string) error) error {
	args := []string{"--user", "--unit=" + unitName, "--output=cat", "--no-pager", "--quiet", "--lines=" + strconv.Itoa(last)}
	if follow {
		args = append(args, "--follow")
	}
	return printed(ctx, print, "journalctl", args...)
}

func (systemd) restart() string { return "systemctl --user restart tapgw" }

func systemctl(ctx context.Context, args ...string) (string, error) {
	return managed(ctx, "systemctl", append([]string{"--user"}, args...)...)
}
