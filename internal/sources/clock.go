package sources

import "time"

// clockPeriod is how often the sources' clock is looked at.
const clockPeriod = 5 * time.Minute

// clock notices that the time of day has moved by itself: a person set it, or the machine slept.
// Timers do not notice that. All sources share one clock, so that a source does nothing between its
// times.
type clock struct {
	timer *time.Timer // nil while there are no sources
	// The last look: by the time of day, and by the clock of the timers.
	shown, timed time.Time
}

// follow looks at the clock as long as there are sources.
func (c *clock) follow(sources int, look func()) {
	switch {
	case sources > 0 && c.timer == nil:
		c.hasJumped(time.Now())
		c.timer = time.AfterFunc(clockPeriod, look)
	case sources == 0 && c.timer != nil:
		c.timer.Stop()
		c.timer = nil
	}
}

// hasJumped reports whether the time of day has moved by itself since the last look.
func (c *clock) hasJumped(now time.Time) bool {
	jump := now.Round(0).Sub(c.shown) - now.Sub(c.timed)
	c.shown, c.timed = now.Round(0), now
	return jump.Abs() > time.Second
}

// lookAtClock makes all sources check for due runs, if the time of day has moved by itself.
func (set *Set) lookAtClock() {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.clock.timer == nil {
		return
	}
	set.clock.timer.Reset(clockPeriod)
	if set.clock.hasJumped(time.Now()) {
		for s := range set.list {
			s.wake()
		}
	}
}
