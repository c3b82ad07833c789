package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/adrg/xdg"
	"github.com/google/go-cmp/cmp"

	"tapgw/internal/cli"
)

// odd is a program whose words mean something else to a manager if they are not
// escaped.
var odd = serviceProgram{
	path: "/opt/my tools/100%h/tap$gw",
	args: []string{"serve", `--config=/x y/%h $HOME ${A} "q" \n ; <&> 'é'`},
	env:  []string{"COPILOT_HOME=/a b/%t $X <é>", `PATH=/bin:/c\d"e`},
}

func TestUnitEscapes(t *testing.T) {
	data, err := systemd{}.define(odd)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		// The program's path takes no variables, its arguments do.
		`ExecStart="/opt/my tools/100%%h/tap$gw" "serve" "--config=/x y/%%h $$HOME $${A} \"q\" \\n ; <&> 'é'"`,
		`Environment="COPILOT_HOME=/a b/%%t $X <é>"`,
		`Environment="PATH=/bin:/c\\d\"e"`,
		`EnvironmentFile=-%E/tapgw/service.env`,
	} {
		if !slices.Contains(strings.Split(string(data), "\n"), want) {
			t.Errorf("no line %s in\n%s", want, data)
		}
	}
}

func TestServiceRefusesWhatNoFileHolds(t *testing.T) {
	for _, tt := range []struct {
		manager serviceManager
		program serviceProgram
		want    string
	}{
		{systemd{}, serviceProgram{path: "/a/\"b"}, "move it"},
		{systemd{}, serviceProgram{path: `/a\b`}, "move it"},
		{systemd{}, serviceProgram{path: "/a", args: []string{"x\ny"}}, "control character"},
		{launchd{}, serviceProgram{path: "/a", env: []string{"X=\x1b"}}, "control character"},
	} {
		if _, err := tt.manager.define(tt.program); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: %v", tt.manager.name(), tt.program, err)
		}
	}
}

// The agent is read back as the property list that launchd reads.
func TestAgent(t *testing.T) {
	home := serviceHome(t)
	data, err := launchd{uid: 501}.define(odd)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"Label":                "local.tapgw",
		"ProgramArguments":     []any{odd.path, odd.args[0], odd.args[1]},
		"EnvironmentVariables": map[string]any{"COPILOT_HOME": "/a b/%t $X <é>", "PATH": `/bin:/c\d"e`},
		"WorkingDirectory":     home,
		"StandardErrorPath":    filepath.Join(home, "Library", "Logs", "tapgw.log"),
		"RunAtLoad":            true,
		"KeepAlive":            map[string]any{"SuccessfulExit": false},
		"ExitTimeOut":          "20",
	}
	if diff := cmp.Diff(want, readPlist(t, data)); diff != "" {
		t.Error(diff)
	}
}

// readPlist reads a property list; integers stay text.
func readPlist(t *testing.T, data []byte) any {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(data))
	var value func(start xml.StartElement) any
	next := func() (xml.StartElement, bool) {
		for {
			token, err := in.Token()
			if errors.Is(err, io.EOF) {
				return xml.StartElement{}, false
			}
			if err != nil {
				t.Fatal(err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				return token, true
			case xml.EndElement:
				return xml.StartElement{}, false
			}
		}
	}
	value = func(start xml.StartElement) any {
		switch start.Name.Local {
		case "dict":
			d := map[string]any{}
			for key, ok := next(); ok; key, ok = next() {
				name, _ := value(key).(string)
				of, ok := next()
				if !ok || key.Name.Local != "key" {
					t.Fatalf("no value of %q", name)
				}
				d[name] = value(of)
			}
			return d
		case "array":
			list := []any{}
			for e, ok := next(); ok; e, ok = next() {
				list = append(list, value(e))
			}
			return list
		}
		var text string
		if err := in.DecodeElement(&text, &start); err != nil {
			t.Fatal(err)
		}
		switch start.Name.Local {
		case "true", "false":
			return start.Name.Local == "true"
		}
		return text
	}
	plist, ok := next()
	if !ok || plist.Name.Local != "plist" {
		t.Fatalf("no property list: %s", data)
	}
	dict, _ := next()
	return value(dict)
}

// serviceHome makes this process's home an empty one, and its PATH that home's
// bin.
func serviceHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Cleanup(xdg.Reload)
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("COPILOT_HOME", "")
	t.Setenv("PATH", filepath.Join(home, "bin"))
	xdg.Reload()
	return home
}

