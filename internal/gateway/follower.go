package gateway

import (
	"cmp"
	"context"
	"slices"

	"tapgw/internal/adminapi"
)

// Follower reads the entries of a session in the order in which they came. It holds its place only,
// so a slow follower doesn't block the session: it gets an [adminapi.Gap]. It is for one goroutine,
// and needs no closing.
type Follower struct {
	feed *feed
	at   Place
}

// Limits of what a follower reads at once, so that one with a long way to go takes no more
// memory than others.
const (
	maxFollowItems = 256
	maxFollowBytes = 64 << 10
)

// Follow returns a follower that begins with the newest items that the session still has, at most
// last of them. All callbacks of a message, a thought or a call are one item. The follower begins
// behind the last dropped entry: [Session.Earlier] returns older entries and says how many were
// dropped. With 0 it begins with the next entry. It implements the parameter last of GET
// /sessions/{id}/events.
func (s *Session) Follow(last int) *Follower {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	var at Place
	if i := f.index(f.startOf(last, f.end.Number+1)); i > 0 {
		at = f.entries[i-1].Place
	}
	for _, r := range f.kinds {
		if r.dropped.Number > at.Number {
			at = r.dropped
		}
	}
	return &Follower{f, at}
}

// startOf returns the number of the entry with which the last things before another entry begin;
// 1 if there are fewer. Call with mu held.
func (f *feed) startOf(last int, before uint64) uint64 {
	if last <= 0 {
		return before
	}
	start := before
	for i := f.index(before) - 1; i >= 0; i-- {
		if !f.entries[i].isThing() {
			continue
		}
		if last == 0 {
			return start
		}
		last--
		start = f.entries[i].Place.Number
	}
	return 1
}

// gapAfter is how much a reader at a place has missed. Call with mu held.
func (f *feed) gapAfter(at Place) adminapi.Gap {
	missed := func(dropped, seen uint64) uint64 { return max(dropped, seen) - seen }
	return adminapi.Gap{
		Timeline: missed(f.kinds[kindTimeline].dropped.Timeline, at.Timeline),
		Live:     missed(f.kinds[kindLive].dropped.Things, at.Things),
		Stream:   missed(f.kinds[kindStream].dropped.Stream, at.Stream),
	}
}

// Earlier returns the last things before an entry's [Place].Number, oldest first, and whether
// there are more. Where entries of a kind were dropped, an [adminapi.Gap] says how many.
func (s *Session) Earlier(before uint64, last int) (list []Entry, hasMore bool) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	from := f.startOf(last, before)
	all := f.gapAfter(Place{})
	for k, gap := range []adminapi.Gap{{Timeline: all.Timeline}, {Live: all.Live},
		{Stream: all.Stream}} {
		at := f.kinds[k].dropped
		if gap != (adminapi.Gap{}) && at.Number+1 >= from && at.Number < before {
			list = append(list, Entry{Value: gap, Place: at})
		}
	}
	for _, e := range f.entries[f.index(from):] {
		if e.Place.Number >= before {
			break
		}
		if e.Value != nil {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Compare(a.Place.Number, b.Place.Number)
	})
	return list, from > 1
}

// FollowFrom returns a follower that goes on after a place; nil if the session has not come
// that far, so that the place must be of another session. Entries that were dropped become
// an [adminapi.Gap].
func (s *Session) FollowFrom(at Place) *Follower {
	end := s.feed.last()
	if at.Number > end.Number || at.Timeline > end.Timeline || at.Live > end.Live ||
		at.Stream > end.Stream || at.Things > end.Things {
		return nil
	}
	return &Follower{s.feed, at}
}

// Next waits for entries after the follower's place and returns them, oldest first: at least one,
// at most 256. The error is [ErrSessionEnded] if the session ends first, or that of ctx.
func (f *Follower) Next(ctx context.Context) ([]Entry, error) {
	for {
		if list := f.read(); len(list) > 0 {
			f.at = list[len(list)-1].Place
			return list, nil
		}
		if err := f.feed.count.wait(ctx, f.at.Number, f.feed.ended); err != nil {
			return nil, err
		}
	}
}

// read returns the entries after the follower's place, which counts the gap before them.
func (f *Follower) read() (list []Entry) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	at := f.at
	if gap := f.feed.gapAfter(at); gap != (adminapi.Gap{}) {
		at.Timeline += gap.Timeline
		at.Things += gap.Live
		at.Stream += gap.Stream
		list = append(list, Entry{Value: gap, Place: at})
	}
	size := 0
	for _, e := range f.feed.entries[f.feed.index(at.Number+1):] {
		if len(list) >= maxFollowItems || size >= maxFollowBytes {
			break
		}
		if e.Value == nil {
			continue
		}
		e = e.after(at.Live)
		size += e.size()
		// Entries that the gap counted may stand behind this entry.
		e.Place.Timeline = max(e.Place.Timeline, at.Timeline)
		e.Place.Things = max(e.Place.Things, at.Things)
		e.Place.Stream = max(e.Place.Stream, at.Stream)
		list = append(list, e)
	}
	return list
}

// Place is the follower's place after the last [Follower.Next].
func (f *Follower) Place() Place { return f.at }
