//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/scriptmodel"
)

// maxTerminals is how many interactive CLIs run at the same time: each takes 300 MB, and a
// processor while it starts.
const maxTerminals = 4

// terminalSlots has a value for each interactive CLI that may run. A test takes all that it needs
// at once, one test after the other, so that no two tests wait for each other's.
var terminalSlots = struct {
	sync.Mutex
	taken chan struct{}
}{taken: make(chan struct{}, maxTerminals)}

// screens is a tmux server of a home, with the terminals of that home's user.
type screens struct {
	home   *home
	model  *scriptmodel.Server
	socket string
}

// terminal is an interactive Copilot CLI and what stands on its screen.
type terminal struct {
	*screens
	name string
	dir  string // the folder that it runs in
	pid  int
}

// terminals readies a home for so many interactive CLIs with a scripted model. They trust every
// folder of the home.
func (h *home) terminals(m *scriptmodel.Server, count int) *screens {
	h.t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		h.t.Fatalf("%v: run ci/setup.sh", err)
	}
	terminalSlots.Lock()
	for range count {
		terminalSlots.taken <- struct{}{}
	}
	terminalSlots.Unlock()
	h.t.Cleanup(func() {
		for range count {
			<-terminalSlots.taken
		}
	})
	h.put("copilot/config.json", fmt.Sprintf(
		`{"firstLaunchAt": "2026-01-01T00:00:00Z", "appTipShown": true, "trustedFolders": [%q]}`,
		h.dir))
	// A terminal stays when its program ends, for its last screen.
	h.put("tmux.conf",
		"set -g remain-on-exit on\nset -g status off\nset -g default-terminal xterm-256color\n")
	// The path of a socket is short; a home's is not.
	sockets, err := os.MkdirTemp(root, "tmux-")
	if err != nil {
		h.t.Fatal(err)
	}
	s := &screens{home: h, model: m, socket: filepath.Join(sockets, "s")}
	start(h.t, "tmux", h.command(copilotEnv(m), "tmux", "-S", s.socket, "-f", h.path("tmux.conf"),
		"-D"))
	eventually(h.t, patience, func() error {
		_, err := os.Stat(s.socket)
		return err
	})
	return s
}

// tmux runs a command of tmux and returns what it prints.
func (s *screens) tmux(args ...string) (string, error) {
	out, err := s.home.command(nil, "tmux",
		append([]string{"-u", "-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %q: %w: %s", args, err, out)
	}
	return string(out), nil
}

// must runs a command of tmux that has to succeed.
func (s *screens) must(args ...string) string {
	s.home.t.Helper()
	out, err := s.tmux(args...)
	if err != nil {
		s.home.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// launch starts a CLI in a folder of the home, which is made if there is none, and does not wait
// for it. Words of the form NAME=value go into its environment, the others are arguments; empty
// ones count for nothing.
func (s *screens) launch(dir string, words ...string) *terminal {
	t := s.home.t
	t.Helper()
	x := &terminal{screens: s, name: filepath.Base(dir), dir: s.home.path(dir)}
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"new-session", "-d", "-s", x.name, "-c", x.dir, "-x", "160", "-y", "50"}
	program := []string{installed(t, "@github/copilot-"+platform+"/copilot"), "--no-auto-update",
		"--allow-all-tools"}
	for _, word := range words {
		if word == "" {
			continue
		}
		if name, _, ok := strings.Cut(word, "="); ok && !strings.HasPrefix(name, "-") {
			args = append(args, "-e", word)
		} else {
			program = append(program, word)
		}
	}
	s.must(append(args, program...)...)
	pid, err := strconv.Atoi(s.must("list-panes", "-t", "="+x.name+":", "-F", "#{pane_pid}"))
	if err != nil {
		t.Fatal(err)
	}
	x.pid = pid
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("terminal %s shows:\n%s", x.name, x.screen())
		}
		x.kill()
	})
	return x
}

