package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

// A run's session: its start, its prompts, and its end.

const (
	// startTimeout bounds the start of a session. A Copilot runtime unpacks itself at its first
	// start.
	startTimeout = 3 * time.Minute
	// endTimeout bounds the end of a session, also after Ctrl-C.
	endTimeout = 30 * time.Second
	// pollEvery is how often a session that may still work is looked at.
	pollEvery = 100 * time.Millisecond
	hostLocal = "local"
	// markStream is the stream of the event that marks the end of a run's events.
	markStream = "tapctl-evals"
)

// overBudget says that a run used more than its budget.
type overBudget struct{ what string }

func (e *overBudget) Error() string { return e.what }

// session is a session that runs a case.
type session struct {
	o    *Options
	c    *configs.EvalCase
	id   string
	dir  string
	stop context.CancelCauseFunc // ends the run, for a reason

	work   sync.WaitGroup // goroutines of the run
	pushes *pushes

	mu     sync.Mutex // guards the fields that follow
	seen   observed
	open   map[string]int // calls that run, by their id
	marks  map[string]chan struct{}
	stored int // bytes of the transcript
}

// observe runs a case in a session, and returns its observation, even with an error. The session
// ends with it.
func (o *Options) observe(ctx context.Context, j job) (*observed, error) {
	dir, err := newWorkspace(j.c.Workspace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	label := fmt.Sprintf("eval %s %d", j.c.ID, j.run)
	id, err := o.start(ctx, label, dir, o.Settings)
	if err != nil {
		return nil, err
	}
	defer o.end(ctx, id)
	ctx, cancel := context.WithTimeoutCause(ctx, j.c.Budget.Time,
		&overBudget{fmt.Sprintf("it took longer than %s", j.c.Budget.Time)})
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	s := &session{o: o, c: j.c, id: id, dir: dir, stop: stop, open: map[string]int{},
		marks: map[string]chan struct{}{}}
	s.seen.session = id
	s.pushes = &pushes{s: s, ctx: ctx}
	err = s.run(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	stop(nil)
	s.work.Wait()
	return &s.seen, err
}

// start starts a session. It is not cut short, since a session that starts anyway would be left.
func (o *Options) start(
	ctx context.Context, label, dir string, settings adminapi.ModelSettings,
) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	return o.Gateway.Start(
		starting,
		adminapi.StartRequest{Host: o.Host, CWD: dir, Label: label, ModelSettings: settings},
	)
}

// end ends a session and removes the host's stored copy of it.
func (o *Options) end(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = o.Gateway.Stop(ctx, id) // the gateway may be gone, or the session
	if o.Host != hostLocal {    // which stores no sessions
		_ = o.Gateway.Delete(ctx, id)
	}
}

// run gives the session its prompts, and waits until it is idle.
func (s *session) run(ctx context.Context) error {
	s.work.Go(func() { s.follow(ctx) })
	s.work.Go(func() { s.answerQuestions(ctx) })
	if err := s.startProviders(ctx); err != nil {
		return err
	}
	begun := time.Now()
	defer func() { s.seen.duration = time.Since(begun) }()
	s.pushes.begin()
	for i, prompt := range s.c.Prompts {
		s.countTurn()
		if err := s.turn(ctx, prompt); err != nil {
			return err
		}
		s.pushes.turnEnded(i + 1)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	usage, err := s.o.Gateway.Usage(ctx, s.id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.usage = usage
	s.seen.files = map[string]file{}
	for _, f := range s.c.Files {
		text, exists, err := readFile(s.dir, f.Path)
		s.seen.files[f.Path] = file{text, exists, err}
	}
	return nil
}

// turn gives the session a prompt and waits for the end of its turn.
func (s *session) turn(ctx context.Context, prompt string) error {
	for line, err := range s.o.Gateway.Query(ctx, s.id, adminapi.Query{Prompt: prompt}) {
		switch {
		case err != nil:
			return err
		case line.End == nil:
		case line.End.Error != nil:
			return cli.Failed("the turn failed: %s", line.End.Error.Message)
		default:
			return nil
		}
	}
	return errGone
}

var errGone = &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
	Message: "the gateway went away before the turn ended; see tapctl status"}

// settle waits until the events of the case were pushed, the session has been idle for as long as
// the case says, and all that it did before was seen.
func (s *session) settle(ctx context.Context) error {
	for idle := (time.Time{}); ; {
		now, err := s.o.Gateway.Session(ctx, s.id)
		if err != nil {
			return err
		}
		switch {
		case now.State != "idle" || s.pushes.isBusy():
			idle = time.Time{}
		case idle.IsZero():
			idle = time.Now()
		}
		if !idle.IsZero() && time.Since(idle) >= s.c.Wait {
			if err := s.catchUp(ctx); err != nil {
				return err
			}
			now, err = s.o.Gateway.Session(ctx, s.id)
			if err != nil || now.State == "idle" && !s.pushes.isBusy() {
				return err
			}
			idle = time.Time{}
		}
		if err := chans.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// catchUp waits until all earlier events were read: it pushes an event, which comes after them.
func (s *session) catchUp(ctx context.Context) error {
	mark, reached := uuid.NewString(), make(chan struct{})
	s.mu.Lock()
	s.marks[mark] = reached
	s.mu.Unlock()
	_, err := s.o.Gateway.Push(ctx, s.id, adminapi.Push{Stream: markStream, Level: "keep",
		Event: mark})
	if err != nil {
		return err
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// countTurn counts a prompt, and ends the run at one too many.
func (s *session) countTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.turns++; s.seen.turns > s.c.Budget.Turns {
		s.stop(&overBudget{"it had more than " + visible.Count(s.c.Budget.Turns, "turn")})
	}
}

// answerQuestions answers the session's questions to a person: no person is there.
func (s *session) answerQuestions(ctx context.Context) {
	for state, err := range s.o.Gateway.Watch(ctx, adminapi.StateQuestions) {
		var waiting []adminapi.Question
		if err != nil || json.Unmarshal(state.Data, &waiting) != nil {
			return // the session's own feed says why
		}
		for _, q := range waiting {
			if q.Session != s.id {
				continue
			}
			a := adminapi.Answer{Question: q.ID, Decision: adminapi.DecideDeny}
			if s.o.Allow && q.Kind == adminapi.QuestionPermission {
				a.Decision = adminapi.DecideOnce
			}
			err := s.o.Gateway.Answer(ctx, s.id, a)
			if err == nil && a.Decision == adminapi.DecideDeny {
				s.mu.Lock()
				s.seen.denied++
				s.mu.Unlock()
			}
		}
	}
}

// follow notes the events of the session, until it ends or ctx does. An observation must be
// complete, so a gap ends the run.
func (s *session) follow(ctx context.Context) {
	for e, err := range s.o.Gateway.FollowSession(ctx, s.id, followFrom) {
		if err == nil {
			err = s.note(e)
		}
		if err != nil {
			s.stop(err)
			return
		}
	}
	s.stop(errors.New("the session has ended before the run"))
}
