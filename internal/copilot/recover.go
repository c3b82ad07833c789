package copilot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
)

// Recovery: when the runtime's process dies, a new one takes over its sessions.

const (
	maxFailures   = 5 // ends and failed starts of the runtime within failureWindow
	failureWindow = time.Minute
	firstBackOff  = 250 * time.Millisecond
	resumeAtOnce  = 8
)

// supervise waits until a process dies, and replaces it.
func (r *Runtime) supervise(p *process) {
	defer close(p.handled)
	select {
	case <-p.gone:
	case <-r.ctx.Done():
		return
	}
	if err := r.acquireProcess(r.ctx); err != nil {
		return
	}
	defer r.releaseProcess()
	r.mu.Lock()
	mine := r.proc == p && !r.closed
	sessions := slices.Collect(maps.Values(r.sessions))
	r.mu.Unlock()
	if !mine {
		return
	}
	r.log.Warn("the Copilot runtime died", "cause", p.cause, "sessions", len(sessions))
	for _, s := range sessions {
		s.processDied(p.cause)
	}
	r.forgetProcess(p)
	failures := r.countFailure(time.Now())
	if len(sessions) > 0 {
		r.replace(sessions, failures, p.cause)
	}
}

// forgetProcess removes a dead process.
func (r *Runtime) forgetProcess(p *process) {
	r.mu.Lock()
	if r.proc == p {
		r.proc = nil
	}
	r.mu.Unlock()
	p.stop(r.ctx)
}

// countFailure counts a failure and returns how many there were in the last minute.
func (r *Runtime) countFailure(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failureTimes = slices.DeleteFunc(r.failureTimes, func(t time.Time) bool {
		return now.Sub(t) > failureWindow
	})
	r.failureTimes = append(r.failureTimes, now)
	return len(r.failureTimes)
}

// backOff returns how long to wait after the n-th failure in a row. After the first it is 0.
func backOff(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return firstBackOff << (n - 2)
}

// replace starts a new process and resumes the sessions in it. Call it with the right of
// acquireProcess.
func (r *Runtime) replace(sessions []*session, failures int, cause error) {
	for {
		if failures >= maxFailures {
			r.giveUp(sessions, fmt.Sprintf("%v; it failed %d times within a minute", cause,
				failures))
			return
		}
		if chans.Sleep(r.ctx, backOff(failures)) != nil {
			return
		}
		p, err := r.launch(r.ctx)
		if err != nil {
			r.log.Warn("the Copilot runtime does not start again", "error", err)
			cause, failures = err, r.countFailure(time.Now())
			continue
		}
		// Another goroutine in supervise watches the new process. If that process dies while
		// sessions are being resumed, the goroutine takes over all sessions as soon as this call
		// ends.
		r.resume(sessions, p)
		return
	}
}

// resume brings sessions back in a new process, several at a time.
func (r *Runtime) resume(sessions []*session, p *process) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, resumeAtOnce)
	for _, s := range sessions {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := s.resume(r.ctx, p)
			if err == nil || p.hasEnded() || r.ctx.Err() != nil {
				return
			}
			r.log.Warn("a session could not be resumed", "session", s.id, "error", err)
			r.remove(s)
			s.giveUp(
				fmt.Sprintf("the Copilot runtime died and the session could not be resumed: %v",
					err))
		})
	}
	wg.Wait()
}

// markSaved notes that the runtime saved the session.
func (s *session) markSaved() {
	if s.saveError.Swap(nil) != nil {
		s.note(adminapi.LogInfo, "the session is saved again")
	}
}

// Faults lists the sessions that the runtime can't save at present, by their directories. Their new
// messages are lost when the runtime ends. tapctl status shows these faults.
func (r *Runtime) Faults() (faults configs.Faults) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if why := s.saveError.Load(); why != nil {
			faults = append(faults, configs.Fault{
				File: r.sessionDir(s.id), Line: 1, Column: 1,
				Message: fmt.Sprintf("session %s can't be saved (is the disk full?): %s", s.id,
					*why),
			})
		}
	}
	slices.SortFunc(faults, func(a, b configs.Fault) int { return cmp.Compare(a.File, b.File) })
	return faults
}

func (r *Runtime) giveUp(sessions []*session, reason string) {
	r.log.Error("giving the Copilot sessions up", "reason", reason, "sessions", len(sessions))
	for _, s := range sessions {
		r.remove(s)
		s.giveUp(reason)
	}
}
