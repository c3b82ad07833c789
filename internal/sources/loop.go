package sources

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tapgw/internal/adminapi"
)

// longestSleep bounds how long a source does not look at the clock, which may be set, or stand still while the machine
// sleeps.
const longestSleep = 5 * time.Minute

// run is the source's loop, which owns its state.
func (s *source) run(ctx context.Context) error {
	s.link = connect(s.o.Gateway, s.o.Token)
	defer s.link.close()
	defer s.endJob()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := s.receive(); err != nil {
			return err
		}
		now := time.Now()
		wait := s.step(ctx, now)
		timer.Reset(min(wait, s.outbox.flush(s, now)))
		var events chan []origin
		var done chan error
		if s.job != nil {
			events, done = s.job.events, s.job.done
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.link.wake:
		case <-timer.C:
		case <-s.triggers:
			if s.job == nil && s.hasSession() {
				s.start(ctx, now, now)
			}
		case list := <-events:
			for _, e := range list {
				s.emit(e)
			}
		case err := <-done:
			if err := s.finish(ctx, err); err != nil {
				return err
			}
		}
	}
}

// receive handles what the gateway has sent.
func (s *source) receive() error {
	messages, ending := s.link.take()
	for _, m := range messages {
		reply, err := s.binding.receive(s.link, m)
		if err != nil {
			return err
		}
		s.outbox.answered(s, reply)
	}
	return ending
}

func (s *source) hasSession() bool { return s.binding.isBound && len(s.binding.here) > 0 }

// step starts a run that is due, and returns how long there is nothing to do.
func (s *source) step(ctx context.Context, now time.Time) time.Duration {
	switch {
	case s.job != nil:
		return longestSleep
	case !s.hasSession():
		s.ready = time.Time{}
		s.show("no session that it serves", time.Time{})
		return longestSleep
	case s.ready.IsZero():
		s.ready = now
	}
	due, reason, note := s.timing.next(s.progress, now, s.ready)
	if note != "" {
		s.o.Line(fromGateway, note)
		if due.After(now) { // it is not said again
			s.progress.LastRunAt, s.progress.LastDueAt = s.skipped(due)
			s.save()
		}
	}
	if s.of.Idle && !due.IsZero() && !s.isIdle() {
		s.show("the session is not idle", time.Time{})
		return longestSleep
	}
	due = s.putOff(due, now)
	s.show(cmp.Or(reason, s.progress.Failure), due)
	switch {
	case due.IsZero():
		return longestSleep
	case due.After(now):
		return min(due.Sub(now), longestSleep)
	}
	s.start(ctx, now, due)
	return longestSleep
}

// skipped returns the times that the progress has after runs were missed, so that due is the next one.
func (s *source) skipped(due time.Time) (lastRun, lastDue time.Time) {
	lastRun, lastDue = s.progress.LastRunAt, due.Add(-1)
	if len(s.of.Every) > 0 {
		lastRun = due.Add(-s.timing.pause(s.progress.Runs))
	}
	return lastRun, lastDue
}

func (s *source) isIdle() bool {
	for _, id := range s.binding.here {
		if !s.binding.idle[id] {
			return false
		}
	}
	return true
}

// start begins a run.
func (s *source) start(ctx context.Context, now, due time.Time) {
	s.progress.Runs++
	s.timing.isDue = false
	s.progress.LastRunAt, s.progress.LastDueAt = now, due
	s.save()
	s.job = s.begin(ctx)
	s.show("", time.Time{})
}

// finish ends a run. The error says why the source can't go on.
func (s *source) finish(ctx context.Context, err error) error {
	job := s.job
	s.endJob()
	if ctx.Err() != nil {
		return nil
	}
	if s.timing.isOnce() && err != nil && s.of.Runs == 0 { // it was to run on: whoever started it decides
		return err
	}
	if failure := s.compared(&job.answer, err); err == nil {
		err = failure
	}
	s.ended(err, time.Now())
	s.save()
	if err != nil {
		s.o.Line(fromGateway, err.Error())
	}
	return nil
}

func (s *source) endJob() {
	if s.job != nil {
		s.job.cancel()
		<-s.job.ended
		s.job = nil
	}
}

func (s *source) save() {
	if s.o.State == "" {
		return
	}
	if err := s.progress.save(s.o.State); err != nil {
		s.o.Faults([]string{fmt.Sprintf("what it did can't be kept: %v", err)})
	}
}

// show notes what the list of sources says of this one.
func (s *source) show(reason string, next time.Time) {
	p := &s.o.Provider
	v := adminapi.Source{
		Name: p.Name, Kind: s.of.Kind(), File: p.File, Stream: s.of.Stream, Session: s.o.Session,
		LastRunAt: s.progress.LastRunAt, NextRunAt: next, Runs: s.progress.Runs, Reason: reason,
		State: adminapi.SourceWaiting,
	}
	switch {
	case s.job != nil:
		v.State = adminapi.SourceRunning
	case reason == reasonMaxRuns || reason == reasonOnce || reason == reasonNever:
		v.State = adminapi.SourceDone
	}
	s.mu.Lock()
	changed := s.shown != v
	s.shown = v
	s.mu.Unlock()
	if changed {
		s.o.Gateway.Touch()
	}
}

func (s *source) view() adminapi.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}
