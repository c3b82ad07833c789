package sources

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// longestSleep bounds how long a source does not look at the clock, which may be set, or stand still while the machine
// sleeps.
const longestSleep = 5 * time.Minute

// maxClockGap is more than a source ever sleeps: where two looks at the clock are farther apart, or the last run is
// farther in the future, the clock was set or the machine slept.
const maxClockGap = 2 * longestSleep

// run is the source's loop, which owns its state.
func (s *source) run(ctx context.Context) error {
	elsewhere(func() { s.link = connect(s.o.Gateway, s.o.Token) })
	defer s.link.close()
	defer s.endJob()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var wait time.Duration
		var err error
		elsewhere(func() { wait, err = s.turn(ctx) })
		if err != nil {
			return err
		}
		timer.Reset(wait)
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
		case r := <-s.hooks:
			r.answer <- s.take(r.event, time.Now().Round(0))
			s.showHook()
		case <-s.triggers:
			if now := time.Now().Round(0); s.job == nil && s.hasSession() {
				s.start(ctx, now, now)
			}
		case list := <-events:
			if s.listens() {
				s.count(time.Now())
			}
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

// turn does what there is to do now, and returns how long that is nothing.
func (s *source) turn(ctx context.Context) (time.Duration, error) {
	if err := s.receive(); err != nil {
		return 0, err
	}
	now := time.Now()
	s.looked(now.Round(0))
	wait := s.step(ctx, now.Round(0)) // by the clock, which goes on while the machine sleeps
	return min(wait, s.outbox.flush(s, now)), nil
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

// looked notes that the source looks at the clock. What was due while it could not, because the machine slept or the
// clock was set, was missed; and a clock that was set back does not make the source wait until it is as late again.
func (s *source) looked(now time.Time) {
	if !s.lookedAt.IsZero() && now.Sub(s.lookedAt) > maxClockGap && s.job == nil {
		s.ready = now
	}
	s.lookedAt = now
	if last := s.progress.LastRunAt; last.Sub(now) > maxClockGap || s.progress.LastDueAt.Sub(now) > maxClockGap {
		s.o.Line(fromGateway, "the clock was set back: the last run, of "+last.UTC().Format(time.RFC3339)+
			", counts as one of now")
		s.progress.LastRunAt, s.progress.LastDueAt, s.ready = now, now, now
		s.save()
	}
}

// step starts a run that is due, and returns how long there is nothing to do.
func (s *source) step(ctx context.Context, now time.Time) time.Duration {
	switch {
	case s.of.Webhook:
		s.showHook()
		return longestSleep
	case s.job != nil:
		s.show("", time.Time{})
		return longestSleep
	case !s.hasSession():
		s.ready = time.Time{}
		s.show(reasonNoSession, time.Time{})
		return longestSleep
	case s.ready.IsZero():
		s.ready = now
		if s.timing.cron != nil && s.progress.LastDueAt.IsZero() { // from here on a run can be missed
			s.progress.LastDueAt = now.Add(-1)
			s.save()
		}
	}
	due, reason, note := s.timing.next(s.progress, now, s.ready)
	if note != "" {
		s.o.Line(fromGateway, note)
		s.missed = note
		if due.IsZero() || due.After(now) { // it is not said again
			s.progress.LastDueAt = s.skipped(due, now)
			s.save()
		}
	}
	if reason == "" {
		reason = s.missed // the last thing that happened
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

// skipped returns when the last of the runs that were missed was due, so that due is the next one.
func (s *source) skipped(due, now time.Time) time.Time {
	switch {
	case due.IsZero():
		return now
	case len(s.of.Every) > 0:
		return due.Add(-s.timing.pause(s.progress.Runs))
	}
	return due.Add(-1)
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
	s.timing.isDue = false
	if !s.listens() {
		s.progress.LastDueAt, s.progress.IsUnderWay, s.missed = due, true, ""
		s.count(now)
	}
	s.job = s.begin(ctx)
	s.show("", time.Time{})
}

// listens reports whether the source's only run waits for what happens elsewhere. What is counted are its events then.
func (s *source) listens() bool { return len(s.of.Files) > 0 }

func (s *source) count(now time.Time) {
	s.progress.Runs++
	s.progress.LastRunAt = now
	s.save()
}

// finish ends a run. The error says why the source can't go on.
func (s *source) finish(ctx context.Context, err error) error {
	job := s.job
	s.endJob()
	if ctx.Err() != nil {
		return nil
	}
	s.record(job, err)
	s.progress.IsUnderWay = false
	if s.timing.isOnce() && err != nil && s.of.Prompt == "" { // it was to run on: whoever started it decides
		s.save()
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

// record reports a run that has ended.
func (s *source) record(j *job, err error) {
	if s.o.Record == nil {
		return
	}
	r := adminapi.Record{TS: time.Now(), Kind: adminapi.RecordSource, Provider: s.o.Provider.Name, Stream: s.of.Stream,
		Outcome: adminapi.OutcomeOK, DurationMs: float64(time.Since(j.begun).Microseconds()) / 1000}
	if s.o.Session != protocol.AllSessions {
		r.Session = s.o.Session
	}
	if err != nil {
		r.Outcome, r.Reason = adminapi.OutcomeFailed, err.Error()
	}
	s.o.Record(r)
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
	var err error
	s.set.onDisk(func() { err = s.progress.save(s.o.State) })
	switch {
	case err != nil:
		s.o.Faults([]string{fmt.Sprintf("what it did can't be kept: %v", err)})
	case s.isUnkept:
		s.o.Faults(nil)
	}
	s.isUnkept = err != nil
}

// show notes what the list of sources says of this one.
func (s *source) show(reason string, next time.Time) {
	p := s.o.Provider
	v := adminapi.Source{
		Name: p.Name, Kind: s.of.Kind(), File: p.File, Stream: s.of.Stream, Session: s.o.Session,
		LastRunAt: s.progress.LastRunAt, NextRunAt: next, Runs: s.progress.Runs, Reason: reason,
		State: adminapi.SourceWaiting,
	}
	switch {
	case s.job != nil && !s.listens():
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
