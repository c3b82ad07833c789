package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// A [Turn] reads the callbacks from a prompt to the end of its turn.

// ErrTurnEnded is the error of [Turn.Next] after a turn that was not cut short, once the
// reader has all its callbacks. It is no failure.
var ErrTurnEnded = errors.New("the turn has ended")

// InterruptedBefore is the reason of the end of a prompt's turn that never began, because
// the turn before it was interrupted. Hosts give it to [HostCalls].TurnEnded.
const InterruptedBefore = "interrupted before its turn"

// Turn reads the callbacks of one prompt's turn, whatever other prompts wait or are
// interrupted. If the host does not say which prompt a callback belongs to
// ([HostInfo].Turns), it reads all callbacks until the session is idle. It is for one
// goroutine.
type Turn struct {
	s           *Session
	prompt      string // its id
	eventPrompt string // the same, if the host's events name their prompts; else ""

	// Written before begun is closed, when the host is given the prompt.
	begun  chan struct{}
	cursor uint64 // for Session.Live

	done context.Context // ends with the turn

	// Written before done ends.
	end    context.CancelFunc
	last   uint64 // cursor of the last callback
	reason error
}

// Turn gives the session a prompt, waits until the host took it or it waits in the queue
// behind the turn that runs, and returns its turn.
// The error is INVALID_STATE if the host takes no prompts, INVALID_JSON with the field
// that it does not support, INVALID_SESSION if the session ends, the host's or ctx's.
func (s *Session) Turn(ctx context.Context, p Prompt) (*Turn, error) {
	t := &Turn{s: s, begun: make(chan struct{})}
	t.done, t.end = context.WithCancel(context.Background())
	if _, err := s.enqueuePrompt(ctx, p, t); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// begin notes that the host is given the turn's prompt. A prompt that comes back to the queue is
// given again.
func (t *Turn) begin(cursor uint64) {
	if t == nil {
		return
	}
	if !chans.IsClosed(t.begun) {
		t.cursor = cursor
		close(t.begun)
	}
}

// checkPrompt refuses a prompt that the session's host can't take, such as one with attachments.
func (s *Session) checkPrompt(p Prompt) error {
	fields := map[string]bool{"attachments": len(p.Attachments) > 0, "headers": len(p.Headers) > 0}
	for field, isPresent := range fields {
		if isPresent && !s.info.Attachments {
			return errorf(protocol.CodeInvalidJSON, "%s: prompts of sessions of host %s bring none",
				field, s.info.Kind)
		}
	}
	return nil
}

// TurnEnded implements [HostCalls]. It ends the [Turn] of each prompt at the newest
// callback, with cutReason as the error of [Turn.Next], and [ErrTurnEnded] for "". Unknown
// ids are ignored.
func (s *Session) TurnEnded(prompts []string, cutReason string) {
	s.endTurns(prompts, cutReason)
	if cutReason == InterruptedBefore {
		prompts = s.requeue(prompts)
	}
	last := s.feed.last().Live
	reason := ErrTurnEnded
	if cutReason != "" {
		reason = errors.New(cutReason)
	}
	ps := s.prompts
	ps.mu.Lock()
	var ended []*Turn
	for _, id := range prompts {
		delete(ps.given, id)
		if t := ps.turns[id]; t != nil {
			delete(ps.turns, id)
			t.last, t.reason = last, reason
			ended = append(ended, t)
		}
	}
	ps.mu.Unlock()
	for _, t := range ended {
		t.end()
	}
}

// Next waits for callbacks of the turn and returns them in order. The error is
// [ErrTurnEnded] after a whole turn, the reason why the turn was cut short,
// [ErrSessionEnded], or that of ctx.
func (t *Turn) Next(ctx context.Context) ([]LiveLine, error) {
	if err := t.waitBegun(ctx); err != nil {
		return nil, err
	}
	for {
		isEnded := t.done.Err() != nil
		lines, cursor := t.s.Live(t.cursor)
		t.cursor = cursor
		if t.done.Err() != nil { // also if it ended just now: the next turn may have begun since
			lines = slices.DeleteFunc(lines, func(l LiveLine) bool { return l.Seq > t.last })
		}
		if t.eventPrompt != "" {
			lines = slices.DeleteFunc(lines, func(l LiveLine) bool { return !t.includes(l.Event) })
		}
		switch {
		case len(lines) > 0:
			return lines, nil
		case isEnded:
			return nil, t.reason
		}
		if err := t.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// waitBegun waits until the host is given the prompt.
func (t *Turn) waitBegun(ctx context.Context) (err error) {
	select {
	case <-t.begun:
		return nil
	case <-t.done.Done():
		err = t.reason
	case <-t.s.stopped:
		err = ErrSessionEnded
	case <-ctx.Done():
		err = ctx.Err()
	}
	if chans.IsClosed(t.begun) { // and ended since
		return nil
	}
	return err
}

// wait waits for a callback or the end of the turn.
func (t *Turn) wait(ctx context.Context) error {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.done, cancel)()
	err := t.s.WaitLive(either, t.cursor)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.done.Err() != nil:
		return nil
	}
	return err
}

// includes reports whether an event belongs to the turn's prompt. An error of the
// session that belongs to no prompt is part of every turn.
func (t *Turn) includes(e Event) bool {
	return slices.Contains(e.Prompts, t.eventPrompt) || e.Prompts == nil && e.SessionError != ""
}

// Close ends the reading of the turn. The turn itself goes on. A reader calls it when it
// stops before [Turn.Next] returned an error; calling it again does nothing.
func (t *Turn) Close() {
	t.s.prompts.mu.Lock()
	delete(t.s.prompts.turns, t.prompt)
	t.s.prompts.mu.Unlock()
	t.end()
}

// LastTurn says how the session's last turn went. It is empty from the moment the host is given
// another prompt.
type LastTurn struct {
	Interrupted string // why it was interrupted, or ""
	Failure     string // an error of the session meanwhile
}

// LastTurn says how the last turn went, or how the one that runs goes so far.
func (s *Session) LastTurn() LastTurn {
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	return s.prompts.lastTurn
}

// Busy implements [HostCalls]. While the session is busy, injects wait and the admin API
// shows the state busy.
func (s *Session) Busy() { s.prompts.setBusy(true) }

func (ps *prompts) setBusy(isBusy bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.isBusy, ps.isBetween = isBusy, false
	ps.touch()
}

// Idle implements [HostCalls]. If prompts wait in the queue, the next one begins, and the session
// goes on being busy. Else it publishes OnIdle and, if a turn ran, sends providers
// session.lifecycle idle before the worker begins the next inject. See docs/protocol.md,
// "session.lifecycle".
func (s *Session) Idle() {
	ps := s.prompts
	ps.mu.Lock()
	wasBusy, hasRun := ps.isBusy, ps.isBusy && !ps.isBetween
	ps.isBetween = len(ps.queue) > 0
	ps.isBusy = ps.isBetween
	isIdle := !ps.isBusy
	ps.isTelling = true
	ps.endedTurns.increment()
	var ended []string
	if !s.info.Turns {
		ended = slices.Collect(maps.Keys(ps.given))
	}
	ps.mu.Unlock()
	s.g.touch()
	if hasRun {
		s.g.stats.Turns.Add(1)
	}
	if !s.info.Turns {
		s.endTurns(nil, "")
	}
	if isIdle {
		s.publish(Event{Callback: OnIdle})
	}
	s.TurnEnded(ended, "")
	if wasBusy && isIdle {
		s.tellIdle()
	}
	ps.mu.Lock()
	ps.isTelling = false
	ps.mu.Unlock()
	s.wake()
}

// becomeIdle makes the session idle once its queue has no prompt to begin with.
func (s *Session) becomeIdle() {
	s.prompts.setBusy(false)
	s.publish(Event{Callback: OnIdle})
	s.tellIdle()
}

// tellIdle tells the session's providers that it is idle.
func (s *Session) tellIdle() {
	s.tellProviders(func(b *binding) bool {
		b.provider.peer.Send(&protocol.SessionLifecycle{SessionID: s.id,
			State: protocol.LifecycleIdle})
		return true
	})
}

// waitForTurnEnd waits until more than counted turns have ended. The error is
// [ErrSessionEnded] or that of ctx.
func (s *Session) waitForTurnEnd(ctx context.Context, counted uint64) error {
	return s.prompts.endedTurns.wait(ctx, counted, s.ctx.Done())
}
