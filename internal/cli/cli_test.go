package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	ucli "github.com/urfave/cli/v2"
	"go.uber.org/goleak"
)

// interrupted makes the test binary a command that sends itself a signal as soon as it is told of
// another.
const interrupted = "TAPGW_CLI_INTERRUPTED"

func TestMain(m *testing.M) {
	if os.Getenv(interrupted) != "" {
		app := &ucli.App{Name: "x", Action: func(c *ucli.Context) error {
			interrupt := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) }
			context.AfterFunc(c.Context, interrupt)
			interrupt()
			<-c.Context.Done()
			select {} // the second signal ends this
		}}
		os.Exit(Run(app, []string{"x"}, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// A second signal ends the process, however soon after the first one it comes.
func TestSecondSignal(t *testing.T) {
	for range 20 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), interrupted+"=1", "GOMAXPROCS=1")
		stop := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Run()
		stop.Stop()
		status := c.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Fatalf("after two signals: %v, want the end by the second", c.ProcessState)
		}
	}
}

// testApp is an app with the shapes that real ones have. Its commands print
// what they were given.
func testApp() *ucli.App {
	show := func(c *ucli.Context) error {
		got := map[string]any{"command": c.Command.Name, "args": c.Args().Slice()}
		for _, name := range []string{"level", "session", "url", "workdir"} {
			if c.IsSet(name) {
				got[name] = c.String(name)
			}
		}
		for _, name := range []string{"json", "prompt", "verbose"} {
			if c.Bool(name) {
				got[name] = true
			}
		}
		if c.IsSet("timeout") {
			got["timeout"] = c.Duration("timeout").String()
		}
		return Out(c).Line(got)
	}
	fail := func(err error) ucli.ActionFunc { return func(*ucli.Context) error { return err } }
	return &ucli.App{
		Name: "tap", Usage: "try things",
		Flags: []ucli.Flag{
			WorkdirFlag(), VerboseFlag(), ConfigFlag(),
			&ucli.StringFlag{Name: "url", Usage: "the gateway's `URL`"},
			&ucli.DurationFlag{Name: "timeout", Usage: "give up after `TIME`",
				Value: 30 * time.Second},
		},
		Commands: []*ucli.Command{
			{
				Name: "push", Usage: "push an event", ArgsUsage: "TEXT|-",
				Description: "Prose.\n\nExamples:\n  tap push hi",
				Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "session", Aliases: []string{"s"}, Usage: "into `ID`"},
					&ucli.StringFlag{Name: "level", Usage: "`keep|surface|inject`: how far it goes",
						Value: "surface"},
					&ucli.BoolFlag{Name: "prompt", Usage: "the text is a prompt"},
					&ucli.BoolFlag{Name: "prod", Hidden: true},
				},
				Action: show,
				BashComplete: func(c *ucli.Context) {
					if Completing(c) == "session" {
						Candidate(c, "alpha", "first at "+c.String("url"))
						Candidate(c, "beta", "second")
					}
				},
			},
			{
				Name: "sessions", Aliases: []string{"ls"}, Usage: "list sessions", Action: show,
				Flags: []ucli.Flag{&ucli.StringFlag{Name: "session"}},
				Subcommands: []*ucli.Command{
					{
						Name:   "start",
						Usage:  "start one",
						Action: show,
						Flags:  []ucli.Flag{&ucli.StringFlag{Name: "session"}},
					},
					{
						Name:      "stop",
						Usage:     "stop one",
						ArgsUsage: "ID",
						Action:    show,
						BashComplete: func(c *ucli.Context) {
							Candidate(c, "alpha", "")
						},
					},
				},
			},
			{Name: "config", Usage: "configuration", Subcommands: []*ucli.Command{
				{Name: "check", Usage: "check it", ArgsUsage: "[FILE...]", Action: show},
			}},
			{Name: "plain", Usage: "fails", Action: fail(errors.New("reading x: broken"))},
			{
				Name:  "refused",
				Usage: "fails",
				Action: fail(&Error{Exit: ExitRefused, Code: "RATE_LIMITED",
					Message: "slow\ndown"}),
			},
			{Name: "wrapped", Usage: "fails",
				Action: fail(fmt.Errorf("stopping it: %w", NotFound("no session x")))},
			{Name: "late", Usage: "fails",
				Action: fail(fmt.Errorf("waiting: %w", context.DeadlineExceeded))},
			{Name: "stopped", Usage: "fails",
				Action: fail(fmt.Errorf("waiting: %w", context.Canceled))},
			{Name: "silent", Usage: "fails", Action: fail(Reported(ExitFailed))},
		},
	}
}

