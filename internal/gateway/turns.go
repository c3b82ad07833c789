package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"tapgw/internal/protocol"
)

// ErrTurnEnded says that a turn is over and was not cut short.
var ErrTurnEnded = errors.New("the turn has ended")

// InterruptedBefore is why nothing comes of a prompt that waited behind a turn that
// was interrupted.
const InterruptedBefore = "interrupted before its turn"

// Turn is what comes of one prompt: the callbacks of that prompt and of no other,
// also while others wait, steer or are interrupted. With a host that does not say
// what comes of which prompt it is what the session does until it is idle.
type Turn struct {
	s      *Session
	prompt string // its id
	id     string // and again, where the host says what comes of it; else ""

	cursor uint64          // of the live feed; the follower's
	done   context.Context // ends with the turn

	// Written before done ends.
	end    context.CancelFunc
	last   uint64 // cursor of the last callback
	reason error
}

// Turn gives the session a prompt and returns its turn once the host took it.
func (s *Session) Turn(ctx context.Context, p Prompt) (*Turn, error) {
	t := &Turn{s: s}
	t.done, t.end = context.WithCancel(context.Background())
	j, err := s.enqueuePrompt(ctx, p, t)
	if err != nil {
		s.dropTurn(t)
		return nil, err
	}
	t.cursor = j.cursor
	return t, nil
}

// checkPrompt says why a prompt can't bring what it does.
func (s *Session) checkPrompt(p Prompt) error {
	for field, there := range map[string]bool{"attachments": len(p.Attachments) > 0, "headers": len(p.Headers) > 0} {
		if there && !s.info.Attachments {
			return errorf(protocol.CodeInvalidJSON, "%s: prompts of sessions of host %s bring none", field, s.info.Kind)
		}
	}
	return nil
}

// assignPromptID gives a prompt its id, and keeps its turn until it ends.
func (s *Session) assignPromptID(p *Prompt, t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promptCount++
	p.ID = strconv.FormatUint(s.promptCount, 10)
	if t != nil {
		t.prompt = p.ID
		s.followedTurns[p.ID] = t
		if s.info.Turns {
			t.id = p.ID
		}
	}
}

// dropTurn drops a turn that never began.
func (s *Session) dropTurn(t *Turn) {
	s.mu.Lock()
	delete(s.followedTurns, t.prompt)
	s.mu.Unlock()
	t.end()
}

// TurnEnded implements [HostCalls].
func (s *Session) TurnEnded(prompts []string, cut string) {
	s.endTurnSpans(prompts, cut)
	last := s.live.last()
	reason := ErrTurnEnded
	if cut != "" {
		reason = errors.New(cut)
	}
	s.mu.Lock()
	var ended []*Turn
	for _, id := range prompts {
		if t := s.followedTurns[id]; t != nil {
			delete(s.followedTurns, id)
			t.last, t.reason = last, reason
			ended = append(ended, t)
		}
	}
	s.mu.Unlock()
	for _, t := range ended {
		t.end()
	}
}

// Next returns the turn's callbacks as they come, in order. Its error is
// [ErrTurnEnded] when the turn was whole, says why it was cut short, is
// [ErrSessionEnded] or that of ctx.
func (t *Turn) Next(ctx context.Context) ([]LiveLine, error) {
	for {
		ended := t.done.Err() != nil
		lines, cursor := t.s.live.after(t.cursor)
		t.cursor = cursor
		if ended {
			lines = slices.DeleteFunc(lines, func(l LiveLine) bool { return l.Seq > t.last })
		}
		idle := slices.IndexFunc(lines, func(l LiveLine) bool { return l.Event.Callback == OnIdle })
		switch {
		case t.id != "":
			lines = slices.DeleteFunc(lines, func(l LiveLine) bool { return !t.includes(l.Event) })
		case idle >= 0 && !ended:
			lines = lines[:idle+1]
			t.last, t.reason = lines[idle].Seq, ErrTurnEnded
			t.Close()
		}
		switch {
		case len(lines) > 0:
			return lines, nil
		case ended:
			return nil, t.reason
		}
		wait, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(t.done, cancel)
		err := t.s.live.wait(wait, t.cursor)
		stop()
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case t.done.Err() != nil:
		case err != nil:
			return nil, err
		}
	}
}

// includes reports whether something that the session did comes of the turn's prompt:
// or of none, where the session itself failed.
func (t *Turn) includes(e Event) bool {
	return slices.Contains(e.Prompts, t.id) || e.Prompts == nil && e.SessionError != ""
}

// Close stops following the turn, which goes on.
func (t *Turn) Close() {
	t.s.mu.Lock()
	delete(t.s.followedTurns, t.prompt)
	t.s.mu.Unlock()
	t.end()
}
