package service

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
	"tapgw/internal/lazyregexp"
)

const unitName = "tapgw.service"

// systemd is the service manager of most Linux systems.
type systemd struct{}

func (systemd) name() string { return "systemd" }

func (systemd) file() string { return filepath.Join(xdg.ConfigHome, "systemd", "user", unitName) }

// unit is the format of the unit file: the mark, the command line, Environment lines.
//
// It does not confine the gateway, because sessions' shells would be confined, too. Most settings
// that confine a user's unit also need a namespace that breaks sudo, containers and compilers. A
// drop-in file may add them.
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
%s# Secrets, such as the key of a model endpoint: NAME=value, a line each.
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

func (systemd) define(p Program) ([]byte, error) {
	// systemd refuses such a path, quoted or not.
	if strings.ContainsAny(p.Path, `"'\`) {
		return nil, cli.Failed(
			"service install: systemd runs no program whose path has a quote or a "+
				"backslash: %s; move it",
			p.Path,
		)
	}
	for _, word := range append(append([]string{p.Path}, p.Args...), p.Env...) {
		if err := checkWord(word); err != nil {
			return nil, err
		}
	}
	words := []string{unitWord(p.Path)}
	for _, arg := range p.Args {
		words = append(words, strings.ReplaceAll(unitWord(arg), "$", "$$"))
	}
	line := strings.Join(words, " ")
	var env strings.Builder
	for _, v := range p.Env {
		fmt.Fprintf(&env, "Environment=%s\n", unitWord(v))
	}
	return fmt.Appendf(nil, unit, mark, line, env.String()), nil
}

// unitWord quotes a word for a unit (systemd.syntax(7)) and escapes specifiers.
func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(s) + `"`
}

func (systemd) parse(definition []byte) (p Program, err error) {
	for line := range strings.Lines(string(definition)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, quoted := range quotedWord.FindAllStringSubmatch(value, -1) {
			word := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `%%`, `%`).Replace(quoted[1])
			switch {
			case key == "Environment":
				p.Env = append(p.Env, word)
			case key == "ExecStart" && p.Path == "":
				p.Path = word
			case key == "ExecStart":
				p.Args = append(p.Args, strings.ReplaceAll(word, "$$", "$"))
			}
		}
	}
	if p.Path == "" {
		return p, errors.New("it has no line ExecStart")
	}
	return p, nil
}

// quotedWord is a word as unitWord writes it.
var quotedWord = lazyregexp.New(`"((?:[^"\\]|\\.)*)"`)

func (systemd) state(ctx context.Context) (State, error) {
	out, err := systemctl(ctx, "show", "--property=LoadState,ActiveState,UnitFileState,MainPID",
		unitName)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return State{},
			cli.Failed(
				"service: systemctl is not on PATH: put it there if systemd runs this system%s",
				otherwise)
	case err != nil && ctx.Err() == nil:
		return State{}, cli.Failed("service: systemd does not answer for this user (%v): "+
			"log in as the user, not by su or sudo, or run: sudo loginctl enable-linger $(id "+
			"-un); "+
			"export XDG_RUNTIME_DIR=/run/user/$(id -u)%s", err, otherwise)
	case err != nil:
		return State{}, err
	}
	var s State
	for line := range strings.Lines(out) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "LoadState":
			s.isKnown = value != "not-found"
		case "ActiveState":
			s.Running = value == "active" || value == "reloading"
		case "UnitFileState":
			s.Enabled = value == "enabled"
		case "MainPID":
			s.PID, _ = strconv.Atoi(value)
		}
	}
	return s, nil
}

func (m systemd) apply(ctx context.Context, before State, start bool) error {
	if err := m.reload(ctx); err != nil {
		return err
	}
	if start && !before.Running {
		return m.run(ctx, "enable", "--now", unitName)
	}
	if _, err := systemctl(ctx, "enable", unitName); err != nil || !start {
		return err
	}
	return m.run(ctx, "restart", unitName)
}

func (m systemd) start(ctx context.Context) error { return m.run(ctx, "start", unitName) }

// run waits until the gateway is ready. When it does not get ready, its log has the
// reason, and systemctl's output has not.
func (systemd) run(ctx context.Context, args ...string) error {
	_, err := systemctl(ctx, args...)
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return cli.Failed(
			"service: the gateway does not start under systemd (its log: tapgw logs --last 20)")
	}
	return err
}

func (systemd) disable(ctx context.Context, before State) error {
	if !before.isKnown {
		return nil
	}
	if _, err := systemctl(ctx, "disable", "--now", unitName); err != nil {
		return err
	}
	_, _ = systemctl(ctx, "reset-failed", unitName) // fails when the unit had not failed
	return nil
}

func (systemd) reload(ctx context.Context) error {
	_, err := systemctl(ctx, "daemon-reload")
	return err
}

func (systemd) hints() []string {
	return []string{
		"its log: tapgw logs -f",
		"it ends when you log out, unless: loginctl enable-linger",
	}
}

// log is the journal's, which has a unit's output.
func (systemd) log(last int, follow bool) Log {
	command := []string{"journalctl", "--user", "--unit=" + unitName, "--output=cat", "--no-pager",
		"--quiet", "--lines=" + strconv.Itoa(last)}
	if follow {
		command = append(command, "--follow")
	}
	return Log{Command: command}
}

func (systemd) restartCommand() string { return "systemctl --user restart tapgw" }

func systemctl(ctx context.Context, args ...string) (string, error) {
	return runManager(ctx, "systemctl", append([]string{"--user"}, args...)...)
}