// repository makes a folder of the home a git repository on a branch.
func (h *home) repository(dir, branch string) {
	h.t.Helper()
	if err := os.MkdirAll(h.path(dir), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if out, err := h.command(nil, "git", "init", "-q", "-b", branch,
		h.path(dir)).CombinedOutput(); err != nil {
		h.t.Fatalf("git init: %v: %s", err, out)
	}
}

// open starts a CLI as [screens.launch] does and waits until it takes prompts.
func (s *screens) open(dir string, words ...string) *terminal {
	s.home.t.Helper()
	x := s.launch(dir, words...)
	x.waitReady()
	return x
}

// ready is in the last line of a CLI that has started and has nothing to do.
const ready = "/ commands"

func (x *terminal) waitReady() {
	x.home.t.Helper()
	x.waitScreen(ready)
}

// screen returns what the terminal shows, without its empty lines.
func (x *terminal) screen() string {
	out, err := x.tmux("capture-pane", "-p", "-t", "="+x.name+":")
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for text := range strings.Lines(out) {
		// A bar at the right edge shows how far one has scrolled.
		if text = strings.TrimRight(text, " \n┃"); text != "" {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

// waitScreen waits until the terminal shows all these texts at once, each within a line.
func (x *terminal) waitScreen(texts ...string) {
	t := x.home.t
	t.Helper()
	x.wait(func() error {
		screen := x.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("terminal %s does not show %q, but:\n%s", x.name, text, screen)
			}
		}
		return nil
	})
}

// wait waits until check returns nil, as [eventually]. Each look at a screen is a process, so it
// looks less often.
func (x *terminal) wait(check func() error) {
	x.home.t.Helper()
	var last error
	next := time.Now()
	eventually(x.home.t, agentPatience, func() error {
		if time.Now().After(next) {
			last = check()
			next = time.Now().Add(100 * time.Millisecond)
		}
		return last
	})
}

// press presses keys by their tmux names: "Enter", "C-c", "Escape".
func (x *terminal) press(keys ...string) {
	x.home.t.Helper()
	x.must(append([]string{"send-keys", "-t", "=" + x.name + ":"}, keys...)...)
}

// enter types a line and sends it off when the CLI has shown it. It does not wait for what comes of
// it.
func (x *terminal) enter(text string) {
	x.home.t.Helper()
	x.must("send-keys", "-t", "="+x.name+":", "-l", text)
	shown := []rune(text)
	x.waitScreen("❯ " + string(shown[:min(len(shown), 60)]))
	x.press("Enter")
}

// say enters a prompt and waits for the end of its turn: the CLI shows the answer and is ready for
// the next prompt.
func (x *terminal) say(prompt, answer string) {
	x.home.t.Helper()
	x.enter(prompt)
	x.waitScreen(answer, ready)
}

// waitHeard waits until a request of the model holds a text. The screen shows a prompt before the
// model has it.
func (x *terminal) waitHeard(text string) {
	x.home.t.Helper()
	x.wait(func() error {
		if !heard(x.model, text) {
			return fmt.Errorf("the model of terminal %s has not read %q", x.name, text)
		}
		return nil
	})
}

// session returns the id of the session in the foreground of a terminal that has only one. The CLI
// keeps a file with its process id in the folder of every session that it has open.
func (x *terminal) session() string {
	t := x.home.t
	t.Helper()
	var id string
	x.wait(func() error {
		locks, err := filepath.Glob(x.home.path("copilot", "session-state", "*",
			fmt.Sprintf("inuse.%d.lock", x.pid)))
		if err != nil || len(locks) != 1 {
			return fmt.Errorf("terminal %s has the sessions %q (%v), want one", x.name, locks, err)
		}
		id = filepath.Base(filepath.Dir(locks[0]))
		return nil
	})
	return id
}

// kill ends the CLI as a crash would and waits until it is gone.
func (x *terminal) kill() {
	x.home.t.Helper()
	_ = syscall.Kill(x.pid, syscall.SIGKILL)
	x.waitEnd()
}

// waitEnd waits for the end of the CLI.
func (x *terminal) waitEnd() {
	x.home.t.Helper()
	x.wait(func() error {
		if dead, err := x.tmux("list-panes", "-t", "="+x.name+":", "-F",
			"#{pane_dead}"); err != nil ||
			strings.TrimSpace(dead) == "1" {
			return nil
		}
		return fmt.Errorf("the CLI of terminal %s, process %d, still runs", x.name, x.pid)
	})
}

// TestTerminal shows that the CLI of the terminals' tests is a whole one: it answers what is typed,
// runs its own tools, and /clear gives it another session.
func TestTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	x := h.terminals(model(t, scriptmodel.Calls), 1).open("one")
	x.say("Good morning", "You said: Good morning")
	first := x.session()
	x.say(`call:bash {"command": "echo $((6*7)) | tee out", "description": "counts"}`, "● 42")
	if out, err := os.ReadFile(filepath.Join(x.dir, "out")); err != nil || string(out) != "42\n" {
		t.Errorf("the CLI's shell wrote %q (%v) in its folder, want 42", out, err)
	}
	x.enter("/clear")
	x.waitScreen("Started a fresh session", ready)
	x.say("Good evening", "You said: Good evening")
	if second := x.session(); second == first {
		t.Errorf("after /clear the session is %s as before, want another", second)
	}
	x.press("C-c")
	x.waitScreen("ctrl+c again to exit")
	x.press("C-c")
	x.waitEnd()
}
