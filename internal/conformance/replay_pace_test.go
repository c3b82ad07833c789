package conformance

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/recording"
)

// A message is never sent before its time, at whatever speed.
func TestReplayPace(t *testing.T) {
	for _, c := range []struct {
		speed       float64
		after, want time.Duration
	}{
		{1, time.Minute, time.Minute},
		{10, time.Minute, 6 * time.Second},
		{1, -time.Minute, 0},
		{math.Inf(1), time.Minute, 0},
		{math.MaxFloat64, time.Minute, 0},
		{1e-300, time.Minute, time.Hour},
		{1e-300, 0, 0},
		{1e-300, -time.Minute, 0},
		{math.SmallestNonzeroFloat64, time.Minute, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begun := time.Now()
			r := &replayer{ReplayOptions: ReplayOptions{Speed: c.speed,
				Recording: &recording.File{}}, begun: begun}
			r.Recording.Start.TS = begun
			line := recording.Line{}
			line.TS = begun.Add(c.after)
			r.pace(ctx, replayStep{line: line})
			if got := time.Since(begun); got != c.want {
				t.Errorf(
					"at speed %g, what came %v after the beginning is sent after %v, want %v, 1h at most",
					c.speed, c.after, got, c.want)
			}
		})
	}
}
