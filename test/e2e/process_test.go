//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long tests wait for what should happen at once: long enough
// for a machine that is busy, and never reached by a test that passes.
const patience = 90 * time.Second

// eventually waits until check returns nil.
func eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v: %v", within, err)
		}
	}
}

// process is a program that runs beside the test. It does not outlive it.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed at its end, when code is known
	code int           // exit code, -1 for a signal

	mu    sync.Mutex
	lines []line
	more  chan struct{} // closed and replaced when a line comes
}

// line is a line of a process's output.
type line struct {
	from string // stdout or stderr
	text string
	at   time.Time
}

// start runs a command. What it prints shows in the log of a test that failed.
func start(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, done: make(chan struct{}), more: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &lineWriter{to: p, from: "stdout"}, &lineWriter{to: p, from: "stderr"}
	// A group of its own, for a terminal's Ctrl-C is not for it; gone with us.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	cmd.WaitDelay = 2 * time.Second // what it started may hold its output open
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(p.end)
	return p
}

// end kills the process if it still runs, and judges its output.
func (p *process) end() {
	select {
	case <-p.done:
	default:
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	if p.t.Failed() {
		p.t.Logf("%s, %v:\n%s", p.name, p.cmd.ProcessState, p.output())
	}
	if race := p.find("DATA RACE"); race != "" {
		p.t.Errorf("%s has a data race, want none:\n%s", p.name, p.output())
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.pid(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("sending %v to %s: %v", s, p.name, err)
	}
}

// freeze stops the process until SIGCONT, and waits until all its threads stand.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, patience, func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid()))
		if err != nil || len(tasks) == 0 {
			return fmt.Errorf("process %d has no threads", p.pid())
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			if _, state, _ := strings.Cut(string(stat), ") "); err == nil &&
				!strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s: %s", task, stat)
			}
		}
		return nil
	})
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait(patience)
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(within):
		p.t.Fatalf("%s did not end within %v, want its end", p.name, within)
		return 0
	}
}

// writeLine writes a line to the process's stdin.
func (p *process) writeLine(words ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, strings.Join(words, " ")+"\n"); err != nil {
		p.t.Fatalf("writing to %s: %v", p.name, err)
	}
}

// expect waits for a line that holds a text and returns the first one.
func (p *process) expect(text string) string {
	p.t.Helper()
	return p.expectNth(text, 1)
}

// expectNth waits for the n-th line that holds a text, counted from 1.
func (p *process) expectNth(text string, n int) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		found, more := p.matches(text)
		if len(found) >= n {
			return found[n-1]
		}
		select {
		case <-more:
			continue
		case <-p.done: // all its lines are there
			if found, _ = p.matches(text); len(found) < n {
				p.t.Fatalf(
					"%s ended (%v), want it to say %q (time %d) first:\n%s",
					p.name, p.cmd.ProcessState, text, n, p.output(),
				)
			}
		case <-timeout:
			p.t.Fatalf("%s did not say %q (time %d) within %v, want it to:\n%s", p.name, text, n,
				patience, p.output())
		}
	}
}

// find returns the first line so far that holds a text, "" for none.
func (p *process) find(text string) string {
	if found, _ := p.matches(text); len(found) > 0 {
		return found[0]
	}
	return ""
}

func (p *process) matches(text string) (found []string, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if strings.Contains(l.text, text) {
			found = append(found, l.text)
		}
	}
	return found, p.more
}

// result waits for the first line that the process prints on stdout.
func (p *process) result() string {
	p.t.Helper()
	var first string
	eventually(p.t, patience, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.lines {
			if l.from == "stdout" {
				first = l.text
				return nil
			}
		}
		return fmt.Errorf("%s has printed nothing", p.name)
	})
	return first
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, l := range p.lines {
		fmt.Fprintf(&b, "  %s %s| %s\n", l.at.Format("05.000"), l.from, l.text)
	}
	return b.String()
}

func (p *process) add(from, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line{from, text, time.Now()})
	close(p.more)
	p.more = make(chan struct{})
}

// lineWriter cuts what a process prints into lines.
type lineWriter struct {
	to   *process
	from string
	rest []byte
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.rest = append(w.rest, data...)
	for {
		text, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		w.to.add(w.from, string(text))
		w.rest = rest
	}
}
