package service

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
)

// odd is a program with words that managers read in their own way unless they are escaped.
var odd = Program{
	Path: "/opt/my tools/100%h/tap$gw",
	Args: []string{"serve", `--config=/x y/%h $HOME ${A} "q" \n ; <&> 'é'`},
	Env:  []string{"COPILOT_HOME=/a b/%t $X <é>", `PATH=/bin:/c\d"e`},
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

func TestDefineRefusesWordsThatNoFileHolds(t *testing.T) {
	for _, tt := range []struct {
		manager manager
		program Program
		want    string
	}{
		{systemd{}, Program{Path: "/a/\"b"}, "move it"},
		{systemd{}, Program{Path: `/a\b`}, "move it"},
		{systemd{}, Program{Path: "/a", Args: []string{"x\ny"}}, "control character"},
		{launchd{}, Program{Path: "/a", Env: []string{"X=\x1b"}}, "control character"},
	} {
		if _, err := tt.manager.define(tt.program); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: got %v, want an error with %q", tt.manager.name(), tt.program, err,
				tt.want)
		}
	}
}

func TestParseReversesDefine(t *testing.T) {
	for _, m := range []manager{systemd{}, launchd{uid: 501}} {
		data, err := m.define(odd)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.parse(data)
		if diff := cmp.Diff(odd, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", m.name(), err, diff)
		}
		if got, err := m.parse([]byte("<a></a>")); err == nil {
			t.Errorf("%s: got %q of a file without a program, want an error", m.name(), got)
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
		"Label":            "local.tapgw",
		"ProgramArguments": []any{odd.Path, odd.Args[0], odd.Args[1]},
		"EnvironmentVariables": map[string]any{"COPILOT_HOME": "/a b/%t $X <é>",
			"PATH": `/bin:/c\d"e`},
		"WorkingDirectory":  home,
		"StandardErrorPath": filepath.Join(home, "Library", "Logs", "tapgw.log"),
		"RunAtLoad":         true,
		"KeepAlive":         map[string]any{"SuccessfulExit": false},
		"ExitTimeOut":       "20",
	}
	if diff := cmp.Diff(want, readPlist(t, data)); diff != "" {
		t.Errorf("the property list (-want +got):\n%s", diff)
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

// launchctl is a stand-in that keeps the agent in $HOME/agent. After bootout the agent
// stays until the third question about it, as a real one ends a while later.
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

// launchdRig is a launchd with the stand-in for launchctl on PATH.
type launchdRig struct {
	t       *testing.T
	home    string
	service *Service
}

func newLaunchdRig(t *testing.T) *launchdRig {
	r := &launchdRig{t, serviceHome(t), &Service{launchd{uid: 501}}}
	if err := os.Mkdir(filepath.Join(r.home, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.home, "bin/launchctl"), []byte(launchctl),
		0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

// install returns the action, or the text of the error.
func (r *launchdRig) install(definition string, start bool) string {
	r.t.Helper()
	action, err := r.service.Install(r.t.Context(), []byte("<!-- "+mark+" -->"+definition), start,
		allow)
	if err != nil {
		return err.Error()
	}
	return action
}

func allow(State) error { return nil }

// expect compares what launchctl was asked since the last call.
func (r *launchdRig) expect(what, want string) {
	r.t.Helper()
	file := filepath.Join(r.home, "asked")
	data, _ := os.ReadFile(file)
	_ = os.Remove(file)
	if got := strings.ReplaceAll(string(data), r.home, "~"); got != want {
		r.t.Errorf("%s: launchctl was asked\n got %q\nwant %q", what, got, want)
	}
}

// expectFile checks the end of the agent's file.
func (r *launchdRig) expectFile(want string) {
	r.t.Helper()
	data, err := os.ReadFile(r.service.File())
	if err != nil || !strings.HasSuffix(string(data), want) {
		r.t.Errorf("the file: got %q, %v, want it to end with %q", data, err, want)
	}
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

const (
	launchdStart = "enable gui/501/local.tapgw\nbootstrap gui/501 ~/Library/LaunchAgents/local.tapgw.plist\n"
	launchdStop  = "bootout gui/501/local.tapgw\n"
)

func TestLaunchdInstallActsOnChangesOnly(t *testing.T) {
	r := newLaunchdRig(t)
	equal(t, "first", r.install("one", true), Installed)
	r.expect("first", launchdStart)
	equal(t, "again", r.install("one", true), Unchanged)
	r.expect("again", "")
	equal(t, "changed", r.install("two", true), Updated)
	r.expect("changed", launchdStop+launchdStart)
	equal(t, "without a start", r.install("three", false), Updated)
	r.expect("without a start", "")
	r.expectFile("three")

	action, err := r.service.Uninstall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "uninstall", action, Removed)
	r.expect("uninstall", launchdStop)
	if isInstalled, err := r.service.Installed(); isInstalled || err != nil {
		t.Errorf("installed after uninstall: got %v, %v, want false", isInstalled, err)
	}
}

func TestLaunchdInstallRestoresAfterAFailure(t *testing.T) {
	r := newLaunchdRig(t)
	equal(t, "first", r.install("one", true), Installed)
	got := r.install("broken", true)
	if !strings.Contains(got, "Input/output error") ||
		!strings.HasSuffix(got, "; all is as it was") {
		t.Errorf("broken: got %q, want launchctl's error and that all is as it was", got)
	}
	r.expectFile("one")
	equal(t, "after the failure", r.install("one", true), Unchanged)
}

// Where the manager can't be asked, the error says what to do and nothing is written.
func TestInstallWithoutManager(t *testing.T) {
	install := func(s *Service, want string) {
		t.Helper()
		_, err := s.Install(t.Context(), []byte(mark), true, allow)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", s.Manager(), err, want)
		}
		if _, err := os.Stat(s.File()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file exists (%v), want none", s.Manager(), err)
		}
	}
	serviceHome(t)
	install(&Service{systemd{}}, "systemctl is not on PATH")
	install(&Service{launchd{uid: 501}}, "launchctl is not on PATH")
	r := newLaunchdRig(t)
	if err := os.WriteFile(filepath.Join(r.home, "nobody"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	install(r.service, "log in at the screen")
}
