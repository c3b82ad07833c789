package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/daemon"
	"tapgw/internal/proc"
	"tapgw/internal/server"
)

// A gateway on demand leaves the grace period after the last that anybody wanted
// of it, and counts from its start.
func TestWatchIdle(t *testing.T) {
	const grace = 30 * time.Second
	start := func(t *testing.T, inUse func() bool, last func() time.Time) (left func() time.Duration) {
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

func TestIsOlder(t *testing.T) {
	for _, tt := range []struct {
		version, than string
		want          bool
	}{
		{"1.0.80", "1.0.81", true},
		{"1.0.81", "1.0.81", false},
		{"1.0.102", "1.0.81", false},
		{"1.1", "1.0.81", false},
		{"1.0", "1.0.81", true},
		{"v0.9.9", "1.0.81", true},
		{"1.0.81-beta.1", "1.0.81", false},
		{"unknown", "1.0.81", false},
		{"18.20.4", "20", true},
		{"22.1.0", "20", false},
	} {
		if got := isOlder(tt.version, tt.than); got != tt.want {
			t.Errorf("isOlder(%q, %q) = %v, want %v", tt.version, tt.than, got, tt.want)
		}
	}
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

func TestSameAddress(t *testing.T) {
	for _, tt := range []struct {
		url, listen string
		want        bool
	}{
		{"ws://127.0.0.1:9400", "127.0.0.1:9400", true},
		{"ws://127.0.0.1:9400", "localhost:9400", true},
		{"ws://127.0.0.1:9400", "127.0.0.1:0", true},
		{"ws://127.0.0.1:9400", "127.0.0.1:400", false},
		{"ws://127.0.0.1:9400", "127.0.0.1:9401", false},
	} {
		if got := isSameAddress(tt.url, tt.listen); got != tt.want {
			t.Errorf("isSameAddress(%q, %q) = %v, want %v", tt.url, tt.listen, got, tt.want)
		}
	}
}

func TestListenError(t *testing.T) {
	failed := func(err error) error {
		return listenError(&server.ListenError{Addr: "127.0.0.1:1", Err: err})
	}
	if err := failed(syscall.EACCES); !errors.Is(err, syscall.EACCES) {
		t.Errorf("got %v, want %v", err, syscall.EACCES)
	}
	// Nobody known has it.
	err := failed(syscall.EADDRINUSE)
	if !strings.Contains(err.Error(), "the port is in use by another process; ") {
		t.Errorf(`got %v, want "the port is in use by another process; " in it`, err)
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
	p := &gatewayProcess{
		state: daemon.Dir(dir), lock: lock, files: []ownFile{{own, []byte("a")}, {others, []byte("a")}},
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
