package sources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// job is a run that is under way.
type job struct {
	begun  time.Time
	cancel context.CancelFunc
	events chan []origin
	done   chan error    // gets how the run ended
	ended  chan struct{} // closed when its goroutine has ended
	answer answer        // the job's goroutine has it until the run has ended
}

const (
	stopGrace = 2 * time.Second
	// maxOutput bounds what is compared, in bytes.
	maxOutput = 1 << 20
)

func (s *source) begin(ctx context.Context) *job {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{
		begun:  time.Now(),
		cancel: cancel,
		events: make(chan []origin),
		done:   make(chan error, 1),
		ended:  make(chan struct{}),
	}
	emit := func(e ...origin) {
		select {
		case j.events <- e:
		case <-ctx.Done():
		}
	}
	var work func() error
	switch s.of.Kind() {
	case "run":
		work = func() error { return s.command(ctx, j, emit) }
	case "prompt":
		done := make(chan protocol.Message, 1)
		s.binding.idle = nil // until the session says so again
		s.outbox.add(push{prompt: s.of.Prompt, level: protocol.LevelInject, done: done})
		work = func() error { return prompted(ctx, done) }
	case "files":
		work = func() error { return s.watchFiles(ctx, emit) }
	case "url":
		before := s.before()
		work = func() error { return s.fetch(ctx, &j.answer, before) }
	default:
		work = func() error { return errors.New("this kind of source is not there yet") }
	}
	go func() {
		defer close(j.ended)
		j.done <- work()
	}()
	return j
}

// prompted waits for what becomes of a prompt.
func prompted(ctx context.Context, done <-chan protocol.Message) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case m := <-done:
		switch m := m.(type) {
		case *protocol.Error:
			return errors.New(m.Message)
		case *protocol.Ack:
			if m.Fate != string(adminapi.FateDelivered) {
				return fmt.Errorf("the prompt was %s: %s", m.Fate, m.Reason)
			}
		}
		return nil
	}
}

// command runs the source's command to its end.
func (s *source) command(ctx context.Context, j *job, emit func(...origin)) error {
	if info, err := os.Stat(s.o.Dir); err != nil || !info.IsDir() { // the system would say it of the program
		return fmt.Errorf("cwd: there is no directory %s", s.o.Dir)
	}
	lines := make(chan origin)
	ended := make(chan struct{})
	p, err := proc.Start(proc.Command{
		Path: s.of.Run[0], Args: s.of.Run[1:], Dir: s.o.Dir, Env: s.o.Env, Keep: 1, Grace: stopGrace, Whole: true,
		OnLine: func(from proc.Stream, line string) {
			s.o.Line(string(from), line)
			if from == proc.Stderr && (!s.of.Stderr || s.isPointer()) {
				return
			}
			e := origin{text: line, isLine: true, values: map[string]string{"line": line, "output": string(from)}}
			select {
			case lines <- e:
			case <-ended: // a child that stays has the pipe
			}
		},
	})
	if err != nil {
		return err
	}
	stopReading := sync.OnceFunc(func() { close(ended) })
	defer stopReading()
	var output output
	defer func() { j.answer.text = strings.Join(output.lines, "\n") }()
	for {
		select {
		case e := <-lines:
			if s.of.Compare == "" {
				emit(e)
			} else {
				output.add(e.text)
			}
		case <-ctx.Done():
			stopReading() // a command that prints without end would wait for a reader, and never be gone
			p.Stop()
			return ctx.Err()
		case <-p.Done():
			return exitError(p.Err())
		}
	}
}

func exitError(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("the command ended with %w", exit)
	}
	return err
}
