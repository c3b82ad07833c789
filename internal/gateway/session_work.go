package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
		if begins, isTelling := s.prompts.state(); !isTelling { // else Idle wakes the worker
			held, rest := "", time.Duration(0)
			if begins {
				held, rest = s.toolsOnTheirWay()
			}
			switch {
			case held == "" && isHolding:
				s.tools.makeDue()
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
		}
		timer.Reset(wait)
		select {
		case <-s.wakeup:
		case <-timer.C:
		case <-s.quit:
			return
		}
	}
}

// state reports whether a prompt that waits can begin a turn, and whether Idle still tells of the
// end of one. A prompt that begins is held while tools that were there a moment ago are on their
// way: the model would be told that they don't exist.
func (ps *prompts) state() (begins, isTelling bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.queue) > 0 && ps.isFree(), ps.isTelling
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
	endedTurns := ps.endedTurns.value()
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
		s.recordHost(adminapi.PartyGateway, adminapi.PartyHost,
			recordedPrompt{"prompt", p.Text, p.Source, p.Mode})
	}
	err := s.host.Send(ctx, p)
	if err != nil {
		s.endTurns([]string{p.ID}, err.Error())
		ps.mu.Lock()
		if !wasBusy && ps.endedTurns.value() == endedTurns {
			ps.isBusy, ps.isBetween = wasBetween, wasBetween
		}
		ps.mu.Unlock()
		s.g.touch()
		return fmt.Errorf("sending the prompt: %w", err)
	}
	return nil
}

// toolChanges are the changes of a session's tools that the worker has yet to give the host. Its
// lock is a leaf.
type toolChanges struct {
	mu        sync.Mutex    // guards the fields below
	oldest    time.Time     // since the last refresh; zero without a change
	newest    time.Time     // of all
	isRunning bool          // a refresh
	refreshed chan struct{} // closed when the host has all changes; nil without a waiter
}

// add notes a change.
func (c *toolChanges) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = time.Now()
	if c.oldest.IsZero() {
		c.oldest = c.newest
	}
}

// makeDue makes the changes reach the host at the next refresh.
func (c *toolChanges) makeDue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.oldest.IsZero() {
		c.oldest = time.Now().Add(-protocol.RefreshMax)
	}
}

// take begins a refresh if one is due, otherwise it returns how long to wait.
func (c *toolChanges) take(isLive bool) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.oldest.IsZero() {
		return time.Hour
	}
	if !isLive {
		due := c.newest.Add(protocol.RefreshQuiet)
		if latest := c.oldest.Add(protocol.RefreshMax); latest.Before(due) {
			due = latest
		}
		if wait = time.Until(due); wait > 0 {
			return wait
		}
	}
	c.oldest, c.isRunning = time.Time{}, true
	return 0
}

// finish ends a refresh, and the waits for it unless the tools have changed again.
func (c *toolChanges) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRunning = false
	if c.refreshed != nil && c.oldest.IsZero() {
		close(c.refreshed)
		c.refreshed = nil
	}
}

// pending returns a channel that is closed when the host has all changes; nil if it has them.
func (c *toolChanges) pending() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isRunning && c.oldest.IsZero() {
		return nil
	}
	if c.refreshed == nil {
		c.refreshed = make(chan struct{})
	}
	return c.refreshed
}

// refresh gives the host the tool list if a refresh is due, and returns the time until
// the next one (docs/adr/0005-updates-and-revisions.md). A host that caches its prompt
// also gets the list when transforms have changed. The worker calls it.
func (s *Session) refresh() time.Duration {
	if s.ctx.Err() != nil {
		return time.Hour
	}
	if wait := s.tools.take(s.info.LiveTools); wait > 0 {
		return wait
	}
	defer s.tools.finish()
	r := s.consistentRoutes()
	tools := hostTools(r)
	transformsChanged := s.info.CachesPrompt &&
		!maps.EqualFunc(r.transforms, s.sentTransforms, slices.Equal)
	if !s.hostMayDiffer && !transformsChanged && slices.EqualFunc(tools, s.sentTools, isSameTool) {
		return time.Hour
	}
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	if s.isRecorded() {
		s.recordHost(adminapi.PartyGateway, adminapi.PartyHost, newRecordedTools(tools))
	}
	err := s.host.SetTools(ctx, s.revision.Add(1), tools)
	// A host that failed, or was disconnected, may have this list, the last one, or one
	// that it got when it came back. So the next list is sent even if it is the same.
	s.hostMayDiffer = err != nil
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.note(adminapi.LogWarning, sourceGateway,
				fmt.Sprintf("the session did not take its tools: %v", err))
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

// maxRefreshWait is how long the outcome of a call waits for a refresh.
const maxRefreshWait = time.Second

// waitForRefresh waits until a host that takes tools live has every change so far, so
// that the agent sees the tools that a call has changed once it has the call's outcome.
func (s *Session) waitForRefresh(ctx context.Context) {
	if !s.info.LiveTools {
		return
	}
	refreshed := s.tools.pending()
	if refreshed == nil {
		return
	}
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
