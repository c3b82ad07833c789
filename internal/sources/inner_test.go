package sources

import (
	"testing"
	"time"

	"tapgw/configs"
)

// Runs that were due while the machine slept were missed, as if no gateway had run.
func TestRunDueWhileTheMachineSlept(t *testing.T) {
	for missed, want := range map[string]string{
		configs.MissedSkip: "2026-03-03 02:00", configs.MissedOnce: "2026-03-02 09:00",
	} {
		s := &source{config: &configs.Source{Cron: "0 2 * * *", Missed: missed}}
		var err error
		if s.timing, err = newTiming(s.config); err != nil {
			t.Fatal(err)
		}
		evening := time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC)
		s.ready, s.progress.LastDueAt = evening, evening
		s.lookedAt = evening
		morning := evening.Add(13 * time.Hour)
		s.looked(morning, time.Minute)
		due, _, note := s.timing.next(s.progress, morning, s.ready)
		if got := due.Format("2006-01-02 15:04"); got != want || note == "" {
			t.Errorf("missed = %q: the next run is at %s, %q, want %s and a note", missed, got,
				note, want)
		}
	}
}

// A command that prints without end does not fill the memory with its pushes.
func TestFewPushesAreKept(t *testing.T) {
	var o outbox
	for range 1000 {
		o.last++
		o.remember(push{event: "x"})
	}
	if got := len(o.sent); got > maxSent {
		t.Errorf("pushes without an answer: got %d, want at most %d", got, maxSent)
	}
}

// A jump of the time of day without the timers is noticed; a small correction of the clock does not
// count.
func TestClockThatHasJumped(t *testing.T) {
	now := time.Now()
	for ago, want := range map[time.Duration]bool{
		time.Minute: false, time.Minute + time.Second/2: false, 8 * time.Hour: true,
		-time.Hour: true,
	} {
		c := clock{shown: now.Round(0).Add(-ago), timed: now.Add(-time.Minute)}
		if got := c.hasJumped(now); got != want {
			t.Errorf("the clock showed %s less a minute ago: got %v, want %v", ago, got, want)
		}
		if c.hasJumped(now.Add(time.Hour)) {
			t.Errorf("the look after one that saw %s: got a jump, want none", ago)
		}
	}
}
