package sources

import (
	"errors"
	"testing"
	"time"

	"tapgw/configs"
)

// Each failure doubles the time until the next request, up to an hour. An answer ends that, and so
// does a clock that was set back.
func TestFailuresPutOff(t *testing.T) {
	s := &source{config: &configs.Source{URL: "http://127.0.0.1/"}}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for n, want := range []time.Duration{
		2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second,
	} {
		s.ended(errors.New("no answer"), now)
		if got := s.putOff(now.Add(time.Second), now).Sub(now); got != want {
			t.Errorf("after %d failures: put off by %s, want %s", n+1, got, want)
		}
	}
	for range 100 {
		s.ended(errors.New("no answer"), now)
	}
	if got := s.putOff(now, now).Sub(now); got != longestPause {
		t.Errorf("after many failures: put off by %s, want %s", got, longestPause)
	}
	if late := now.Add(2 * longestPause); !s.putOff(late, now).Equal(late) {
		t.Errorf("a later run is put off to %s, want %s", s.putOff(late, now), late)
	}
	s.ended(putOffError{errors.New("busy"), 1000 * time.Hour}, now)
	if got := s.putOff(now, now).Sub(now); got != longestPutOff {
		t.Errorf("a server's wish: put off by %s, want %s", got, longestPutOff)
	}
	if earlier := now.AddDate(-1, 0, 0); !s.putOff(earlier, earlier).Equal(earlier) {
		t.Errorf("after the clock was set back: put off to %s, want %s", s.putOff(earlier, earlier),
			earlier)
	}
	s.ended(nil, now)
	if got := s.putOff(now, now); !got.Equal(now) || s.progress.Failure != "" {
		t.Errorf("after an answer: put off to %s because of %q, want it now", got,
			s.progress.Failure)
	}
}
