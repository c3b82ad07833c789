package proc

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Detached is a child process that outlives this process, for example a gateway that tapgw ensure
// starts. Its methods may be called from any goroutine.
type Detached struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Detach starts a process in a session of its own, so that it does not notice the end of this
// process or of its terminal. Stdout and stderr go to log, stdin is empty. env is the whole
// environment as NAME=value; nil inherits this process's. The error names the program.
func Detach(path string, args, env []string, dir string, log *os.File) (*Detached, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	d := &Detached{cmd: cmd, done: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		close(d.done)
	}()
	return d, nil
}

// Done is closed after the process has ended. [Detached.Err] then returns at once.
func (d *Detached) Done() <-chan struct{} { return d.done }

// Err waits for the end of the process and returns how it ended: nil for exit code 0, else an error
// such as [*exec.ExitError].
func (d *Detached) Err() error {
	<-d.done
	return d.err
}

// Kill ends the process at once with SIGKILL, but not its children. A process that has ended is no
// error.
func (d *Detached) Kill() { _ = d.cmd.Process.Kill() }
