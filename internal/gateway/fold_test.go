package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
)

// localSession starts a session of a gateway that has nothing else.
func localSession(t *testing.T) *Session {
	t.Helper()
	g := New(Options{Starters: map[string]Starter{HostLocal: LocalStarter{}}})
	s, err := g.Start(t.Context(), StartRequest{Host: HostLocal, CWD: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context()), "enough"); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A full feed makes one entry of the deltas of a text. Readers get each delta once,
// wherever they go on.
func TestFeedFolds(t *testing.T) {
	f := newFeed()
	f.kinds[kindLive].maxItems = 300
	var all []string // by number, from 1
	add := func(e Event) {
		all = append(all, e.Callback+e.ID+e.Delta)
		f.addCallback(LiveLine{Event: e})
	}
	// texts joins what deltas of one text follow each other.
	texts := func(list []string) string {
		var b strings.Builder
		last := ""
		for _, it := range list {
			head, delta, _ := strings.Cut(it, ":")
			if delta == "" || head != last {
				fmt.Fprintf(&b, "|%s:", head)
			}
			b.WriteString(delta)
			last = head
		}
		return b.String()
	}
	for i := range 20 {
		add(Event{Callback: OnStartMessage, ID: fmt.Sprint(i)})
		for n := range rand.IntN(400) {
			add(Event{Callback: OnMessage, ID: fmt.Sprint(i), Delta: fmt.Sprintf(":%d ", n)})
		}
		for range 5 {
			cursor := uint64(rand.IntN(len(all)))
			items, end := listAfter[LiveLine](f, kindLive, cursor)
			if end != uint64(len(all)) || f.kinds[kindLive].dropped != (Place{}) {
				t.Fatalf(
					"the feed lost what came up to %+v and ends with %d, want nothing lost and %d",
					f.kinds[kindLive].dropped, end, len(all))
			}
			var got []string
			for _, l := range items {
				got = append(got, l.Event.Callback+l.Event.ID+strings.ReplaceAll(l.Event.Delta,
					" :", " "))
			}
			if got, want := texts(got), texts(all[cursor:]); got != want {
				t.Fatalf("after %d: %s, want %s", cursor, got, want)
			}
		}
	}
	n, size := 0, 0
	for _, e := range f.entries {
		if e.kind() == kindLive {
			n++
			size += e.size()
		}
	}
	if live := f.kinds[kindLive]; n > 300 || n != live.items || size != live.bytes {
		t.Errorf("%d entries of %d bytes, which count as %d of %d; want at most 300 and the same",
			n, size, live.items, live.bytes)
	}
}

// say has the session say something in so many deltas.
func say(s *Session, id string, deltas int) {
	s.Event(Event{Callback: OnStartMessage, ID: id})
	text := strings.Repeat("word ", deltas)
	for range deltas {
		s.Event(Event{Callback: OnMessage, ID: id, Delta: "word "})
	}
	s.Event(Event{Callback: OnEndMessage, ID: id, Content: text})
}

// things returns the entries of a list in which something begins, in short.
func things(list []Entry) (short []string) {
	for _, e := range list {
		switch it := e.Value.(type) {
		case adminapi.TimelineLine:
			short = append(short, it.Source)
		case LiveLine:
			if !it.Event.isPart() {
				short = append(short, it.Event.Callback+it.Event.ID)
			}
		case adminapi.Gap:
			short = append(short, fmt.Sprint(it))
		}
	}
	return short
}

// An answer of many deltas counts as one thing, and pushes out nothing.
func TestFollowLongAnswer(t *testing.T) {
	s := localSession(t)
	s.Event(Event{Callback: OnStartToolExecution, ID: "before"})
	s.Event(Event{Callback: OnEndToolExecution, ID: "before"})
	say(s, "long", 100_000)
	if got := s.feed.kinds[kindLive].dropped; got != (Place{}) {
		t.Errorf("the feed has lost what came up to %+v, want nothing", got)
	}
	for last, want := range map[int][]string{1: {"assistant"},
		2: {OnStartMessage + "long", "assistant"},
		3: {OnStartToolExecution + "before", OnStartMessage + "long", "assistant"}} {
		f := s.Follow(last)
		var got []string
		for f.at.Number < s.feed.last().Number {
			list, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, things(list)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the last %d things are %q, want %q", last, got, want)
		}
	}
}

// Whoever reads from the end to the beginning gets all that is kept, once and in order,
// and how much is not.
func TestEarlier(t *testing.T) {
	s := localSession(t)
	s.feed.kinds[kindLive].maxItems, s.feed.kinds[kindTimeline].maxItems = 200, 300
	for i := range 500 {
		s.Event(Event{Callback: OnStartToolExecution, ID: fmt.Sprint(i)})
		s.Event(Event{Callback: OnEndToolExecution, ID: fmt.Sprint(i)})
		s.Note(adminapi.LogInfo, fmt.Sprint(i))
	}
	f := s.Follow(120)
	all, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := things(all); len(got) != 120 {
		t.Errorf("it begins with %d things, want 120: %q", len(got), got)
	}
	for hasMore := true; hasMore; {
		var list []Entry
		list, hasMore = s.Earlier(all[0].Place.Number, 30)
		if n := len(things(list)); n > 33 {
			t.Errorf("%d things before, want at most 30 and the gaps", n)
		}
		all = append(list, all...)
	}
	var want []string
	for i := range 500 {
		if i >= 400 {
			want = append(want, OnStartToolExecution+fmt.Sprint(i))
		}
		// A gap stands where the last entry of its kind was dropped.
		switch i {
		case 199:
			want = append(want,
				fmt.Sprint(adminapi.Gap{Timeline: s.feed.kinds[kindTimeline].dropped.Timeline}))
		case 399:
			want = append(want, fmt.Sprint(adminapi.Gap{Live: 400}))
		}
		if i >= 200 {
			want = append(want, SourceSession)
		}
	}
	if got := things(all); !slices.Equal(got, want) {
		t.Errorf("read backwards: %q, want %q", got, want)
	}
	// Its cursors are places to go on from.
	for _, i := range []int{len(all) / 3 * 2, len(all) - 2} {
		f := s.FollowFrom(all[i].Place)
		var rest []Entry
		for f.at.Number < all[len(all)-1].Place.Number {
			list, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rest = append(rest, list...)
		}
		if got, want := things(rest), things(all[i+1:]); !slices.Equal(got, want) {
			t.Errorf("behind entry %d come %q, want %q", i, got, want)
		}
	}
}

// A gap counts things, not their parts.
func TestGapOfThings(t *testing.T) {
	s := localSession(t)
	s.feed.kinds[kindLive].maxItems = 100
	say(s, "first", 3)
	f := s.Follow(1)
	if _, err := f.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		say(s, fmt.Sprint("later", i), 2)
	}
	list, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for i := range 100 {
		if !slices.ContainsFunc(s.feed.entries, func(e Entry) bool {
			l, _ := e.Value.(LiveLine)
			return l.Event.Callback == OnStartMessage && l.Event.ID == fmt.Sprint("later", i)
		}) {
			lost++
		}
	}
	if got, want := list[0].Value, (adminapi.Gap{Live: uint64(lost)}); lost == 0 || got != want {
		t.Errorf("the gap is %+v, want %+v", got, want)
	}
}
