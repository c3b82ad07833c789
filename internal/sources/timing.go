package sources

import (
	"time"

	"tapgw/configs"
	"tapgw/internal/schedule"
)

// timing says when a source runs next. It has no timer.
type timing struct {
	config *configs.Source
	cron   *schedule.Cron // nil without one
	// isDue says of a run without an end, a command for example, that it has not begun since the
	// gateway started.
	isDue bool
}

func newTiming(s *configs.Source) (timing, error) {
	t := timing{config: s}
	t.isDue = t.isOnce() && s.Prompt == ""
	if s.Cron == "" {
		return t, nil
	}
	var err error
	t.cron, err = schedule.ParseCron(s.Cron, s.Zone)
	return t, err
}

// isOnce reports whether the source runs once, at its start.
func (t timing) isOnce() bool {
	return len(t.config.Every) == 0 && t.cron == nil && t.config.At.IsZero() && !t.config.Idle
}

// next returns when the source runs next, as of now: now itself if a run is due. The zero time is
// never, for the reason. A run counts as missed when it was due before ready, the time from which
// on the source could run; then note tells its fate.
func (t timing) next(p progress, now, ready time.Time) (due time.Time, reason, note string) {
	if t.config.Runs > 0 && p.Runs >= t.config.Runs {
		return time.Time{}, reasonMaxRuns, ""
	}
	due = t.planned(p, ready)
	switch {
	case due.IsZero() && t.isOnce():
		return due, reasonOnce, ""
	case due.IsZero():
		return due, reasonNever, ""
	case !due.Before(ready) || p.LastRunAt.IsZero() && t.cron == nil && t.config.At.IsZero():
		return due, "", ""
	}
	missed := "the run of " + due.UTC().Format(time.RFC3339) + " was missed"
	if t.config.Missed == configs.MissedOnce {
		return now, "", missed + ", and is made up for once"
	}
	if due = t.skip(due, ready); due.IsZero() {
		reason = reasonNever
	}
	return due, reason, missed + ", and is skipped"
}

const (
	reasonNoSession = "no session that it serves"

	reasonMaxRuns = "it has run max_runs times"
	reasonOnce    = "it has run"
	reasonNever   = "its time is over"
)

// planned returns the first run after the last one, in the past or the future; zero if no run is
// planned.
func (t timing) planned(p progress, ready time.Time) time.Time {
	switch {
	case t.cron != nil:
		after := p.LastDueAt
		if after.IsZero() {
			after = ready.Add(-1)
		}
		return t.cron.Next(after)
	case !t.config.At.IsZero():
		if p.Runs > 0 || !p.LastDueAt.IsZero() {
			return time.Time{}
		}
		return t.config.At
	case len(t.config.Every) > 0:
		if p.LastRunAt.IsZero() {
			return ready
		}
		last := p.LastRunAt
		if p.LastDueAt.After(last) { // that run was skipped
			last = p.LastDueAt
		}
		return last.Add(t.pause(p.Runs))
	case t.config.Idle || t.isDue || p.Runs == 0:
		return ready
	}
	return time.Time{}
}

// pause is the time from the start of a run, the nth, to that of the next.
func (t timing) pause(n int) time.Duration {
	return t.config.Every[min(max(n, 1), len(t.config.Every))-1]
}

// skip returns the first run after due that is not missed; zero if there is no such run.
func (t timing) skip(due, ready time.Time) time.Time {
	switch {
	case t.cron != nil:
		return t.cron.Next(ready.Add(-1))
	case len(t.config.Every) > 0:
		pause := t.config.Every[len(t.config.Every)-1]
		return due.Add((ready.Sub(due) + pause - 1) / pause * pause)
	}
	return time.Time{}
}
