package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLastLines(t *testing.T) {
	log := strings.NewReader("old\n1\n2\n\n3\n4\n5\n6\n")
	if got := lastLines(log, 4); got != "2; 3; 4; 5; 6" {
		t.Errorf(`got %q, want "2; 3; 4; 5; 6"`, got)
	}
	if got := lastLines(log, log.Size()); got != "" {
		t.Errorf(`got %q of nothing, want ""`, got)
	}
}

// A lock that somebody merely looks at does not keep a gateway from starting,
// and one whose gateway does not answer is named.
func TestAcquire(t *testing.T) {
	dir := Dir(t.TempDir())
	lock, err := dir.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := dir.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	time.AfterFunc(50*time.Millisecond, lock.Unlock)
	lock, err = dir.Acquire(t.Context())
	if err != nil {
		t.Fatalf("a lock that was let go: %v", err)
	}
	lock.Unlock()
}

// TestLogIsFollowedWhenItBeginsAnew: who follows it sees each line once, whole, also
// when the next gateway has truncated the file.
func TestLogIsFollowedWhenItBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("zero\none\ntw")
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- PrintFile(ctx, path, 1, true, func(line string) error {
			lines <- line
			return nil
		})
	}()
	next := func(want string) {
		t.Helper()
		if got := <-lines; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	next("one")
	write("o\nthree\n")
	next("two")
	next("three")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("new\n")
	next("new")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
