package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// queuedPrompt is something for the worker to ask of the host.
type queuedPrompt struct {
	prompt Prompt
	turn   *Turn      // of the prompt; nil where nobody follows it
	cursor uint64     // of the live feed when the host was asked; read after done
	done   chan error // holds one
}

// Prompt gives the session a person's prompt and returns when the host took it.
// The cursor is that of the live feed just before: a turn that ends while the
// prompt waits its turn to be sent is not this prompt's.
func (s *Session) Prompt(ctx context.Context, p Prompt) (cursor uint64, err error) {
	j, err := s.enqueuePrompt(ctx, p, nil)
	if err != nil {
		return 0, err
	}
	return j.cursor, nil
}

// enqueuePrompt has the worker give the host a prompt; t is told what comes of it, where
// somebody wants to know.
func (s *Session) enqueuePrompt(ctx context.Context, p Prompt, t *Turn) (*queuedPrompt, error) {
	if !s.info.Send {
		return nil, errorf(protocol.CodeInvalidState, "sessions of host %s take no prompts", s.info.Kind)
	}
	if err := s.checkPrompt(p); err != nil {
		return nil, err
	}
	if p.Source == "" {
		p.Source = SourceUser
	}
	if p.Source == SourceUser {
		s.resumeInjects()
	}
	j := &queuedPrompt{prompt: p, turn: t, done: make(chan error, 1)}
	s.mu.Lock()
	if s.isEnding() {
		s.mu.Unlock()
		return nil, noSession(s.id)
	}
	s.promptQueue = append(s.promptQueue, j)
	s.mu.Unlock()
	s.wake()
	select {
	case err := <-j.done:
		return j, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// failQueued answers those that came too late for the worker.
func (s *Session) failQueued() {
	s.mu.Lock()
	jobs, injects := s.promptQueue, s.injects
	s.promptQueue, s.injects = nil, nil
	s.mu.Unlock()
	for _, j := range jobs {
		j.done <- noSession(s.id)
	}
	for _, in := range injects {
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDropped, Reason: "the session has ended"})
	}
}

// work is the session's own goroutine.
func (s *Session) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// Tools that are due go first: a prompt that was sent after a change
		// finds it made.
		wait := s.refresh()
		s.sendQueuedPrompts()
		s.deliver()
		timer.Reset(wait)
		select {
		case <-s.wakeup:
		case <-timer.C:
		case <-s.quit:
			return
		}
	}
}

func (s *Session) sendQueuedPrompts() {
	for {
		s.mu.Lock()
		if len(s.promptQueue) == 0 {
			s.mu.Unlock()
			return
		}
		j := s.promptQueue[0]
		s.promptQueue = s.promptQueue[1:]
		s.mu.Unlock()
		j.cursor = s.live.last()
		j.done <- s.send(j.prompt, j.turn)
	}
}

// send gives the host a prompt. From here on the session counts as busy, so
// that nothing is injected before the host says that its turn began.
func (s *Session) send(p Prompt, t *Turn) error {
	s.assignPromptID(&p, t)
	s.traceTurn(&p)
	if s.info.LiveTools {
		s.refresh() // a change may have come since the worker's last look
	}
	s.mu.Lock()
	was := s.busy
	turns := s.endedTurns
	s.busy = true
	s.mu.Unlock()
	s.g.touch()
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	err := s.host.Send(ctx, p)
	if err != nil {
		s.endTurnSpans([]string{p.ID}, err.Error())
		s.mu.Lock()
		if !was && s.endedTurns == turns {
			s.busy = false
		}
		s.mu.Unlock()
		s.g.touch()
		return fmt.Errorf("sending the prompt: %w", err)
	}
	return nil
}

// refresh gives the host the tool list when it is due, and returns how long
// until it is. What a host keeps of the prompt goes with its list.
func (s *Session) refresh() time.Duration {
	s.mu.Lock()
	first, last := s.oldestChange, s.newestChange
	if first.IsZero() || s.ctx.Err() != nil {
		s.mu.Unlock()
		return time.Hour
	}
	if !s.info.LiveTools {
		due := last.Add(protocol.RefreshQuiet)
		if most := first.Add(protocol.RefreshMax); most.Before(due) {
			due = most
		}
		if wait := time.Until(due); wait > 0 {
			s.mu.Unlock()
			return wait
		}
	}
	s.oldestChange = time.Time{}
	s.refreshing = true
	s.mu.Unlock()
	defer s.finishRefresh()

	r := s.consistentRoutes()
	tools := hostTools(r)
	rewritten := s.info.CachesPrompt && !maps.EqualFunc(r.transforms, s.sentTransforms, slices.Equal)
	if !s.maySentDiffer && !rewritten && slices.EqualFunc(tools, s.sentTools, isSameTool) {
		return time.Hour
	}
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	err := s.host.SetTools(ctx, s.revision.Add(1), tools)
	// A host that failed, or was away, may have this list, the last, or one
	// that it took when it came back: the next goes to it whatever it is.
	s.maySentDiffer = err != nil
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.note(LogWarning, sourceGateway, fmt.Sprintf("the session did not take its tools: %v", err))
		}
		return time.Hour
	}
	s.sentTools, s.sentTransforms = tools, r.transforms
	s.g.stats.Refreshes.Add(1)
	return time.Hour
}

// consistentRoutes is what the session's routes are between two steps of its providers: a
// hello that binds anew takes the old tools out and puts the new ones in, and a
// host is to see neither the one without the other.
func (s *Session) consistentRoutes() *routes {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.routes.Load()
}

// finishRefresh wakes those who wait for the host to have the tools.
func (s *Session) finishRefresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshing = false
	if s.refreshed != nil && s.oldestChange.IsZero() {
		close(s.refreshed)
		s.refreshed = nil
	}
}

// maxRefreshWait is how long the outcome of a call waits for the host to take its
// tools.
const maxRefreshWait = time.Second

// waitForRefresh waits until a host that takes tools live was told of every change so
// far: what the session does next, knowing the outcome of a call, sees them.
func (s *Session) waitForRefresh(ctx context.Context) {
	if !s.info.LiveTools {
		return
	}
	s.mu.Lock()
	if !s.refreshing && s.oldestChange.IsZero() {
		s.mu.Unlock()
		return
	}
	if s.refreshed == nil {
		s.refreshed = make(chan struct{})
	}
	told := s.refreshed
	s.mu.Unlock()
	limit := time.NewTimer(maxRefreshWait)
	defer limit.Stop()
	select {
	case <-told:
	case <-limit.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func isSameTool(a, b Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && string(a.Parameters) == string(b.Parameters)
}
