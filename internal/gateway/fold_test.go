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
	f := newLiveFeed()
	f.maxItems = 300
	var all []string // by number, from 1
	add := func(e Event) {
		all = append(all, e.Callback+e.ID+e.Delta)
		f.add(func(seq uint64) LiveLine { return LiveLine{Seq: seq, Event: e} })
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
			items, end := f.after(cursor)
			if end != uint64(len(all)) || f.first != 1 {
				t.Fatalf("the feed begins with %d and ends with %d, want 1 and %d", f.first, end, len(all))
			}
			var got []string
			for _, l := range items {
				got = append(got, l.Event.Callback+l.Event.ID+strings.ReplaceAll(l.Event.Delta, " :", " "))
			}
			if got, want := texts(got), texts(all[cursor:]); got != want {
				t.Fatalf("after %d: %s, want %s", cursor, got, want)
			}
		}
	}
	size := 0
	for _, l := range f.items {
		size += liveSize(l)
	}
	if len(f.items) > 300 || size != f.totalSize {
		t.Errorf("%d entries of %d bytes, which counts as %d; want at most 300 and the same", len(f.items), size,
			f.totalSize)
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
		case TimelineLine:
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
	if got := s.live.first; got != 1 {
		t.Errorf("the feed has lost what came before its entry %d, want nothing", got)
	}
	for last, want := range map[int][]string{1: {"assistant"}, 2: {OnStartMessage + "long", "assistant"},
		3: {OnStartToolExecution + "before", OnStartMessage + "long", "assistant"}} {
		f := s.Follow(last)
		var got []string
		for f.cursors.Live < s.live.last() || f.cursors.Timeline < s.timeline.last() {
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
	s.live.maxItems, s.timeline.maxItems = 200, 300
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
		list, hasMore = s.Earlier(all[0].Cursors.Order, 30)
		if n := len(things(list)); n > 33 {
			t.Errorf("%d things before, want at most 30 and the gaps", n)
		}
		all = append(list, all...)
	}
	var want []string
	for i := range 500 {
		switch i {
		case 200:
			want = append(want, fmt.Sprint(adminapi.Gap{Timeline: s.timeline.first - 1}))
		case 400:
			want = append(want, fmt.Sprint(adminapi.Gap{Live: 400}))
		}
		if i >= 400 {
			want = append(want, OnStartToolExecution+fmt.Sprint(i))
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
		f := s.FollowFrom(all[i].Cursors)
		var rest []Entry
		for f.cursors.Order < all[len(all)-1].Cursors.Order {
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
	s.live.maxItems = 100
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
		if !slices.ContainsFunc(s.live.items, func(l LiveLine) bool {
			return l.Event.Callback == OnStartMessage && l.Event.ID == fmt.Sprint("later", i)
		}) {
			lost++
		}
	}
	if got, want := list[0].Value, (adminapi.Gap{Live: uint64(lost)}); lost == 0 || got != want {
		t.Errorf("the gap is %+v, want %+v", got, want)
	}
}
