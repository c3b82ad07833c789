// Package shell runs commands for tools: with no terminal and no more input than
// is given, in a process group that ends with them or with the call, and with as
// much of their output as a model can use.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/proc"
)

// grace is what a command gets from SIGTERM to SIGKILL. With what a process may
// take that left the group, it stays below what a tool's caller waits.
const grace = 500 * time.Millisecond

// Command is what to run.
type Command struct {
	Args  []string // the program, looked up on PATH when it is a bare name, and its arguments
	Dir   string
	Env   []string // as it is; see [Environ]
	Input []byte   // all of its standard input
	// Stdout and Stderr get its output; one writer for both keeps the order.
	Stdout, Stderr io.Writer
}

// Exit is how a command ended by itself.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // its name; "" if none
}

// OK reports success.
func (e Exit) OK() bool { return e.Code == 0 }

func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// Run runs a command to its end. Processes that it left in the background, in its
// group, end with it. The error says that it could not be started, or wraps that
// of ctx, at whose end all of the group is ended, too.
func Run(ctx context.Context, c Command) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	p, err := proc.Start(proc.Command{
		Path: c.Args[0], Args: c.Args[1:], Dir: c.Dir, Env: c.Env,
		Stdout: c.Stdout, Stderr: c.Stderr, Grace: grace,
	})
	if err != nil {
		return Exit{}, err
	}
	Expendable(p.PID())
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = p.Stdin().Write(c.Input) // it need not read it
		_ = p.Stdin().Close()
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop()
		<-fed
		return Exit{}, ctx.Err()
	}
	<-fed
	exit, failed := errors.AsType[*exec.ExitError](p.Err())
	switch {
	case failed:
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return Exit{-1, status.Signal().String()}, nil
		}
		return Exit{Code: exit.ExitCode()}, nil
	case p.Err() != nil:
		return Exit{}, fmt.Errorf("running %s: %w", c.Args[0], p.Err())
	}
	return Exit{}, nil
}

// Expendable asks a system that runs out of memory to end this process before
// others, where that can be asked.
func Expendable(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
}

// Environ is the user's environment for a command: all of ours, except what is
// secret, and set so that programs neither page, prompt nor colour.
func Environ() []string {
	quiet := []string{"TERM=dumb", "NO_COLOR=1", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"}
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !secret(name) {
			env = append(env, pair)
		}
	}
	return append(env, quiet...)
}

// secret reports whether a variable belongs to this program or holds a token: the
// model and what it runs have no business with them.
func secret(name string) bool {
	for _, ours := range []string{"TAP_", "TAPGW_", "TAPCTL_", "LSCLIENT_", "COPILOT_", "GH_COPILOT_",
		"GITHUB_COPILOT_"} {
		if strings.HasPrefix(name, ours) {
			return true
		}
	}
	return strings.HasSuffix(name, "_TOKEN")
}
