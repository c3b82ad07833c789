package conformance

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"tapgw/internal/proc"
)

// stopLimit is how long a provider may take to end after SIGTERM. A gateway that ends gives it
// less.
const stopLimit = 10 * time.Second

// stderrLines is how many of the last lines of a program's stderr a report has.
const stderrLines = 20

// startProcess starts a command as the gateway starts a provider: in a process group of its own,
// with the gateway's URL and a token in its environment. home is an empty one, so that it finds no
// other gateway.
func startProcess(command []string, url, token, home string, errs *proc.Tail) (Program, error) {
	p, err := proc.Start(proc.Command{
		Path: command[0], Args: command[1:],
		Env: proc.Environ(map[string]string{
			"TAP_GATEWAY_URL": url, "TAP_PROVIDER_TOKEN": token, "COPILOT_HOME": home,
		}),
		OnLine: func(from proc.Stream, line string) {
			if from == proc.Stderr {
				errs.Add(line)
			}
		},
		Keep: 1, Whole: true, Grace: stopLimit,
	})
	if err != nil {
		return Program{}, fmt.Errorf("%w: %w", errNoProgram, err)
	}
	done := make(chan error, 1)
	var stops sync.WaitGroup
	stops.Go(func() { done <- plainEnd(p.Err()) })
	stop := sync.OnceFunc(func() { stops.Go(p.Stop) })
	return Program{Stop: stop, Kill: func() { p.Kill(); stops.Wait() }, Done: done}, nil
}

// errNoProgram says that the command can't be started, so that there is nothing to judge.
var errNoProgram = errors.New("starting the provider")

// errKilled is the end of a process that did not end by SIGTERM.
var errKilled = errors.New("killed")

// plainEnd says how a process ended in words that need no context.
func plainEnd(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return errKilled
		}
		return fmt.Errorf("%s", exit.ProcessState)
	}
	return err
}
