// Package proc starts child processes and sees to it that they end: each in a
// process group of its own, stopped in steps, gone when we are gone (on Linux),
// its output kept as lines. It also holds what a process needs to be the only one
// of its kind: a lock, private files, and the name of whoever has a port.
package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Command is what to start.
type Command struct {
	Path string // looked up on PATH when it is a bare name
	Args []string
	Dir  string
	Env  []string // as it is; see [Environ]. nil: no variables
	// OnLine gets every line of stdout and stderr, from a goroutine for each.
	OnLine func(from Stream, line string)
	// Stdout and Stderr get what they are named after as it comes, instead of
	// OnLine and the tail; one for both keeps what was written in its order. What
	// they refuse is dropped.
	Stdout, Stderr io.Writer
	Keep           int           // lines to keep for [Process.Tail]; 0: 50
	Grace          time.Duration // from SIGTERM to SIGKILL in [Process.Stop]; 0: 5 s
}

// Stream says where a line came from.
type Stream string

// Streams of a process.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

const (
	defaultKeep  = 50
	defaultGrace = 5 * time.Second
	// A process that left its group may hold its output open for ever.
	outputGrace = time.Second
)

// Process is a child that runs, or ran.
type Process struct {
	// Fixed at start.
	cmd   *exec.Cmd
	stdin io.WriteCloser
	grace time.Duration
	tail  *ring
	done  chan struct{}

	err      error // of its end; set before done is closed
	stopOnce sync.Once
}

// Start starts a child. It ends with [Process.Stop], by itself, or on Linux with
// this process.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = childAttr()
	p := &Process{cmd: cmd, grace: c.Grace, tail: newRing(c.Keep), done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = defaultGrace
	}
	// Pipes of our own: with exec's, Wait would wait for grandchildren.
	var pipes []*os.File
	closeAll := func() {
		for _, f := range pipes {
			_ = f.Close()
		}
	}
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("starting %s: %w", c.Path, err)
		}
		pipes = append(pipes, r, w)
	}
	cmd.Stdout, cmd.Stderr = pipes[1], pipes[3]
	if c.Stderr != nil && c.Stderr == c.Stdout {
		cmd.Stderr, c.Stderr = pipes[1], io.Discard // its own pipe stays empty
	}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	p.stdin = stdin
	_ = pipes[1].Close()
	_ = pipes[3].Close()
	var readers sync.WaitGroup
	readers.Go(func() { p.readStream(pipes[0], Stdout, c.Stdout, c.OnLine) })
	readers.Go(func() { p.readStream(pipes[2], Stderr, c.Stderr, c.OnLine) })
	go p.wait(&readers, pipes[0], pipes[2])
	return p, nil
}

// readStream hands a stream to a writer, or else keeps and hands on its lines, until it
// ends.
func (p *Process) readStream(f *os.File, from Stream, to io.Writer, onLine func(Stream, string)) {
	if to != nil {
		_, _ = io.Copy(to, f)
		_, _ = io.Copy(io.Discard, f) // a child must not wait for a writer that gave up
		return
	}
	eachLine(f, func(line string) {
		p.tail.add(line)
		if onLine != nil {
			onLine(from, line)
		}
	})
}

// wait reaps the child, ends what is left of its group, and says that it is done
// when the last line was read.
func (p *Process) wait(readers *sync.WaitGroup, outputs ...*os.File) {
	p.err = p.cmd.Wait()
	_ = p.signal(syscall.SIGKILL)
	cut := time.AfterFunc(outputGrace, func() {
		for _, f := range outputs {
			_ = f.Close()
		}
	})
	readers.Wait()
	if cut.Stop() {
		for _, f := range outputs {
			_ = f.Close()
		}
	}
	close(p.done)
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdin writes to the child.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Done is closed when the child has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the child ended, nil for exit code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Tail returns the last lines of the child's output, oldest first.
func (p *Process) Tail() []string { return p.tail.lines() }

// Stop ends the child and its group and returns when that is done: it closes
// stdin and sends SIGTERM, and after the grace period SIGKILL.
func (p *Process) Stop() {
	p.stopOnce.Do(func() {
		_ = p.stdin.Close()
		if p.hasEnded() {
			return // its id may belong to another by now
		}
		_ = p.signal(syscall.SIGTERM)
		t := time.NewTimer(p.grace)
		defer t.Stop()
		select {
		case <-p.done:
		case <-t.C:
			_ = p.signal(syscall.SIGKILL)
		}
	})
	<-p.done
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends a signal to the child's group.
func (p *Process) signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to process group %d: %w", s, p.PID(), err)
	}
	return nil
}
