package sources

import (
	"testing"
	"time"

	"tapgw/configs"
)

// What was due while the machine slept was missed, as if no gateway had run.
func TestRunDueWhileTheMachineSlept(t *testing.T) {
	for missed, want := range map[string]string{
		configs.MissedSkip: "2026-03-03 02:00", configs.MissedOnce: "2026-03-02 09:00",
	} {
		s := &source{of: &configs.Source{Cron: "0 2 * * *", Missed: missed}}
		var err error
		if s.timing, err = newTiming(s.of); err != nil {
			t.Fatal(err)
		}
		evening := time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC)
		s.ready, s.progress.LastDueAt = evening, evening
		s.looked(evening)
		morning := evening.Add(13 * time.Hour)
		s.looked(morning)
		due, _, note := s.timing.next(s.progress, morning, s.ready)
		if got := due.Format("2006-01-02 15:04"); got != want || note == "" {
			t.Errorf("missed = %q: the next run is at %s, %q, want %s and a note", missed, got, note, want)
		}
	}
}

// A command that prints without end does not fill the memory with what was pushed.
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
