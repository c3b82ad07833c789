package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHookFile runs the commands of a hook file as the CLI does, where the program's path has what
// shells treat specially. The program must be bash's own process, because the hook finds the CLI by
// its parent.
func TestHookFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `odd $HOME it's "x" & \ ;`+"`y` %z% <ü>")
	program := filepath.Join(dir, "tapgw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho \"$# $1 $2\"; [ $PPID = $CLI ] || echo the parent is another\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	var file struct {
		Version int
		Hooks   map[string][]struct {
			Type, Bash, PowerShell string
			TimeoutSec             int
		}
	}
	if err := json.Unmarshal([]byte(hookFile(program)), &file); err != nil {
		t.Fatal(err)
	}
	if file.Version != 1 || len(file.Hooks) != len(hookEvents) {
		t.Errorf("version %d, %d events; want 1, %d", file.Version, len(file.Hooks),
			len(hookEvents))
	}
	for event, list := range file.Hooks {
		h := list[0]
		out, err := exec.Command("bash", "-c", "export CLI=$$; bash -c \"$0\"; :",
			h.Bash).CombinedOutput()
		if want := "2 hook " + event + "\n"; err != nil || string(out) != want {
			t.Errorf("%s: %s prints %q (%v), want %q", event, h.Bash, out, err, want)
		}
		shell := "& '" + strings.ReplaceAll(program, "'", "''") + "' hook " + event
		if h.PowerShell != shell || h.Type != "command" || h.TimeoutSec != hookTimeout {
			t.Errorf("%s: %+v, want %s, of type command, and %d seconds", event, h, shell,
				hookTimeout)
		}
	}
}

// TestHookOfARemovedProgram: without tapgw the CLI's calls go on, and a line says why. One that
// denies still denies.
func TestHookOfARemovedProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), `it's "gone"`)
	var said strings.Builder
	run := func() (string, error) {
		said.Reset()
		cmd := exec.Command("bash", "-c", shellHook(program, "preToolUse"))
		cmd.Stderr = &said
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := run(); err != nil || out != "" ||
		!strings.Contains(said.String(), "tapgw is gone") {
		t.Errorf("without the program: %q, %v, %q, want success, no output and why", out, err,
			&said)
	}
	// A program.
	script := []byte("#!/bin/sh\nexit 2\n")
	if err := os.WriteFile(program, script, 0o700); err != nil { //nolint:gosec
		t.Fatal(err)
	}
	if _, err := run(); err == nil || strings.Contains(said.String(), "gone") {
		t.Errorf("with a program that fails: %v, %q, want its failure", err, &said)
	}
}

// TestCheckProgram refuses programs that the CLI could not run.
func TestCheckProgram(t *testing.T) {
	for program, fault := range map[string]string{
		"/opt/a b/tapgw":              "",
		"/tmp/go-build123/b001/tapgw": "build a program that stays",
		"/opt/a\nb/tapgw":             "move tapgw elsewhere",
		"/opt/a\xff/tapgw":            "move tapgw elsewhere",
	} {
		err := checkProgram("install copilot", program)
		if fault == "" && err != nil || fault != "" &&
			(err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%q: got %v, want %q", program, err, fault)
		}
	}
}