func run(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = RunContext(t.Context(), testApp(), append([]string{"/bin/tap"}, args...),
		strings.NewReader(""), &out, &errs)
	return exit, out.String(), errs.String()
}

func TestFlagsStandBeforeAndAfterArguments(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"push hi", `{"args":["hi"],"command":"push"}`},
		{"push hi --level inject", `{"args":["hi"],"command":"push","level":"inject"}`},
		{"push --level inject hi", `{"args":["hi"],"command":"push","level":"inject"}`},
		{"push --level=inject hi --prompt -s a",
			`{"args":["hi"],"command":"push","level":"inject","prompt":true,"session":"a"}`},
		{"--json push hi --prompt=false", `{"args":["hi"],"command":"push","json":true}`},
		{"push hi --json --url ws://x -v",
			`{"args":["hi"],"command":"push","json":true,"url":"ws://x","verbose":true}`},
		{"--url ws://x push hi", `{"args":["hi"],"command":"push","url":"ws://x"}`},
		{"push a -- --level inject", `{"args":["a","--level","inject"],"command":"push"}`},
		{"push -- -x", `{"args":["-x"],"command":"push"}`},
		{"push -", `{"args":["-"],"command":"push"}`},
		{"push help", `{"args":["help"],"command":"push"}`},
		{"push level --level keep", `{"args":["level"],"command":"push","level":"keep"}`},
		{"push --session - x", `{"args":["x"],"command":"push","session":"-"}`},
		{"push --session=--json x", `{"args":["x"],"command":"push","session":"--json"}`},
		{"push --level keep x --level inject", `{"args":["x"],"command":"push","level":"inject"}`},
		{"sessions", `{"args":[],"command":"sessions"}`},
		{"ls --timeout 2s", `{"args":[],"command":"sessions","timeout":"2s"}`},
		{"sessions --timeout 2s stop abc --json",
			`{"args":["abc"],"command":"stop","json":true,"timeout":"2s"}`},
		{"sessions --session a start", `{"args":[],"command":"start","session":"a"}`},
		{"sessions --session a start --session b", `{"args":[],"command":"start","session":"b"}`},
		{"sessions --session a stop x", `{"args":["x"],"command":"stop","session":"a"}`},
		{"-w . config check a b", `{"args":["a","b"],"command":"check","workdir":"."}`},
	} {
		exit, out, errs := run(t, strings.Fields(tc.line)...)
		if exit != 0 || strings.TrimSpace(out) != tc.want {
			t.Errorf("%s:\n got %d %s%s\nwant 0 %s", tc.line, exit, out, errs, tc.want)
		}
	}
}