// launchctl keeps agents in $HOME/agents, and ends one a while after it was told
// to: at the third question about it.
const launchctl = `#!/bin/sh
PATH=/usr/bin:/bin
cd "$HOME"
[ "$1" = print ] || echo "$*" >>asked
case "$1 $2" in
'print gui/501') [ ! -e nobody ] || { echo 'Domain does not support specified action' >&2; exit 125; } ;;
'print gui/501/local.tapgw')
	[ -e agent ] || { echo 'Could not find service' >&2; exit 113; }
	if [ -s agent ]; then
		sed -i.bak 1d agent
		[ -s agent ] || rm agent
	else
		printf 'gui/501/local.tapgw = {\n\tstate = running\n\tpid = 4242\n}\n'
	fi ;;
'bootout gui/501/local.tapgw') printf '1\n2\n3\n' >agent ;;
'bootstrap gui/501')
	[ ! -e agent ] || { echo 'Bootstrap failed: 5: Input/output error' >&2; exit 5; }
	! grep -q broken "$3" || { echo 'Bootstrap failed: 5: Input/output error' >&2; exit 5; }
	: >agent ;;
'enable gui/501/local.tapgw') ;;
*) exit 64 ;;
esac
`

func TestLaunchd(t *testing.T) {
	home := serviceHome(t)
	m := launchd{uid: 501}
	var stdout, stderr bytes.Buffer
	out := &cli.Output{W: &stdout, Err: &stderr, JSON: true}
	asked := func() string {
		data, _ := os.ReadFile(filepath.Join(home, "asked"))
		_ = os.Remove(filepath.Join(home, "asked"))
		return strings.ReplaceAll(string(data), home, "~")
	}
	put := func(definition string, start bool) string {
		t.Helper()
		stdout.Reset()
		if err := putService(t.Context(), m, []byte("<!-- "+serviceMark+" -->"+definition), start, out); err != nil {
			return err.Error()
		}
		action, _, _ := strings.Cut(strings.TrimPrefix(stdout.String(), `{"action":"`), `"`)
		return action
	}
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	has := func(want string) {
		t.Helper()
		data, err := os.ReadFile(m.file())
		if err != nil || !strings.HasSuffix(string(data), want) {
			t.Errorf("the file: %v %s, want %s", err, data, want)
		}
	}
	const start = "enable gui/501/local.tapgw\nbootstrap gui/501 ~/Library/LaunchAgents/local.tapgw.plist\n"
	const stop = "bootout gui/501/local.tapgw\n"

	if got := put("one", true); !strings.Contains(got, "launchctl is not on PATH") {
		t.Error(got)
	}
	if err := os.Mkdir(filepath.Join(home, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/launchctl", launchctl)
	write("nobody", "")
	if got := put("one", true); !strings.Contains(got, "log in at the screen") {
		t.Error(got)
	}
	if _, err := os.Stat(m.file()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	_ = os.Remove(filepath.Join(home, "nobody"))

	is("first", put("one", true), "installed")
	is("first", asked(), start)
	is("again", put("one", true), "unchanged")
	is("again", asked(), "")
	is("changed", put("two", true), "updated")
	is("changed", asked(), stop+start)
	is("later", put("three", false), "updated")
	is("later", asked(), "")
	has("three")

	if got := put("broken", true); !strings.Contains(got, "Input/output error") || !strings.HasSuffix(got, "; all is as it was") {
		t.Error(got)
	}
	has("three")
	is("after a failure", put("three", true), "unchanged")
	asked()

	stdout.Reset()
	if err := dropService(t.Context(), m, out); err != nil {
		t.Fatal(err)
	}
	is("removed", asked(), stop)
	if _, err := os.Stat(m.file()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	if err := showService(t.Context(), m, out); cli.AsError(err).Exit != cli.ExitNotFound {
		t.Errorf("status: %v", err)
	}
}

func TestNoSystemd(t *testing.T) {
	serviceHome(t)
	out := &cli.Output{W: io.Discard, Err: io.Discard}
	err := putService(t.Context(), systemd{}, []byte(serviceMark), true, out)
	if err == nil || !strings.Contains(err.Error(), "systemctl is not on PATH") {
		t.Error(err)
	}
	if _, err := os.Stat(systemd{}.file()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}
