package gateway

import (
	"cmp"
	"context"
	"slices"
	"tapgw/internal/adminapi"
)

// Happening is one thing that happened in a session.
type Happening struct {
	// What is a [TimelineLine], a [LiveLine] or a [HistoryRow], or before them
	// what was [adminapi.Gap].
	What any
	// At is the place behind it.
	At Place

	arrived uint64
}

// Place is where a follower stands: the numbers of the last timeline line,
// callback and stored event that it has had.
type Place struct{ Timeline, Live, Stream uint64 }

// Follower hears what happens in a session, in the order in which it happened and
// at its own pace. It is for one goroutine.
type Follower struct {
	session *Session
	at      Place
}

// What a follower is given of each kind at once, so that one who is behind takes no
// more memory than others.
const (
	followAtOnce = 256
	followBytes  = 64 << 10
)

// Follow returns a follower that begins with the last things that happened, as far
// as they are kept.
func (s *Session) Follow(last int) *Follower {
	upTo := s.arrived.now()
	numbers := slices.Concat(arrivals(s.timeline, last, lineArrived), arrivals(s.live, last, liveArrived), arrivals(s.pushed, last, rowArrived))
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > upTo })
	slices.Sort(numbers)
	from := upTo
	if len(numbers) > 0 {
		from = numbers[max(len(numbers)-last, 0)] - 1
	}
	return &Follower{session: s, at: Place{placeOf(s.timeline, from, lineArrived), placeOf(s.live, from, liveArrived), placeOf(s.pushed, from, rowArrived)}}
}

// FollowFrom returns a follower that goes on behind a place, nil if the session
// never was there.
func (s *Session) FollowFrom(at Place) *Follower {
	if at.Timeline > s.timeline.last() || at.Live > s.live.last() || at.Stream > s.pushed.last() {
		return nil
	}
	return &Follower{session: s, at: at}
}

func lineArrived(l *TimelineLine) uint64 { return l.arrived }
func liveArrived(l *LiveLine) uint64     { return l.arrived }
func rowArrived(r *HistoryRow) uint64    { return r.arrived }

// arrivals are the numbers under which the newest entries of a feed arrived in the
// session.
func arrivals[T any](f *feed[T], last int, arrived func(*T) uint64) []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.items[max(len(f.items)-last, 0):]
	list := make([]uint64, len(items))
	for i := range items {
		list[i] = arrived(&items[i])
	}
	return list
}

// placeOf is the number of a feed's last entry that arrived up to a number.
func placeOf[T any](f *feed[T], upTo uint64, arrived func(*T) uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, _ := slices.BinarySearchFunc(f.items, upTo+1, func(item T, n uint64) int { return cmp.Compare(arrived(&item), n) })
	return f.first + uint64(i) - 1
}

// Next waits for what happened behind the follower's place and returns it, oldest
// first. The error is [ErrSessionEnded] when nothing more will come, or the
// context's.
func (f *Follower) Next(ctx context.Context) ([]Happening, error) {
	s := f.session
	for {
		// What arrived by now is in its feed by the time that the feed is read, so
		// up to here the order is known.
		heard := s.arrived.now()
		lines, firstLine, moreLines := s.timeline.next(f.at.Timeline, followAtOnce, followBytes)
		live, firstLive, moreLive := s.live.next(f.at.Live, followAtOnce, followBytes)
		rows, firstRow, moreRows := s.pushed.next(f.at.Stream, followAtOnce, followBytes)
		lost := adminapi.Gap{
			Timeline: firstLine - f.at.Timeline - 1,
			Live:     firstLive - f.at.Live - 1,
			Stream:   firstRow - f.at.Stream - 1,
		}
		f.at = Place{firstLine - 1, firstLive - 1, firstRow - 1}
		list := make([]Happening, 0, 1+len(lines)+len(live)+len(rows))
		if lost != (adminapi.Gap{}) {
			list = append(list, Happening{What: lost})
		}
		for i := range lines {
			list = append(list, Happening{What: lines[i], arrived: lines[i].arrived})
		}
		for i := range live {
			list = append(list, Happening{What: live[i], arrived: live[i].arrived})
		}
		for i := range rows {
			list = append(list, Happening{What: rows[i], arrived: rows[i].arrived})
		}
		// Of a kind that has more, what comes later is not known yet.
		if moreLines {
			heard = min(heard, lines[len(lines)-1].arrived)
		}
		if moreLive {
			heard = min(heard, live[len(live)-1].arrived)
		}
		if moreRows {
			heard = min(heard, rows[len(rows)-1].arrived)
		}
		list = slices.DeleteFunc(list, func(h Happening) bool { return h.arrived > heard })
		slices.SortFunc(list, func(a, b Happening) int { return cmp.Compare(a.arrived, b.arrived) })
		for i := range list {
			switch list[i].What.(type) {
			case TimelineLine:
				f.at.Timeline++
			case LiveLine:
				f.at.Live++
			case HistoryRow:
				f.at.Stream++
			}
			list[i].At = f.at
		}
		if len(list) > 0 {
			return list, nil
		}
		if err := s.arrived.wait(ctx, heard, s.stopped); err != nil {
			return nil, err
		}
	}
}

// At is the follower's place.
func (f *Follower) At() Place { return f.at }
