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
	case adminapi.TimelineLine:
		return w.Message
	case LiveLine:
		return w.Event.Delta
	case HistoryRow:
		return w.Event
	}
	return fmt.Sprintf("%+v", h.Value)
}

// readEntries reads n entries.
func readEntries(t *testing.T, f *Follower, n int) (texts []string, at Place) {
	t.Helper()
	for len(texts) < n {
		list, err := f.Next(t.Context())
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(texts), n, err)
		}
		if len(list) > maxFollowItems {
			t.Errorf("%d entries at once, want at most %d", len(list), maxFollowItems)
		}
		for _, h := range list {
			texts, at = append(texts, entryText(h)), h.Place
		}
	}
	return texts, at
}

// Followers read the entries of all kinds in the order in which they came, from the
// last ones or from any place.
func TestFollow(t *testing.T) {
	_, s, _ := joined(t)
	var all []string
	began := s.Follow(0)
	do := func(n int) {
		for range n {
			text := fmt.Sprint(len(all))
			switch kind := rand.IntN(20); { // bursts of more than is given at once
			case kind == 0 && len(all)%50 == 0:
				storeEvent(s, "p", text)
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
	for _, at := range []Place{{Timeline: 1 << 40}, {Live: 1 << 63}, {Stream: 1<<64 - 1}} {
		if s.FollowFrom(at) != nil {
			t.Errorf("FollowFrom(%v) is a follower, want nil: the session was never there", at)
		}
	}
}

// A gap is counted once, also where entries of other kinds come between what was dropped, and
// also to a follower that goes on from the place of any entry.
func TestFollowGapOnce(t *testing.T) {
	s := localSession(t)
	s.feed.kinds[kindTimeline].maxItems = 10
	f := s.Follow(0)
	const n = 3 * maxFollowItems
	for i := range n {
		s.Note(adminapi.LogInfo, fmt.Sprint("line ", i))
		s.Event(Event{Callback: OnStartMessage, Delta: fmt.Sprint("callback ", i)})
	}
	want := []string{fmt.Sprintf("%+v", adminapi.Gap{Timeline: n - 10})}
	for i := range n {
		if i >= n-10 {
			want = append(want, fmt.Sprint("line ", i))
		}
		want = append(want, fmt.Sprint("callback ", i))
	}
	for i := 0; i < len(want); {
		list, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if got := entryText(e); got != want[i] {
				t.Fatalf("entry %d is %q, want %q", i, got, want[i])
			}
			i++
		}
		f = s.FollowFrom(list[rand.IntN(len(list))].Place)
		i -= len(list) - 1 - slices.IndexFunc(list, func(e Entry) bool { return e.Place == f.at })
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
	before := list[1].Place
	before.Timeline--
	before.Number -= lines - maxTimelineLines + 1 // to where the follower began
	if err != nil || list[0].Value != gap || list[0].Place != before {
		t.Fatalf("got %+v, %v, want %+v", list[:2], err, gap)
	}
	if got, want := entryText(list[1]), fmt.Sprint(lines-maxTimelineLines); got != want {
		t.Errorf("it goes on with %s, want %s", got, want)
	}
	if texts, _ := readEntries(t, f,
		maxTimelineLines-len(list)+1); texts[len(texts)-1] != fmt.Sprint(lines-1) {
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
