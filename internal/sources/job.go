package sources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// job is a run that is under way.
type job struct {
	begun  time.Time
	cancel context.CancelFunc
	ended  chan struct{} // closed when its goroutine has ended
	answer answer        // the job's goroutine has it until the run has ended
}

const (
	stopGrace = 2 * time.Second
	// maxOutput bounds the compared output, in bytes.
	maxOutput = 1 << 20
)

// begin starts a run. Its goroutine calls take with the origins that it notices, and at last done
// with how it ended. Neither may wait for the end of the job's goroutine.
func (s *source) begin(
	ctx context.Context, take func(context.Context, []origin), done func(*job, error),
) *job {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{begun: time.Now(), cancel: cancel, ended: make(chan struct{})}
	emit := func(list ...origin) { take(ctx, list) }
	var work func() error
	switch s.config.Kind() {
	case "run":
		work = func() error { return s.command(ctx, j, emit) }
	case "prompt":
		fate := make(chan protocol.Message, 1)
		s.binding.idle = nil // until the session says so again
		s.outbox.add(push{prompt: s.config.Prompt, level: protocol.LevelInject, done: fate,
			traceparent: s.span.Traceparent})
		work = func() error { return prompted(ctx, fate) }
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
		done(j, work())
	}()
	return j
}

// prompted waits for the fate of a prompt.
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
	// the system would say it of the program
	if info, err := os.Stat(s.o.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("cwd: there is no directory %s", s.o.Dir)
	}
	if s.o.Check != nil {
		if err := s.o.Check(); err != nil {
			return err
		}
	}
	lines := make(chan origin)
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	pace := rate.NewLimiter(paceRate, paceBurst)
	p, err := proc.Start(proc.Command{
		Path: s.config.Run[0], Args: s.config.Run[1:], Dir: s.o.Dir, Env: s.o.Env(),
		Keep: 1, Grace: stopGrace, Whole: true,
		OnLine: func(from proc.Stream, line string) {
			_ = pace.WaitN(reading, len(line)+paceLine)
			s.o.Line(string(from), line)
			if from == proc.Stderr && (!s.config.Stderr || s.isPointer()) {
				return
			}
			e := origin{text: line, isLine: true,
				values: map[string]string{"line": line, "output": string(from)}}
			select {
			case lines <- e:
			case <-reading.Done(): // a child that stays has the pipe
			}
		},
	})
	if err != nil {
		return err
	}
	var output output
	defer func() { j.answer.text = strings.Join(output.lines, "\n") }()
	for {
		select {
		case e := <-lines:
			if s.config.Compare == "" {
				emit(e)
			} else {
				output.add(e.text)
			}
		case <-ctx.Done():
			// a command that prints without end would wait for a reader, and never be gone
			stopReading()
			p.Stop()
			return ctx.Err()
		case <-p.Done():
			return exitError(p.Err())
		}
	}
}

// A command that prints without end is slowed down: it waits at its pipe, and nothing is lost by
// that.
const (
	// paceBurst is how many bytes a command may print at once, and paceRate how many a second from
	// then on. A line counts as paceLine bytes more, because short ones cost as much time.
	paceBurst = 16 << 20
	paceRate  = 1 << 20
	paceLine  = 200
)

func exitError(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("the command ended with %w", exit)
	}
	return err
}
