// Package shell runs commands for tools: without a terminal, in a process group that
// ends with the command or with the call, and with as much of the output as a model
// can use.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/proc"
)

// stopGrace is how long a command has from SIGTERM to SIGKILL. It is shorter than the
// time that tools.Tool.Call waits for a tool that was cancelled.
const stopGrace = 500 * time.Millisecond

// Command is a program to run, with its environment, input and outputs. Without Dir it runs in the
// directory of this process. Nil outputs are discarded.
type Command struct {
	Args  []string // the program, looked up on PATH when it is a bare name, and its arguments
	Dir   string
	Env   []string // the whole environment; see [Environ]
	Input []byte   // all of its standard input
	// Stdout and Stderr get the output. One writer for both keeps its order.
	Stdout, Stderr io.Writer
}

// Exit is the end of a command that was not stopped: an exit code, or a signal. The zero value is
// success.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // its name; "" if no signal ended it
}

// OK reports whether the exit code is 0.
func (e Exit) OK() bool { return e.Code == 0 }

// String says in words how the command ended: its exit code, or the signal that ended it.
func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// Run runs a command until it ends, and then ends the processes that it left in its
// group. An error means that it could not start, or wraps the error of ctx: when ctx
// ends, Run stops the whole group.
func Run(ctx context.Context, c Command) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	p, err := proc.Start(proc.Command{
		Path: c.Args[0], Args: c.Args[1:], Dir: c.Dir, Env: c.Env,
		Stdout: c.Stdout, Stderr: c.Stderr, Grace: stopGrace, Whole: true,
	})
	if err != nil {
		return Exit{}, err
	}
	EndFirst(p.PID())
	inputDone := make(chan struct{})
	go func() {
		defer close(inputDone)
		_, _ = p.Stdin().Write(c.Input) // the command may not read it
		_ = p.Stdin().Close()
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop()
		<-inputDone
		return Exit{}, ctx.Err()
	}
	<-inputDone
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

// EndFirst makes Linux end this process before others when it runs out of memory, so that a command
// that needs too much does not take the gateway with it. On other systems it has no effect. Errors
// are ignored.
func EndFirst(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
}

// Environ returns the environment for a command, as NAME=value: ours without secrets (variables of
// the gateway, of Copilot, and variables whose names end in _TOKEN), and with variables that keep
// programs from paging, prompting and colouring.
func Environ() []string {
	quiet := []string{"TERM=dumb", "NO_COLOR=1", "PAGER=cat", "GIT_PAGER=cat",
		"GIT_TERMINAL_PROMPT=0"}
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !isSecret(name) {
			env = append(env, pair)
		}
	}
	return append(env, quiet...)
}

// isSecret reports whether a variable belongs to this program or holds a token.
func isSecret(name string) bool {
	ours := []string{"TAP_", "TAPGW_", "TAPCTL_", "LSCLIENT_", "COPILOT_", "GH_COPILOT_",
		"GITHUB_COPILOT_"}
	return strings.HasSuffix(name, "_TOKEN") ||
		slices.ContainsFunc(ours, func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
}
