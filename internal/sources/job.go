package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// job is a run that is under way.
type job struct {
	cancel context.CancelFunc
	events chan origin
	done   chan error    // gets how the run ended
	ended  chan struct{} // closed when its goroutine has ended
	output output
}

// output is the end of what a run has printed or read, for sources that compare.
type output struct {
	lines []string
	bytes int
}

const (
	stopGrace = 2 * time.Second
	// maxOutput bounds what is compared, in bytes.
	maxOutput = 1 << 20
	tailLines = 20 // of a command that failed
)

func (s *source) begin(ctx context.Context) *job {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{cancel: cancel, events: make(chan origin), done: make(chan error, 1), ended: make(chan struct{})}
	emit := func(e origin) {
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
func (s *source) command(ctx context.Context, j *job, emit func(origin)) error {
	if info, err := os.Stat(s.o.Dir); err != nil || !info.IsDir() { // the system would say it of the program
		return fmt.Errorf("cwd: there is no directory %s", s.o.Dir)
	}
	lines := make(chan origin)
	ended := make(chan struct{})
	p, err := proc.Start(proc.Command{
		Path: s.of.Run[0], Args: s.of.Run[1:], Dir: s.o.Dir, Env: s.o.Env, Keep: 1, Grace: stopGrace, Whole: true,
		OnLine: func(from proc.Stream, line string) {
			s.o.Line(string(from), line)
			if from == proc.Stderr && !s.of.Stderr {
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
	defer close(ended)
	for {
		select {
		case e := <-lines:
			j.output.add(e.text)
			if s.of.Compare == "" {
				emit(e)
			}
		case <-ctx.Done():
			p.Stop()
			return ctx.Err()
		case <-p.Done():
			return exitError(p.Err())
		}
	}
}

func exitError(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("the command ended with %s", exit)
	}
	return err
}

func (o *output) add(line string) {
	o.lines = append(o.lines, line)
	o.bytes += len(line)
	for o.bytes > maxOutput && len(o.lines) > 1 {
		o.bytes -= len(o.lines[0])
		o.lines = o.lines[1:]
	}
}

// tail is the last lines.
func (o *output) tail() string {
	return strings.Join(o.lines[max(0, len(o.lines)-tailLines):], "\n")
}

// compared makes an event of what is other than at the last run, if the source compares.
func (s *source) compared(j *job, err error) {
	all := strings.Join(j.output.lines, "\n")
	emit := func(text string) {
		s.emit(origin{text: text, values: map[string]string{"output": all, "tail": j.output.tail()}})
	}
	before := s.progress.Seen
	switch s.of.Compare {
	case configs.CompareExit:
		if failed := err != nil; failed != s.progress.Failed {
			if failed {
				emit(strings.TrimSpace(err.Error() + "\n" + j.output.tail()))
			} else {
				emit(strings.TrimSpace("the command works again\n" + j.output.tail()))
			}
		}
	case configs.CompareOutput:
		s.progress.Seen = seen{IsSet: true, Digest: digest(all)}
		if before.IsSet && before.Digest != s.progress.Seen.Digest {
			emit(all)
		}
	case configs.CompareLines:
		s.progress.Seen = seen{IsSet: true}
		had := map[string]bool{}
		for _, d := range before.Lines {
			had[d] = true
		}
		for _, line := range j.output.lines {
			d := digest(line)
			s.progress.Seen.Lines = append(s.progress.Seen.Lines, d)
			if before.IsSet && !had[d] {
				had[d] = true
				s.emit(origin{text: line, isLine: true, values: map[string]string{"line": line}})
			}
		}
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}
