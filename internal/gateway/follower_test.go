package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tapgw/internal/adminapi"
)

// entryText is the text of an entry.
func entryText(h Entry) string {
	switch w := h.Value.(type) {
	case TimelineLine:
		return w.Message
	case LiveLine:
		return w.Event.Delta
	case HistoryRow:
		return w.Event
	}
	return fmt.Sprintf("%+v", h.Value)
}

// readEntries reads n entries.
func readEntries(t *testing.T, f *Follower, n int) (texts []string, at Cursors) {
	t.Helper()
	for len(texts) < n {
		list, err := f.Next(t.Context())
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(texts), n, err)
		}
		if len(list) > 3*maxFollowItems+1 {
			t.Errorf("%d entries at once, want at most %d", len(list), 3*maxFollowItems+1)
		}
		for _, h := range list {
			texts, at = append(texts, entryText(h)), h.Cursors
		}
	}
	return texts, at
}

// Followers read the entries of three feeds in the order in which they came, from the
// last ones or from any cursors.
func TestFollow(t *testing.T) {
	_, s, _ := joined(t)
	var all []string
	began := s.Follow(0)
	do := func(n int) {
		for range n {
			text := fmt.Sprint(len(all))
			switch kind := rand.IntN(20); { // bursts of more than is given at once
			case kind == 0 && len(all)%50 == 0:
				s.mu.Lock()
				s.store(streamKey{"s", "p"}, "s", HistoryRow{StreamRow: adminapi.StreamRow{Event: text, Level: "keep"}})
				s.mu.Unlock()
			case kind < 5:
				s.Note(adminapi.LogInfo, text)
			default:
				s.Event(Event{Callback: OnStartMessage, Delta: text})
			}
			all = append(all, text)
		}
	}
	for range 20 {
		do(1 + rand.IntN(150))
		last := rand.IntN(len(all)) + 1
		from := len(all) - last
		f := s.Follow(last)
		if rand.IntN(2) == 0 {
			do(rand.IntN(20))
		}
		texts, at := readEntries(t, f, len(all)-from)
		if !slices.Equal(texts, all[from:]) {
			t.Fatalf("the last %d are %q, want %q", last, texts, all[from:])
		}
		do(5)
		if texts, _ := readEntries(t, s.FollowFrom(at), 5); !slices.Equal(texts, all[len(all)-5:]) {
			t.Fatalf("from %v: %q, want %q", at, texts, all[len(all)-5:])
		}
	}
	if texts, _ := readEntries(t, began, len(all)); !slices.Equal(texts, all) {
		t.Errorf("a follower from the beginning got %q, want %q", texts, all)
	}
	for _, at := range []Cursors{{Timeline: 1 << 40}, {Live: 1 << 63}, {Stream: 1<<64 - 1}} {
		if s.FollowFrom(at) != nil {
			t.Errorf("FollowFrom(%v) is a follower, want nil: the session was never there", at)
		}
	}
}

// A follower that is far behind gets the gap first, and no entry twice.
func TestFollowGap(t *testing.T) {
	g := New(Options{Starters: map[string]Starter{HostLocal: LocalStarter{}}})
	s, err := g.Start(t.Context(), StartRequest{Host: HostLocal, CWD: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f := s.Follow(0)
	const lines = 3*maxTimelineLines + 7
	for i := range lines {
		s.Note(adminapi.LogInfo, fmt.Sprint(i))
	}
	list, err := f.Next(t.Context())
	gap := adminapi.Gap{Timeline: lines - maxTimelineLines}
	before := list[1].Cursors
	before.Timeline--
	before.Order = f.session.Follow(0).cursors.Order - lines // of the only line when it began
	if err != nil || list[0].Value != gap || list[0].Cursors != before {
		t.Fatalf("got %+v, %v, want %+v", list[:2], err, gap)
	}
	if got, want := entryText(list[1]), fmt.Sprint(lines-maxTimelineLines); got != want {
		t.Errorf("it goes on with %s, want %s", got, want)
	}
	if texts, _ := readEntries(t, f, maxTimelineLines-len(list)+1); texts[len(texts)-1] != fmt.Sprint(lines-1) {
		t.Errorf("it ends with %s, want %s", texts[len(texts)-1], fmt.Sprint(lines-1))
	}
	if err := s.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Next(t.Context())
	}
	if !errors.Is(err, ErrSessionEnded) {
		t.Error(err)
	}
}
