package assembly

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/daemon"
	"tapgw/internal/proc"
)

// A gateway on demand leaves the grace period after the last that anybody wanted
// of it, and counts from its start.
func TestWatchIdle(t *testing.T) {
	const grace = 30 * time.Second
	start := func(t *testing.T, inUse func() bool, last func() time.Time) (
		left func() time.Duration) {
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		ch := watchIdle(ctx, grace, inUse, last)
		return func() time.Duration { <-ch; return time.Since(begin) }
	}
	never := func() time.Time { return time.Time{} }
	nobody := func() bool { return false }
	between := func(t *testing.T, got, least time.Duration) {
		t.Helper()
		if got < least || got > least+2*time.Second {
			t.Errorf("left after %v, want %v", got, least)
		}
	}
	t.Run("nobody came", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { between(t, start(t, nobody, never)(), grace) })
	})
	t.Run("somebody came and left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var used atomic.Bool
			used.Store(true)
			time.AfterFunc(100*time.Second, func() { used.Store(false) })
			between(t, start(t, used.Load, never)(), 100*time.Second+grace)
		})
	})
	t.Run("a request came", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			at := time.Now().Add(20 * time.Second)
			last := func() time.Time {
				if time.Now().Before(at) {
					return time.Time{}
				}
				return at
			}
			between(t, start(t, nobody, last)(), 20*time.Second+grace)
		})
	})
	t.Run("it was told to end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			left := watchIdle(ctx, grace, nobody, never)
			cancel()
			synctest.Wait()
			select {
			case <-left:
				t.Error("the gateway left, want it to stay")
			default:
			}
		})
	})
}

func TestLocalURL(t *testing.T) {
	for in, want := range map[string]string{
		"ws://127.0.0.1:9400":   "ws://127.0.0.1:9400",
		"ws://0.0.0.0:1":        "ws://127.0.0.1:1",
		"wss://[::]:1":          "wss://127.0.0.1:1",
		"ws://[::1]:1":          "ws://[::1]:1",
		"ws://192.168.1.1:9400": "ws://192.168.1.1:9400",
	} {
		if got := localURL(in); got != want {
			t.Errorf("localURL(%q) = %q, want %q", in, got, want)
		}
	}
}

// A gateway does not remove the files of another gateway that took its place.
func TestCleanUpLeavesOthersFiles(t *testing.T) {
	dir := t.TempDir()
	own, others := filepath.Join(dir, "own"), filepath.Join(dir, "others")
	lock, err := proc.TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{
		state: daemon.Dir(dir), lock: lock,
		files: []ownFile{{own, []byte("a")}, {others, []byte("a")}},
	}
	for path, text := range map[string]string{own: "a", others: "b"} {
		if err := proc.WritePrivate(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p.cleanUp()
	if _, err := os.Stat(own); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("own file: got %v, want that it is gone", err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("the other's file: got %v, want that it is there", err)
	}
}
