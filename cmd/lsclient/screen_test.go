//go:build runtime

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// screenCommands are the script commands that run a program in a real terminal, in tmux.
func screenCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"terminal": cmdTerminal,
		"keys":     cmdKeys,
		"types":    cmdTypes,
		"pastes":   cmdPastes,
		"resize":   cmdResize,
		"screen":   cmdScreen,
		"ends":     cmdEnds,
	}
}

// tmux runs a tmux command on the script's own server and returns what it printed.
func tmux(ts *testscript.TestScript, args ...string) string {
	cmd := exec.Command("tmux", append([]string{"-S", ts.Getenv("TMUX_SOCKET"), "-f", os.DevNull},
		args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		ts.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// terminal SIZE COMMAND...: runs a program in a new terminal of so many columns and rows, such as
// 80x24.
func cmdTerminal(ts *testscript.TestScript, _ bool, args []string) {
	dir, err := os.MkdirTemp("", "tmux") // short, because the paths of sockets are
	ts.Check(err)
	socket := filepath.Join(dir, "s")
	ts.Setenv("TMUX_SOCKET", socket)
	ts.Defer(func() { _ = os.RemoveAll(dir) })
	ts.Defer(func() { _ = exec.Command("tmux", "-S", socket, "kill-server").Run() })
	columns, rows, _ := strings.Cut(args[0], "x")
	// The script starts the server, which so has its environment. A shell shows the program's name,
	// as people's do (else tmux would keep each frame that is erased in the first row), and how it
	// ended, which tmux misses at times.
	ts.Check(ts.Exec("tmux", append([]string{"-S", socket, "-f", os.DevNull, "start-server", ";",
		"set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "history-limit",
		"5000", ";",
		"set-option", "-s", "escape-time", "0", ";", "new-session", "-d", "-x", columns, "-y", rows,
		"sh", "-c",
		`echo "$ $1"; trap : INT; "$@"; echo " exit code $?"; exec sleep 1000`, "sh"},
		args[1:]...)...))
}

// keys KEY...: presses keys, in tmux's names for them: C-c, Enter, M-Enter, Up.
func cmdKeys(ts *testscript.TestScript, _ bool, args []string) {
	tmux(ts, append([]string{"send-keys"}, args...)...)
}

// types TEXT: types a text and then Enter.
func cmdTypes(ts *testscript.TestScript, _ bool, args []string) {
	tmux(ts, "send-keys", "-l", strings.Join(args, " "))
	tmux(ts, "send-keys", "Enter")
}

// pastes FILE: pastes a file as terminals do: with brackets if the program knows them.
func cmdPastes(ts *testscript.TestScript, _ bool, args []string) {
	tmux(ts, "load-buffer", ts.MkAbs(args[0]), ";", "paste-buffer", "-p")
}

// resize SIZE: changes the terminal's size.
func cmdResize(ts *testscript.TestScript, _ bool, args []string) {
	columns, rows, _ := strings.Cut(args[0], "x")
	tmux(ts, "resize-window", "-x", columns, "-y", rows)
}

// screen REGEXP waits until the terminal shows a match; lines that have scrolled away count. With !
// it waits until there is no match. Lines have no spaces at their ends.
func cmdScreen(ts *testscript.TestScript, neg bool, args []string) {
	re := regexp.MustCompile("(?m)" + strings.Join(args, " "))
	awaitScreen(ts, "match of "+re.String(), func(shown string) bool {
		return re.MatchString(shown) != neg
	})
}

// awaitScreen waits until the screen is as it should be.
func awaitScreen(ts *testscript.TestScript, what string, done func(shown string) bool) {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		shown := strings.TrimRight(tmux(ts, "capture-pane", "-p", "-S", "-"), "\n")
		if done(shown) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("after %v the screen shows:\n%s\nwant the %s", patience, shown, what)
		}
	}
}

// ends CODE: the program in the terminal ends with an exit code.
func cmdEnds(ts *testscript.TestScript, _ bool, args []string) {
	ended := regexp.MustCompile(`(?m) exit code (\d+)$`)
	var code string
	awaitScreen(ts, "end of the program", func(shown string) bool {
		m := ended.FindStringSubmatch(shown)
		if m != nil {
			code = m[1]
		}
		return m != nil
	})
	if code != args[0] {
		ts.Fatalf("got exit code %s, want %s", code, args[0])
	}
}
