package chans

import (
	"context"
	"errors"
	"testing"
)

func TestWake(t *testing.T) {
	c := make(chan struct{}, 1)
	Wake(c)
	Wake(c) // does not block
	if len(c) != 1 {
		t.Errorf("%d items, want 1", len(c))
	}
}

func TestIsClosed(t *testing.T) {
	c := make(chan struct{})
	if IsClosed(c) {
		t.Error("closed before its end")
	}
	close(c)
	if !IsClosed(c) {
		t.Error("not closed after its end")
	}
}

func TestLock(t *testing.T) {
	l := NewLock()
	if err := l.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := errors.New("late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if err := l.Lock(ctx); !errors.Is(err, late) {
		t.Errorf("a held lock: %v, want %v", err, late)
	}
	l.Unlock()
	if err := l.Lock(t.Context()); err != nil {
		t.Errorf("a released lock: %v, want none", err)
	}
}