func TestWrongUsageIsOneLineThatHelps(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"push hi --lvel inject",
			`tap: unknown flag "--lvel" for "tap push"; did you mean --level? (see tap push --help)`},
		{"--bogus push",
			`tap: unknown flag "--bogus" for "tap"; put -- before arguments that begin with a dash (see tap --help)`},
		{"push -5",
			`tap: unknown flag "-5" for "tap push"; put -- before arguments that begin with a dash (see tap push --help)`},
		{"sesions",
			`tap: unknown command "sesions" for "tap"; did you mean sessions? (see tap --help)`},
		{"sessions stat",
			`tap: unknown command "stat" for "tap sessions"; did you mean start? (see tap sessions --help)`},
		{"frobnicate", `tap: unknown command "frobnicate" for "tap" (see tap --help)`},
		{"sessions start now",
			`tap: sessions start: takes no arguments, got "now" (see tap sessions start --help)`},
		{"push hi --level", `tap: flag --level: needs a value (see tap push --help)`},
		{"push hi --level --prompt",
			`tap: flag --level: needs a value, found the flag --prompt (write --level=--prompt if that is the value) (see tap push --help)`},
		{"push hi --prompt=maybe",
			`tap: flag --prompt: takes no value but true or false, got "maybe" (see tap push --help)`},
		{"push hi --timeout soon",
			`tap: flag --timeout: invalid value "soon": want a time like 30s or 5m (see tap push --help)`},
		{"config", `tap: tap config: needs a command: check (see tap config --help)`},
		{"completion",
			`tap: completion: needs a shell: bash, zsh or fish (see tap completion --help)`},
		{"completion tcsh",
			`tap: completion: no script for "tcsh", there are bash, zsh and fish (see tap completion --help)`},
	} {
		exit, out, errs := run(t, strings.Fields(tc.line)...)
		if exit != ExitUsage || out != "" || errs != tc.want+"\n" {
			t.Errorf("%s:\n got %d %q %s\nwant 2 %s", tc.line, exit, out, errs, tc.want)
		}
	}
}

