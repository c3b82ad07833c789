package gateway

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func noSize(int) int { return 0 }

// allAfter returns all entries after a cursor, and the cursor behind them.
func allAfter[T any](f *buffer[T], cursor uint64) ([]T, uint64) {
	items, first := f.next(cursor, math.MaxInt, math.MaxInt)
	// More entries may have come since: the cursor stays before them.
	return items, min(first-1+uint64(len(items)), f.count.value())
}

func addAll(f *buffer[int], from, to int) {
	for i := from; i <= to; i++ {
		f.add(func(uint64) int { return i })
	}
}

func TestBuffer(t *testing.T) {
	f := newBuffer(5, 0, noSize)
	if got, next := allAfter(f, 0); len(got) != 0 || next != 0 || f.count.value() != 0 {
		t.Fatalf("an empty buffer gives %v, next %d, want none and 0", got, next)
	}
	addAll(f, 1, 3)
	for _, tc := range []struct {
		after uint64
		want  []int
	}{{0, []int{1, 2, 3}}, {1, []int{2, 3}}, {3, nil}, {99, nil}} {
		if got, next := allAfter(f, tc.after); !slices.Equal(got, tc.want) || next != 3 {
			t.Errorf("after %d: %v, next %d, want %v and 3", tc.after, got, next, tc.want)
		}
	}
	addAll(f, 4, 12)
	for _, tc := range []struct {
		after uint64
		want  []int
	}{
		{0, []int{8, 9, 10, 11, 12}}, {7, []int{8, 9, 10, 11, 12}},
		{8, []int{9, 10, 11, 12}}, {11, []int{12}}, {12, nil},
	} {
		if got, next := allAfter(f, tc.after); !slices.Equal(got, tc.want) || next != 12 {
			t.Errorf("after %d: %v, next %d, want %v and 12", tc.after, got, next, tc.want)
		}
	}
}

// A buffer holds maxBytes of entries, and its newest entry whatever its size.
func TestBufferBytes(t *testing.T) {
	f := newBuffer(100, 10, func(s string) int { return len(s) })
	add := func(s string) { f.add(func(uint64) string { return s }) }
	add("1234")
	add("5678")
	add("90")
	if got, _ := allAfter(f, 0); len(got) != 3 {
		t.Errorf("kept %q, want 3 of them", got)
	}
	add("x")
	if got, _ := allAfter(f, 0); !slices.Equal(got, []string{"5678", "90", "x"}) {
		t.Errorf(`kept %q, want ["5678" "90" "x"]`, got)
	}
	add("one that is longer than all")
	if got, next := allAfter(f, 0); len(got) != 1 || next != 5 {
		t.Errorf("kept %q, next %d, want 1 of them and 5", got, next)
	}
	add("y")
	if got, _ := allAfter(f, 0); !slices.Equal(got, []string{"y"}) {
		t.Errorf(`kept %q, want ["y"]`, got)
	}
}

// A reader that waits misses no entry, and ends with the buffer or with its context.
func TestBufferWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBuffer(1000, 0, noSize)
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				var seen []int
				var cursor uint64
				for {
					err := f.wait(t.Context(), cursor)
					if errors.Is(err, ErrSessionEnded) {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					var got []int
					got, cursor = allAfter(f, cursor)
					seen = append(seen, got...)
				}
				for i, n := range seen {
					if n != i+1 {
						t.Errorf("entry %d is %d, want %d", i, n, i+1)
						return
					}
				}
				if len(seen) != 500 {
					t.Errorf("saw %d of 500, want 500", len(seen))
				}
			})
		}
		for i := 1; i <= 500; i++ {
			addAll(f, i, i)
			if i%7 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		f.close()
		readers.Wait()
		if err := f.wait(t.Context(), 400); err != nil {
			t.Errorf("what is there is there after the end: %v", err)
		}
		if err := f.wait(t.Context(), 500); !errors.Is(err, ErrSessionEnded) {
			t.Errorf("after the end: %v, want %v", err, ErrSessionEnded)
		}
		g := newBuffer(1, 0, noSize)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
