package sources

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"tapgw/internal/adminapi"
)

// This file is the life of a source: it opens the connection, starts runs when they are due, and
// handles the gateway's messages, one step at a time.

// never is how long a source sleeps that waits for no time.
const never = time.Duration(math.MaxInt64)

// maxClockGap is by how much the clock may go ahead of the timers, or the last run may be in the
// future: when it is more, the clock was set or the machine slept.
const maxClockGap = 10 * time.Minute

// open connects the source, which works from then on until ctx ends.
func (s *source) open(ctx context.Context) {
	s.ctx = ctx
	s.do(func() {
		s.timer = time.AfterFunc(never, s.wake)
		s.conn = connect(s.o.Gateway, s.o.Token, s.wake)
		context.AfterFunc(ctx, s.wake)
	})
}

// do runs f soon, and then lets the source do its due work. All work of the source runs so, in the
// order of the calls and never two at once. It may be called from any goroutine and does not block.
// f does not run when the source has ended.
func (s *source) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = append(s.todo, f)
	if !s.isAwake {
		s.isAwake = true
		go s.work()
	}
}

// wake makes the source look for due work.
func (s *source) wake() { s.do(func() {}) }

// work does all due work, and ends.
func (s *source) work() {
	for {
		s.mu.Lock()
		todo := s.todo
		s.todo = nil
		s.isAwake = len(todo) > 0
		s.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, f := range todo {
			f()
		}
		if err := s.turn(); err != nil || s.ctx.Err() != nil {
			s.end(err)
			return
		}
	}
}

// end ends the source for ever: isAwake stays set.
func (s *source) end(err error) {
	s.timer.Stop()
	s.endJob()
	s.span.End()
	s.conn.close()
	s.over(err)
}

// turn does the due work once, and sets the timer. The error says why the source can't go on.
func (s *source) turn() error {
	if s.failure != nil {
		return s.failure
	}
	if err := s.receive(); err != nil {
		return err
	}
	now := time.Now()
	s.looked(now.Round(0), now.Sub(s.lookedAt))
	s.lookedAt = now
	wait := s.step(now.Round(0)) // by the clock, which goes on while the machine sleeps
	s.timer.Reset(min(wait, s.outbox.flush(s, now)))
	return nil
}

// trigger runs the source now, whatever its schedule.
func (s *source) trigger() {
	if now := time.Now().Round(0); s.job == nil && s.hasSession() {
		s.start(now, now)
	}
}

// wait makes events of the origins that a job has noticed, and waits until it is done: a command
// that prints fast waits too.
func (s *source) wait(ctx context.Context, list []origin) {
	taken := make(chan struct{})
	s.do(func() {
		defer close(taken)
		if ctx.Err() != nil {
			return
		}
		s.noticed(list)
	})
	select {
	case <-taken:
	case <-ctx.Done():
	}
}

// receive handles the messages of the gateway.
func (s *source) receive() error {
	messages, ending := s.conn.take()
	for _, m := range messages {
		reply, err := s.binding.receive(s.conn, m)
		if err != nil {
			return err
		}
		s.outbox.answered(s, reply)
	}
	return ending
}

func (s *source) hasSession() bool { return s.binding.isBound && len(s.binding.here) > 0 }

// looked notes that the source looks at the clock, for the first time after a pause by the timers.
// A run that was due during the pause was missed, because the machine slept or the clock was set.
// And a clock that was set back does not make the source wait until it is as late again.
func (s *source) looked(now time.Time, pause time.Duration) {
	if !s.lookedAt.IsZero() && now.Sub(s.lookedAt.Round(0))-pause > maxClockGap && s.job == nil {
		s.ready = now
	}
	if last := s.progress.LastRunAt; last.Sub(now) > maxClockGap ||
		s.progress.LastDueAt.Sub(now) > maxClockGap {
		s.o.Line(fromGateway,
			"the clock was set back: the last run, of "+last.UTC().Format(time.RFC3339)+
				", counts as one of now")
		s.progress.LastRunAt, s.progress.LastDueAt, s.ready = now, now, now
		s.save()
	}
}

