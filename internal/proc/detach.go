package proc

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Detached is a child process that outlives this process.
type Detached struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Detach starts a process in a session of its own, with its output appended to a log file. Neither the end of this
// process nor that of its terminal reaches it.
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

// Done is closed after the process has ended.
func (d *Detached) Done() <-chan struct{} { return d.done }

// Err returns how the process ended, nil for exit code 0. It waits for the end.
func (d *Detached) Err() error {
	<-d.done
	return d.err
}

// Kill ends the process at once.
func (d *Detached) Kill() { _ = d.cmd.Process.Kill() }
