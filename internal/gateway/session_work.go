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

// Prompt gives the session a prompt and returns once the host took it, or once it waits in
// the queue behind the turn that runs. cursor is that of the live feed just before. The
// errors are those of [Session.Turn].
func (s *Session) Prompt(ctx context.Context, p Prompt) (cursor uint64, err error) {
	q, err := s.enqueuePrompt(ctx, p, nil)
	if err != nil {
		return 0, err
	}
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	return q.cursor, nil // the worker sets it again when a prompt that waited has its turn
}

// work is the loop of the session's worker. A refresh that is due goes first, so that a
// prompt after a change of the tools finds it made.
func (s *Session) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	isHolding := false
	for {
		wait := s.refresh()
		held, rest := s.holdPrompts()
		switch {
		case held == "" && isHolding:
			s.makeRefreshDue()
			wait = s.refresh()
			fallthrough
		case held == "":
			s.sendQueuedPrompts()
		default:
			if !isHolding {
				s.noteHeld(held)
			}
			wait = min(wait, rest)
		}
		isHolding = held != ""
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

// holdPrompts returns the provider that the prompts of an idle session wait for, and how much longer. Its tools were
// there a moment ago, and the model would be told that they don't exist. name is "" while no prompt waits.
func (s *Session) holdPrompts() (name string, rest time.Duration) {
	s.prompts.mu.Lock()
	begins := len(s.prompts.queue) > 0 && s.prompts.isFree()
	s.prompts.mu.Unlock()
	if !begins {
		return "", 0
	}
	return s.toolsOnTheirWay()
}

// makeRefreshDue makes a change of the tools reach the host at the next refresh.
func (s *Session) makeRefreshDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.oldestChange.IsZero() {
		s.oldestChange = time.Now().Add(-protocol.RefreshMax)
	}
}

// send gives the host a prompt. The session counts as busy from now on, so that
// nothing is injected before the host reports that the turn began. The worker calls it.
func (s *Session) send(p Prompt) error {
	s.beginTurn(&p)
	if s.info.LiveTools {
		s.refresh() // the tools may have changed since the worker's last refresh
	}
	ps := s.prompts
	ps.mu.Lock()
	wasBetween := ps.isBetween
	wasBusy := ps.isBusy && !wasBetween
	endedTurns := ps.endedTurns
	ps.isBusy, ps.isBetween = true, false
	if wasBetween { // a reader of the idle session must see that it was interrupted
		ps.lastTurn.Failure = ""
	} else {
		ps.lastTurn = LastTurn{}
	}
	ps.mu.Unlock()
	s.g.touch()
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	if s.isRecorded() {
		s.recordHost(adminapi.PartyGateway, adminapi.PartyHost, recordedPrompt{"prompt", p.Text, p.Source, p.Mode})
	}
	err := s.host.Send(ctx, p)
	if err != nil {
		s.endTurns([]string{p.ID}, err.Error())
		ps.mu.Lock()
		if !wasBusy && ps.endedTurns == endedTurns {
			ps.isBusy, ps.isBetween = wasBetween, wasBetween
		}
		ps.mu.Unlock()
		s.g.touch()
		return fmt.Errorf("sending the prompt: %w", err)
	}
	return nil
}

// refresh gives the host the tool list if a refresh is due, and returns the time until
// the next one (docs/adr/0005-updates-and-revisions.md). A host that caches its prompt
// also gets the list when transforms have changed. The worker calls it.
func (s *Session) refresh() time.Duration {
	s.mu.Lock()
	oldest, newest := s.oldestChange, s.newestChange
	if oldest.IsZero() || s.ctx.Err() != nil {
		s.mu.Unlock()
		return time.Hour
	}
	if !s.info.LiveTools {
		due := newest.Add(protocol.RefreshQuiet)
		if latest := oldest.Add(protocol.RefreshMax); latest.Before(due) {
			due = latest
		}
		if wait := time.Until(due); wait > 0 {
			s.mu.Unlock()
			return wait
		}
	}
	s.oldestChange = time.Time{}
	s.isRefreshing = true
	s.mu.Unlock()
	defer s.finishRefresh()

	r := s.consistentRoutes()
	tools := hostTools(r, s.sentTools)
	transformsChanged := s.info.CachesPrompt && !maps.EqualFunc(r.transforms, s.sentTransforms, slices.Equal)
	if !s.hostMayDiffer && !transformsChanged && slices.EqualFunc(tools, s.sentTools, isSameTool) {
		return time.Hour
	}
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	if s.isRecorded() {
		s.recordHost(adminapi.PartyGateway, adminapi.PartyHost, newRecordedTools(tools))
	}
	err := s.host.SetTools(ctx, s.revision.Add(1), slices.Clip(tools))
	// A host that failed, or was disconnected, may have this list, the last one, or one
	// that it got when it came back. So the next list is sent even if it is the same.
	s.hostMayDiffer = err != nil
	if err != nil {
		s.sentTools = slices.Clip(s.sentTools) // the host may still read the tail
		if !errors.Is(err, context.Canceled) {
			s.note(adminapi.LogWarning, sourceGateway, fmt.Sprintf("the session did not take its tools: %v", err))
		}
		return time.Hour
	}
	s.sentTools, s.sentTransforms = tools, r.transforms
	s.g.stats.Refreshes.Add(1)
	return time.Hour
}

// consistentRoutes returns the routes between two steps of a provider: a hello that
// binds anew removes the old tools and adds the new ones under Gateway.mu, and a host
// must not get a list without both.
func (s *Session) consistentRoutes() *routes {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.routes.Load()
}

// finishRefresh ends the waits for a refresh, unless the tools have changed again.
func (s *Session) finishRefresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRefreshing = false
	if s.refreshed != nil && s.oldestChange.IsZero() {
		close(s.refreshed)
		s.refreshed = nil
	}
}

// maxRefreshWait is how long the outcome of a call waits for a refresh.
const maxRefreshWait = time.Second

// waitForRefresh waits until a host that takes tools live has every change so far, so
// that the agent sees the tools that a call has changed once it has the call's outcome.
func (s *Session) waitForRefresh(ctx context.Context) {
	if !s.info.LiveTools {
		return
	}
	s.mu.Lock()
	if !s.isRefreshing && s.oldestChange.IsZero() {
		s.mu.Unlock()
		return
	}
	if s.refreshed == nil {
		s.refreshed = make(chan struct{})
	}
	refreshed := s.refreshed
	s.mu.Unlock()
	timer := time.NewTimer(maxRefreshWait)
	defer timer.Stop()
	select {
	case <-refreshed:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func isSameTool(a, b Tool) bool {
	return a.Name == b.Name && a.Provider == b.Provider && a.Description == b.Description &&
		string(a.Parameters) == string(b.Parameters)
}