// step starts a run that is due, and returns how long there is nothing to do.
func (s *source) step(now time.Time) time.Duration {
	switch {
	case s.config.Webhook:
		s.showHook()
		return never
	case s.job != nil:
		s.show(s.waitsFor, time.Time{})
		return never
	case !s.hasSession():
		s.ready = time.Time{}
		s.show(reasonNoSession, time.Time{})
		return never
	case s.ready.IsZero():
		s.ready = now
		// from here on a run can be missed
		if s.timing.cron != nil && s.progress.LastDueAt.IsZero() {
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
	if s.config.Idle && !due.IsZero() && !s.isIdle() {
		s.show("the session is not idle", time.Time{})
		return never
	}
	due = s.putOff(due, now)
	s.show(cmp.Or(reason, s.progress.Failure), due)
	switch {
	case due.IsZero():
		return never
	case due.After(now):
		return due.Sub(now)
	}
	s.start(now, due)
	return never
}

// skipped returns when the last of the runs that were missed was due, so that due is the next one.
func (s *source) skipped(due, now time.Time) time.Time {
	switch {
	case due.IsZero():
		return now
	case len(s.config.Every) > 0:
		return due.Add(-s.timing.pause(s.progress.Runs))
	}
	return due.Add(-1)
}

func (s *source) isIdle() bool {
	isBusy := func(id string) bool { return !slices.Contains(s.binding.idle, id) }
	return !slices.ContainsFunc(s.binding.here, isBusy)
}

// start begins a run.
func (s *source) start(now, due time.Time) {
	s.timing.isDue = false
	if !s.listens() {
		s.progress.LastDueAt, s.progress.IsUnderWay, s.missed = due, true, ""
		s.count(now)
		s.startSpan("")
	}
	s.waitsFor = ""
	s.job = s.begin(s.ctx, s.wait, s.finish)
	s.show("", time.Time{})
}

// listens reports whether the source's only run waits for events from elsewhere. Then each event
// counts instead of the run.
func (s *source) listens() bool { return len(s.config.Files) > 0 }

// noticed makes events of the origins that a run has noticed. Where the only run listens, each is a
// run of its own.
func (s *source) noticed(list []origin) {
	if s.listens() {
		begun := time.Now()
		s.count(begun)
		s.startSpan("")
		defer func() { s.endSpan(begun, nil) }()
	}
	for _, e := range list {
		s.emit(e)
	}
}

func (s *source) count(now time.Time) {
	s.progress.Runs++
	s.progress.LastRunAt = now
	s.save()
}

// finish ends a run.
func (s *source) finish(job *job, err error) {
	s.do(func() {
		if s.job == job && s.ctx.Err() == nil {
			s.endJob()
			s.finished(job, err)
		}
	})
}

func (s *source) finished(job *job, err error) {
	defer func(err error) { s.endSpan(job.begun, err) }(err)
	s.progress.IsUnderWay = false
	// A run that should not end has failed: the caller of Run decides whether it starts again.
	if s.timing.isOnce() && err != nil && s.config.Prompt == "" {
		s.save()
		s.failure = err
		return
	}
	if failure := s.emitDifference(&job.answer, err); err == nil {
		err = failure
	}
	s.ended(err, time.Now())
	s.save()
	if err != nil {
		s.o.Line(fromGateway, err.Error())
	}
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
	s.set.onDisk(func() { err = writeState(s.o.State, s.progress) })
	switch {
	case err != nil:
		s.o.Faults([]string{fmt.Sprintf("what it did can't be kept: %v", err)})
	case s.isUnkept:
		s.o.Faults(nil)
	}
	s.isUnkept = err != nil
}

// show sets the source's entry in the list of sources.
func (s *source) show(reason string, next time.Time) {
	p := s.o.Provider
	v := adminapi.Source{
		Name: p.Name, Kind: s.config.Kind(), File: p.File, Stream: s.config.Stream,
		Session: s.o.Session, LastRunAt: s.progress.LastRunAt, NextRunAt: next,
		Runs: s.progress.Runs, Reason: reason,
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
