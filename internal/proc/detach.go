package proc

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Detached is a process that outlives us.
type Detached struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Detach starts a process in a session of its own, so that neither our end nor
// our terminal's reaches it, with its output appended to a log file.
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

// Done is closed when it has ended.
func (d *Detached) Done() <-chan struct{} { return d.done }

// Err says how it ended, nil for exit code 0. It waits for the end.
func (d *Detached) Err() error {
	<-d.done
	return d.err
}

// Kill ends it at once.
func (d *Detached) Kill() { _ = d.cmd.Process.Kill() }
