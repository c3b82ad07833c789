package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/adrg/xdg"

	"tapgw/internal/cli"
	"tapgw/internal/lazyregexp"
)

const agentLabel = "local.tapgw"

// launchd is the service manager of macOS.
type launchd struct{ uid int }

func (launchd) name() string { return "launchd" }

func (launchd) file() string {
	return filepath.Join(xdg.Home, "Library", "LaunchAgents", agentLabel+".plist")
}

func (launchd) log() string { return filepath.Join(xdg.Home, "Library", "Logs", "tapgw.log") }

// agent is the file; its holes are our mark, the label, the program's words, its
// variables, the home directory and the log. SuccessfulExit is false: it is
// started again unless it exits 0.
const agent = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- %s -->
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>%s</string>
	<key>ProgramArguments</key>
	<array>
%s	</array>
	<key>EnvironmentVariables</key>
	<dict>
%s	</dict>
	<key>WorkingDirectory</key>
	<string>%s</string>
	<key>StandardErrorPath</key>
	<string>%s</string>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ExitTimeOut</key>
	<integer>20</integer>
</dict>
</plist>
`

func (m launchd) define(p serviceProgram) ([]byte, error) {
	words := append([]string{p.path}, p.args...)
	for _, word := range slices.Concat(words, p.env) {
		if err := checkServiceWord(word); err != nil {
			return nil, err
		}
	}
	var args, env strings.Builder
	for _, word := range words {
		fmt.Fprintf(&args, "\t\t<string>%s</string>\n", escapeXML(word))
	}
	for _, v := range p.env {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&env, "\t\t<key>%s</key>\n\t\t<string>%s</string>\n", escapeXML(name), escapeXML(value))
	}
	return fmt.Appendf(nil, agent, serviceMark, agentLabel, args.String(), env.String(), escapeXML(xdg.Home), escapeXML(m.log())), nil
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	return b.String()
}

// domain is where a user's agents live while he is logged in at the screen.
func (m launchd) domain() string { return "gui/" + strconv.Itoa(m.uid) }

func (m launchd) target() string { return m.domain() + "/" + agentLabel }

// agentPID is in what launchctl print says of an agent that runs.
var agentPID = lazyregexp.New(`(?m)^\s*pid = (\d+)$`)

func (m launchd) look(ctx context.Context) (serviceState, error) {
	const instead = "; else start tapgw serve by what starts your programs, or tapgw ensure when it is needed"
	_, err := managed(ctx, "launchctl", "print", m.domain())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return serviceState{}, cli.Failed("service: launchctl is not on PATH: put /bin there%s", instead)
	case err != nil && ctx.Err() == nil:
		return serviceState{}, cli.Failed("service: launchd has no session for this user (%v): log in at the screen once%s", err, instead)
	case err != nil:
		return serviceState{}, err
	}
	// What lies in LaunchAgents is started at login.
	old, err := ownServiceFile(m)
	s := serviceState{enabled: old != nil}
	if err != nil {
		return s, err
	}
	out, err := managed(ctx, "launchctl", "print", m.target())
	if err != nil {
		return s, ctx.Err() // it knows none of that name
	}
	s.known = true
	if found := agentPID.FindStringSubmatch(out); found != nil {
		s.running = true
		s.pid, _ = strconv.Atoi(found[1])
	}
	return s, nil
}

func (m launchd) apply(ctx context.Context, was serviceState, start bool) error {
	if !start {
		return nil // the next login reads the file
	}
	if err := m.withdraw(ctx, was); err != nil {
		return err
	}
	for _, step := range [][]string{{"enable", m.target()}, {"bootstrap", m.domain(), m.file()}} {
		if _, err := managed(ctx, "launchctl", step...); err != nil {
			return fmt.Errorf("%w; its log: %s", err, m.log())
		}
	}
	return nil
}

func (m launchd) withdraw(ctx context.Context, was serviceState) error {
	if !was.known {
		return nil
	}
	if _, err := managed(ctx, "launchctl", "bootout", m.target()); err != nil {
		return err
	}
	// It returns before the agent has ended, and until then no other can come.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := m.look(ctx); err != nil || !s.known {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to end: %w", m.target(), ctx.Err())
		}
	}
}

func (launchd) forget(context.Context) error { return nil }

func (m launchd) start(ctx context.Context) error {
	_, err := managed(ctx, "launchctl", "kickstart", m.target())
	return err
}

func (m launchd) logs(ctx context.Context, last int, follow bool, print func(string) error) error {
	return logFile(m.log()).print(ctx, last, follow, print)
}

func (m launchd) hints() []string { return []string{"its log: tapgw logs -f"} }

func (m launchd) restart() string { return "launchctl kickstart -k " + m.target() }