func TestErrorsHaveExitCodes(t *testing.T) {
	for _, tc := range []struct {
		command, code, message string
		exit                   int
	}{
		{"plain", "FAILED", "reading x: broken", 1},
		{"refused", "RATE_LIMITED", "slow down", 5},
		{"wrapped", "NOT_FOUND", "stopping it: no session x", 4},
		{"late", "TIMEOUT", "waiting: timed out; allow it longer with --timeout", 124},
		{"stopped", "CANCELLED", "waiting: cancelled", 1},
	} {
		exit, out, errs := run(t, tc.command)
		if exit != tc.exit || out != "" || errs != "tap: "+tc.message+"\n" {
			t.Errorf(`%s: %d %q %q, want %d, "" and %q`, tc.command, exit, out, errs, tc.exit,
				"tap: "+tc.message+"\n")
		}
		for _, line := range [][]string{{"--json", tc.command}, {tc.command, "--json"}} {
			exit, out, errs = run(t, line...)
			want := fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`+"\n", tc.code, tc.message)
			if exit != tc.exit || out != want || errs != "" {
				t.Errorf(`%v: %d %q %q, want %d, %q and ""`, line, exit, out, errs, tc.exit, want)
			}
		}
	}
	if exit, out, errs := run(t, "silent"); exit != 1 || out+errs != "" {
		t.Errorf(`silent: %d %q %q, want 1 and ""`, exit, out, errs)
	}
	if exit, out, _ := run(t, "push", "--bogus", "--json"); exit != 2 ||
		!strings.HasPrefix(out, `{"error":{"code":"USAGE"`) {
		t.Errorf("usage with --json behind the fault: %d %q, want 2 and a USAGE document", exit,
			out)
	}
}

func TestHelp(t *testing.T) {
	_, want, _ := run(t, "push", "--help")
	for _, line := range []string{"push -h", "push hi --help", "help push", "--help push",
		"push --session x -h --json"} {
		if exit, out, errs := run(t, strings.Fields(line)...); exit != 0 || out != want ||
			errs != "" {
			t.Errorf(`%s: %d %q, want 0, %v and ""`, line, exit, out+errs, want)
		}
	}
	for _, part := range []string{
		"Push an event\n", "Usage:\n  tap push [flags] TEXT|-\n", "\nProse.\n", "-s, --session ID",
		"    --level keep|surface|inject   how far it goes (default: surface)\n", "Common flags:\n",
		"-w, --workdir DIR", "Examples:\n  tap push hi\n",
	} {
		if !strings.Contains(want, part) {
			t.Errorf("help lacks %q, want %q in it:\n%s", part, part, want)
		}
	}
	_, root, _ := run(t)
	if _, out, _ := run(t, "--help"); out != root ||
		!strings.Contains(out, "sessions, ls   list sessions\n") ||
		!strings.Contains(out, "completion") {
		t.Errorf("help of the app, want its version, commands and completion:\n%s", out)
	}
	if exit, _, errs := run(t, "help", "nothing"); exit != ExitUsage ||
		!strings.Contains(errs, "unknown command") {
		t.Errorf("help of what is not there: %d %s, want %d and that it is unknown", exit, errs,
			ExitUsage)
	}
}

func TestVersion(t *testing.T) {
	for _, line := range []string{"--version", "push --version", "--version --json"} {
		exit, out, _ := run(t, strings.Fields(line)...)
		if exit != 0 || !strings.Contains(out, "tap") ||
			strings.Contains(line, "json") != json.Valid([]byte(out)) {
			t.Errorf(`%s: %d %q, want 0, "tap" in it and %v`, line, exit, out,
				json.Valid([]byte(out)))
		}
	}
	info := &debug.BuildInfo{
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	if got := versionOf(info); got != "devel-0123456789ab-dirty" {
		t.Errorf(`from the repository: %s, want "devel-0123456789ab-dirty"`, got)
	}
	info.Main.Version = "v1.2.3"
	if got := versionOf(info); got != "v1.2.3" {
		t.Errorf(`installed: %s, want "v1.2.3"`, got)
	}
	if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}); got != "devel" {
		t.Errorf(`without a repository: %s, want "devel"`, got)
	}
}

func TestCompletion(t *testing.T) {
	for _, tc := range []struct {
		line []string
		want []string
	}{
		{[]string{"pu"}, []string{"push"}},
		{[]string{"sessions", ""}, []string{"start", "stop"}},
		{[]string{"sessions", "--json", "sta"}, []string{"start"}},
		{[]string{"push", "--le"}, []string{"--level"}},
		{[]string{"push", "--pro"}, []string{"--prompt"}},
		{[]string{"push", "hi", "--j"}, []string{"--json"}},
		{[]string{"push", "--level", "s"}, []string{"surface"}},
		{[]string{"push", "--level=s"}, []string{"--level=surface"}},
		{[]string{"push", "--level", "=", "s"}, []string{"surface"}},
		{[]string{"push", "--level", "="}, []string{"keep", "surface", "inject"}},
		{[]string{"push", "--level", "=", "keep", "--prom"}, []string{"--prompt"}},
		{[]string{"push", "--session", ""}, []string{"alpha", "beta"}},
		{[]string{"push", "--url", "ws://x", "-s", "b"}, []string{"beta"}},
		{[]string{"sessions", "stop", ""}, []string{"alpha"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"push", ""}, nil},
		{[]string{"--workdir", ""}, nil},
		{[]string{"nothing", ""}, nil},
		{nil, nil},
	} {
		exit, out, errs := run(t, append([]string{completeCommand}, tc.line...)...)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(line, "\t")
			got = append(got, word)
		}
		if diff := cmp.Diff(tc.want, got); exit != 0 || errs != "" || diff != "" {
			t.Errorf("%q: %d %s%s", tc.line, exit, errs, diff)
		}
	}
	_, out, _ := run(t, completeCommand, "push", "--url", "ws://x", "--session", "a")
	if out != "alpha\tfirst at ws://x\n" {
		t.Errorf("a completer sees no flags: %q, want %q", out, "alpha\tfirst at ws://x\n")
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		exit, out, _ := run(t, "completion", shell)
		if exit != 0 || !strings.Contains(out, "tap "+completeCommand) &&
			!strings.Contains(out, completeCommand) ||
			strings.Contains(out, "NAME") {
			t.Errorf("%s: %d\n%s", shell, exit, out)
		}
	}
	// The bash script in a real bash, with a stand-in for the binary that
	// prints the words it was asked about.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tap"),
		[]byte("#!/bin/sh\nshift\nfor w; do printf '%s\\tx y\\n' \"<$w>\"; done\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	_, script, _ := run(t, "completion", "bash")
	script += "COMP_WORDS=(tap push --session '')\nCOMP_CWORD=3\n_tap_complete\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "<push>\n<--session>\n<>\n" {
		t.Errorf("bash: %v, want no error and %q\n%s", err, "<push>\n<--session>\n<>\n", out)
	}
}

func TestDoctor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		slow := func(r Result) func(context.Context) Result {
			return func(context.Context) Result { <-time.After(time.Second); return r }
		}
		checks := []Check{
			{"port", slow(OK("%d is free", 9400))},
			{"token", func(context.Context) Result {
				return Warn("chmod 600 it", "others can read it")
			}},
			{"runtime", slow(Fail("make runtime", "none found"))},
		}
		var out bytes.Buffer
		err := Doctor(t.Context(), &Output{W: &out}, checks)
		want :=
			"ok    port: 9400 is free\nwarn  token: others can read it\n      chmod 600 it\nfail  runtime: none found\n      make runtime\n"
		if AsError(err).Exit != ExitFailed || out.String() != want {
			t.Errorf("%v, want Exit %v and %s\n%s", err, ExitFailed, want, out.String())
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("took %v: not at the same time, want %v", d, time.Second)
		}
		out.Reset()
		if err := Doctor(t.Context(), &Output{W: &out, JSON: true}, checks[:2]); err != nil {
			t.Error(err)
		}
		want =
			`[{"check":"port","status":"ok","detail":"9400 is free","cure":""},{"check":"token","status":"warn","detail":"others can read it","cure":"chmod 600 it"}]` + "\n"
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	})
}

func TestTable(t *testing.T) {
	var out, errs bytes.Buffer
	o := &Output{W: &out, Err: &errs}
	table := &Table{Columns: []string{"ID", "STATE", "N"}, Inked: 1, Ink: func(text string) Ink {
		if text == "busy" {
			return Green
		}
		return ""
	}}
	if err := o.Table(table, "no rows; make some"); err != nil || out.Len() > 0 ||
		errs.String() != "no rows; make some\n" {
		t.Errorf("empty: %v %q %q, want the note that there are no rows", err, out.String(),
			errs.String())
	}
	table.Row("a-long-one", "busy", 1)
	table.Row("b", "id\x1b[31mle\n", "")
	_ = o.Table(table, "")
	plain := out.String()
	if want := "ID          STATE  N\na-long-one  busy   1\nb           idle   -\n"; plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
	out.Reset()
	o.Color = true
	_ = o.Table(table, "")
	stripped := out.String()
	for _, code := range []string{string(Bold), string(Plain), string(Green), "\x1b[0m"} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if stripped != plain || out.String() == plain {
		t.Errorf("colour moves columns, want those of\n%s\ngot\n%s", plain, stripped)
	}
}

// A column goes only if no row has a cell there, and the cells of the others stay below their
// headings.
func TestDropEmpty(t *testing.T) {
	var out bytes.Buffer
	columns := []string{"ID", "FILE", "GATEWAY"}
	table := &Table{Columns: columns}
	table.Row("a", "", "")
	table.Row("b", "", "far")
	table.DropEmpty("FILE", "GATEWAY")
	_ = (&Output{W: &out}).Table(table, "")
	if want := "ID  GATEWAY\na   -\nb   far\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if columns[1] != "FILE" {
		t.Errorf("the caller's columns are %v, want them as they were", columns)
	}
}

func TestColor(t *testing.T) {
	for _, tc := range []struct {
		no, force, term string
		want            bool
	}{
		{"", "", "xterm", false}, // not a terminal
		{"", "1", "xterm", true},
		{"", "1", "dumb", true},
		{"", "0", "xterm", false},
		{"1", "1", "xterm", false},
	} {
		t.Setenv("NO_COLOR", tc.no)
		t.Setenv("CLICOLOR_FORCE", tc.force)
		t.Setenv("TERM", tc.term)
		if got := Color(&bytes.Buffer{}); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc, got, tc.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{
		"short": "short", "two\nlines": "two…", "twelve chars": "twelve c…", " x \n": "x",
	} {
		if got := Shorten(in, 9); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\nsecond": "plain\ttext\nsecond", "\x1b[1;31mred\x1b[0m": "red",
		"\x1b]0;title\x07x": "x", "\x1b]8;;u\x1b\\x": "x", "a\rb\x07\x1b": "ab", "a\u202eb": "ab",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// No text of others makes a terminal do something: in results, notes, JSON and
// candidates it is spelt out, beside our own colours.
func TestOutputIsHarmless(t *testing.T) {
	var out, errs bytes.Buffer
	o := &Output{W: &out, Err: &errs, Color: true}
	path := "/src/\x1b[2J\x1b]0;x\a\u009b8m\u202e\r"
	spelt := `/src/\x1b[2J\x1b]0;x\x07\u009b8m\u202e\x0d`
	if err := o.Printf("%s: %s\n", o.Paint(Red, "file"), path); err != nil ||
		out.String() != "\x1b[31mfile\x1b[0m: "+spelt+"\n" {
		t.Errorf("printed %q, %v, want no error and %q", out.String(), err,
			"\x1b[31mfile\x1b[0m: "+spelt+"\n")
	}
	o.Notef("%v", errors.New("opening "+path))
	if errs.String() != "opening "+spelt+"\n" {
		t.Errorf("noted %q, want %q", errs.String(), "opening "+spelt+"\n")
	}
	out.Reset()
	var back string
	if err := o.Document(path); err != nil ||
		strings.ContainsAny(out.String(), "\x1b\a\r\u009b\u202e") ||
		json.Unmarshal(out.Bytes(), &back) != nil || back != path {
		t.Errorf("as JSON %q, read as %q, %v", out.String(), back, err)
	}
	out.Reset()
	c := ucli.NewContext(&ucli.App{Writer: &out}, nil, nil)
	Candidate(c, "a\x1b[2J", "x")
	Candidate(c, "b", "x\x1b[2J")
	if out.String() != "b\tx\n" {
		t.Errorf("candidates %q, want %q", out.String(), "b\tx\n")
	}
}

// FuzzWords: what is sorted once is sorted for good, no argument gets lost or
// changes its place, and no word makes it panic.
func FuzzWords(f *testing.F) {
	for _, line := range []string{
		"push hi --level inject", "--json sessions stop x", "push -- --level x", "push --level",
		"-w . ls", "help push", "push -s=a b --prompt", "a = b", "push --level = s",
	} {
		f.Add(strings.ReplaceAll(line, " ", "\x00"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		line := strings.Split(text, "\x00")
		app := testApp()
		var out bytes.Buffer
		prepare(app, strings.NewReader(""), &out, &out)
		completeWords(t.Context(), app, line)

		app = testApp()
		prepare(app, strings.NewReader(""), &out, &out)
		w, err := sortWords(app, line)
		if err != nil {
			if e := AsError(err); e.Exit != ExitUsage || e.Message == "" {
				t.Fatalf("%q: %v, want Exit %v and a Message", line, err, ExitUsage)
			}
			return
		}
		if w.help || w.version {
			return
		}
		again, err := sortWords(app, w.line(app)[1:])
		if err != nil {
			t.Fatalf("%q sorted to %q: %v", line, w.line(app), err)
		}
		if !slices.Equal(w.line(app), again.line(app)) {
			t.Fatalf("%q sorted to %q, then to %q, want %q", line, w.line(app), again.line(app),
				again.line(app))
		}
		rest := line
		for _, arg := range w.args {
			i := slices.Index(rest, arg)
			if i < 0 {
				t.Fatalf("%q: argument %q out of order in %q, want at least 0", line, arg, w.args)
			}
			rest = rest[i+1:]
		}
	})
}
