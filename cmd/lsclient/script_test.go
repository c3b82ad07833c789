package main

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/taptest"
)

// patience bounds the wait for another process.
const patience = time.Minute

func TestMain(m *testing.M) {
	testscript.Main(taptest.LeakChecked{M: m}, map[string]func(){"lsclient": mainWithCheckedEvents})
}

// TestScripts runs the program as shells do, without a language server.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	t.Parallel()
	runScripts(t, "testdata/script", nil, nil)
}

// runScripts runs the scripts of a directory against the real tapgw and tapctl.
func runScripts(t *testing.T, dir string, env map[string]string, more map[string]func(
	*testscript.TestScript, bool,
	[]string)) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "tapgw/cmd/tapgw",
		"tapgw/cmd/tapctl", "tapgw/providers/templates/guard")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building what scripts run: %v\n%s", err, out)
	}
	eventsSchema, err := filepath.Abs("../../docs/lsclient-events.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":     taptest.Exits,
		"gateway":   cmdGateway,
		"silent":    cmdSilent,
		"gone":      cmdGone,
		"awaitfile": cmdAwaitFile,
		"await":     cmdAwait,
		"set":       cmdSet,
	}
	maps.Copy(commands, more)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("COPILOT_HOME", filepath.Join(e.WorkDir, "home", "copilot"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "home", "config"))
			e.Setenv("USERFILES", filepath.Join(e.WorkDir, "home", "config", "tapgw"))
			for _, name := range []string{"TAP_GATEWAY_URL", "TAP_ADMIN_TOKEN",
				"TAP_PROVIDER_TOKEN", "LSCLIENT_CONFIG",
				"TAPGW_CONFIG", "NO_COLOR", "CLICOLOR_FORCE", "COPILOT_LANGUAGE_SERVER"} {
				e.Setenv(name, "")
			}
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv(eventsSchemaVar, eventsSchema)
			for name, value := range env {
				e.Setenv(name, value)
			}
			return os.MkdirAll(e.Getenv("USERFILES"), 0o700)
		},
		Cmds: commands,
	})
}

// gateway: runs a gateway until the script ends.
func cmdGateway(ts *testscript.TestScript, neg bool, args []string) {
	bin, _, _ := strings.Cut(ts.Getenv("PATH"), string(filepath.ListSeparator))
	ts.Check(taptest.LeaveOutTap(ts.MkAbs("."), nil,
		filepath.Join(ts.Getenv("USERFILES"), "tapgw.toml")))
	cmd := exec.Command(filepath.Join(bin, "tapgw"), "serve", "--listen", "127.0.0.1:0",
		"--log-level", "error")
	cmd.Env = environment(ts)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, 256)
	n, err := out.Read(line) // when it is ready it says where
	ts.Check(err)
	ts.Setenv("GATEWAY", strings.TrimSpace(string(line[:n])))
}

// silent: listens at $SILENT until the script ends, and never says a word.
func cmdSilent(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("SILENT", "ws://"+l.Addr().String())
}

// gone FILE: the process whose id the file has ends.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	until(ts, "the end of process "+strconv.Itoa(pid), func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		return err != nil || strings.HasPrefix(string(state), "Z") // nobody may have reaped it
	})
}

// environment is the script's.
func environment(ts *testscript.TestScript) []string {
	env := os.Environ()
	for _, name := range []string{"PATH", "HOME", "COPILOT_HOME", "XDG_CONFIG_HOME",
		"TAP_GATEWAY_URL",
		"TAP_ADMIN_TOKEN", "TAP_PROVIDER_TOKEN", "TAPGW_CONFIG"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

// awaitfile FILE [REGEXP]: the file comes, and holds a match.
func cmdAwaitFile(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile(strings.Join(args[1:], " "))
	until(ts, "the file "+args[0], func() bool {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(data)
	})
}

// await REGEXP COMMAND...: the command is run until its output matches.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	re := regexp.MustCompile("(?m)" + args[0])
	until(ts, args[0]+" from "+strings.Join(args[1:], " "), func() bool {
		err := ts.Exec(args[1], args[2:]...)
		return err == nil && re.MatchString(ts.ReadFile("stdout")) != neg
	})
}

// set NAME: sets a variable to what the last command printed.
func cmdSet(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// until asks again and again.
func until(ts *testscript.TestScript, what string, done func() bool) {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("nothing came in %v, want %s", patience, what)
		}
	}
}
