// Package proc starts child processes and makes sure that they end: each child has a process group
// of its own, is stopped in steps, and on Linux ends with this process. It stores a child's output
// as lines. For a process that must be the only one of its kind, it has a file lock, private files,
// and the owner of a port.
package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"tapgw/internal/chans"
)

// Command describes the process that [Start] starts: its program, arguments and environment, and
// the handling of its output. Path is required. The child's stdin is always a pipe, see
// [Process.Stdin].
type Command struct {
	Path string // a bare name is looked up on PATH
	Args []string
	Dir  string
	Env  []string // NAME=value; see [Environ]. nil: no variables
	// OnLine gets every line of stdout and stderr, from one goroutine for each.
	OnLine func(from Stream, line string)
	// Stdout and Stderr get the output as it comes, instead of OnLine and the tail. One writer for
	// both gets it in the order of writing. Output that a writer refuses is dropped.
	Stdout, Stderr io.Writer
	// ReadStdout leaves stdout to [Process.Stdout]: its lines are not stored or reported.
	ReadStdout bool
	// Whole makes the whole group end with this process, also if that is killed, and not the child
	// alone. A process that leaves the group does not end.
	Whole bool
	Keep  int           // how many lines [Process.Tail] returns at most; 0: 50
	Grace time.Duration // from SIGTERM to SIGKILL in [Process.Stop]; 0: 5 s
}

// Stream names the stream that a line came from, in the words that provider logs use.
type Stream string

// Streams of a process.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

const (
	defaultKeep  = 50
	defaultGrace = 5 * time.Second
	// A process that left the group may keep the child's output open for ever.
	outputGrace = time.Second
)

// Process is a child that runs or has ended, with its process group. Its methods may be called from
// any goroutine. After the child's end the caller need not release it.
type Process struct {
	// Fixed at start.
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File // with Command.ReadStdout
	grace  time.Duration
	whole  bool
	tail   Tail
	done   chan struct{}

	err      error // of its end; set before done is closed
	stopOnce sync.Once
}

// Start starts a child in a process group of its own. The child ends by [Process.Stop], by itself,
// or on Linux with this process. When it ends, the rest of its group is killed. The error names the
// program.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = childAttr()
	p := &Process{
		cmd: cmd, grace: cmp.Or(c.Grace, defaultGrace), whole: c.Whole,
		tail: Tail{Most: cmp.Or(c.Keep, defaultKeep)},
		done: make(chan struct{}),
	}
	// With the pipes of package exec, Wait would wait for grandchildren.
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
		cmd.Stderr, c.Stderr = pipes[1], io.Discard // stderr's own pipe stays empty
	}
	if p.whole {
		groups.start()
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
	if p.whole {
		groups.begin(p.PID())
	}
	_ = pipes[1].Close()
	_ = pipes[3].Close()
	var readers sync.WaitGroup
	outputs := []*os.File{pipes[2]}
	readers.Go(func() { p.readStream(pipes[2], Stderr, c.Stderr, c.OnLine) })
	if p.stdout = pipes[0]; !c.ReadStdout {
		outputs = append(outputs, pipes[0])
		readers.Go(func() { p.readStream(pipes[0], Stdout, c.Stdout, c.OnLine) })
	}
	go p.wait(&readers, outputs...)
	return p, nil
}

// Connect starts a child whose stdin and stdout are one connection. Reading it ends with the child.
func Connect(c Command) (*Process, io.ReadWriteCloser, error) {
	out, in := io.Pipe()
	c.Stdout = in
	p, err := Start(c)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-p.done
		_ = in.Close()
	}()
	return p, connection{out, p.stdin}, nil
}

// connection has a child's stdout and stdin.
type connection struct {
	*io.PipeReader
	stdin io.WriteCloser
}

// Write writes to the child's stdin.
func (c connection) Write(b []byte) (int, error) { return c.stdin.Write(b) }

// Close closes both.
func (c connection) Close() error { return errors.Join(c.PipeReader.Close(), c.stdin.Close()) }

// readStream copies a stream to a writer, or stores and reports its lines, until it ends.
func (p *Process) readStream(f *os.File, from Stream, to io.Writer, onLine func(Stream, string)) {
	if to != nil {
		_, _ = io.Copy(to, f)
		_, _ = io.Copy(io.Discard, f) // a child must not wait for a writer that gave up
		return
	}
	eachLine(f, func(line string) {
		p.tail.Add(line)
		if onLine != nil {
			onLine(from, line)
		}
	})
}

// wait waits for the child, kills the rest of its group, and closes done after the last line was
// read.
func (p *Process) wait(readers *sync.WaitGroup, outputs ...*os.File) {
	p.err = p.cmd.Wait()
	_ = p.signal(syscall.SIGKILL)
	if p.whole {
		groups.end(p.PID())
	}
	closeAll := func() {
		for _, f := range outputs {
			_ = f.Close()
		}
	}
	cut := time.AfterFunc(outputGrace, closeAll)
	readers.Wait()
	cut.Stop()
	closeAll()
	close(p.done)
}

// PID returns the child's process id, which is the id of its process group too. It stays the same
// after the end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdin returns the writer to the child's standard input. Closing it is the end of input for the
// child. Writes block while the child does not read, and fail after its end.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout returns the child's standard output for [Command].ReadStdout. The caller reads it and
// closes it. It ends when the last process closes it, which may be later than the child's end.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }

// Done is closed after the child has ended and its output was read; up to 1 s later if other
// processes keep the output open.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the child and returns how it ended: nil for exit code 0, else an error
// such as [*exec.ExitError], which has the exit code or signal.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Tail returns the last lines of stdout and stderr together, oldest first, at most [Command].Keep.
// A stream that goes to a writer of Command is not among them.
func (p *Process) Tail() []string { return p.tail.Lines() }

// Stop ends the child and its group, and returns after they have ended. It closes stdin and sends
// SIGTERM, and after the grace period SIGKILL.
func (p *Process) Stop() {
	p.stopOnce.Do(func() {
		_ = p.stdin.Close()
		if p.hasEnded() {
			return // the process id may belong to another process by now
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

// Kill ends the child and its group with SIGKILL, and returns after they have ended. It is no error
// if the child has ended before.
func (p *Process) Kill() {
	if !p.hasEnded() {
		_ = p.signal(syscall.SIGKILL)
	}
	<-p.done
}

func (p *Process) hasEnded() bool { return chans.IsClosed(p.done) }

// signal sends a signal to the child's group. A group that has ended is no error.
func (p *Process) signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to process group %d: %w", s, p.PID(), err)
	}
	return nil
}
