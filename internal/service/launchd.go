package service

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

	"tapgw/internal/chans"
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

func (launchd) logFile() string { return filepath.Join(xdg.Home, "Library", "Logs", "tapgw.log") }

// agent is the format of the agent's file: the mark, the label, the command line, the
// variables, the home directory and the log. With SuccessfulExit false, launchd starts
// the program again unless it exits 0.
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

func (m launchd) define(p Program) ([]byte, error) {
	words := append([]string{p.Path}, p.Args...)
	for _, word := range slices.Concat(words, p.Env) {
		if err := checkWord(word); err != nil {
			return nil, err
		}
	}
	var args, env strings.Builder
	for _, word := range words {
		fmt.Fprintf(&args, "\t\t<string>%s</string>\n", escapeXML(word))
	}
	for _, v := range p.Env {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&env, "\t\t<key>%s</key>\n\t\t<string>%s</string>\n", escapeXML(name),
			escapeXML(value))
	}
	return fmt.Appendf(nil, agent, mark, agentLabel, args.String(), env.String(),
		escapeXML(xdg.Home), escapeXML(m.logFile())), nil
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writing to memory does not fail
	return b.String()
}

// domain is launchd's name for the agents of a user who is logged in at the screen.
func (m launchd) domain() string { return "gui/" + strconv.Itoa(m.uid) }

func (m launchd) target() string { return m.domain() + "/" + agentLabel }

// agentPID finds the process in launchctl's description of an agent that runs.
var agentPID = lazyregexp.New(`(?m)^\s*pid = (\d+)$`)

func (launchd) parse(definition []byte) (p Program, err error) {
	var list struct {
		Words  []string `xml:"dict>array>string"` // ProgramArguments is the only array
		Names  []string `xml:"dict>dict>key"`     // EnvironmentVariables is the first dict
		Values []string `xml:"dict>dict>string"`  // the only dict with strings
	}
	if err := xml.Unmarshal(definition, &list); err != nil {
		return p, err
	}
	if len(list.Words) == 0 {
		return p, errors.New("it has no ProgramArguments")
	}
	p.Path, p.Args = list.Words[0], list.Words[1:]
	for i, value := range list.Values {
		p.Env = append(p.Env, list.Names[i]+"="+value)
	}
	return p, nil
}

func (m launchd) state(ctx context.Context) (State, error) {
	_, err := runManager(ctx, "launchctl", "print", m.domain())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return State{}, cli.Failed("service: launchctl is not on PATH: put /bin there%s", otherwise)
	case err != nil && ctx.Err() == nil:
		return State{},
			cli.Failed(
				"service: launchd has no session for this user (%v): log in at the screen once%s",
				err, otherwise)
	case err != nil:
		return State{}, err
	}
	// launchd starts the agents in LaunchAgents at login.
	isInstalled, err := (&Service{m}).Installed()
	s := State{Enabled: isInstalled}
	if err != nil {
		return s, err
	}
	out, err := runManager(ctx, "launchctl", "print", m.target())
	if err != nil {
		return s, ctx.Err() // launchd has not loaded the agent
	}
	s.isKnown = true
	if found := agentPID.FindStringSubmatch(out); found != nil {
		s.Running = true
		s.PID, _ = strconv.Atoi(found[1])
	}
	return s, nil
}

func (m launchd) apply(ctx context.Context, before State, start bool) error {
	if !start {
		return nil // the next login reads the file
	}
	if err := m.disable(ctx, before); err != nil {
		return err
	}
	for _, step := range [][]string{{"enable", m.target()}, {"bootstrap", m.domain(), m.file()}} {
		if _, err := runManager(ctx, "launchctl", step...); err != nil {
			return fmt.Errorf("%w; its log: %s", err, m.logFile())
		}
	}
	return nil
}

func (m launchd) disable(ctx context.Context, before State) error {
	if !before.isKnown {
		return nil
	}
	if _, err := runManager(ctx, "launchctl", "bootout", m.target()); err != nil {
		return err
	}
	// bootout returns before the agent has ended, and until then bootstrap fails.
	for {
		if s, err := m.state(ctx); err != nil || !s.isKnown {
			return err
		}
		if chans.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("waiting for %s to end: %w", m.target(), ctx.Err())
		}
	}
}

func (launchd) reload(context.Context) error { return nil }

func (m launchd) start(ctx context.Context) error {
	_, err := runManager(ctx, "launchctl", "kickstart", m.target())
	return err
}

func (m launchd) log(int, bool) Log { return Log{File: m.logFile()} }

func (launchd) hints() []string { return []string{"its log: tapgw logs -f"} }

func (m launchd) restartCommand() string { return "launchctl kickstart -k " + m.target() }
