package gateway

import (
	"cmp"
	"context"
	"slices"
	"tapgw/internal/adminapi"
)

// Entry is one thing that happened in a session.
type Entry struct {
	// Value is a [TimelineLine], a [LiveLine] or a [HistoryRow], or before them
	// what was [adminapi.Gap].
	Value any
	// Cursors is the place behind it.
	Cursors Cursors

	order uint64
}

// Cursors is where a follower stands: the numbers of the last timeline line,
// callback and stored event that it has had.
type Cursors struct{ Timeline, Live, Stream uint64 }

// Follower hears what happens in a session, in the order in which it happened and
// at its own pace. It is for one goroutine.
type Follower struct {
	session *Session
	cursors Cursors
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
	upTo := s.arrivals.value()
	numbers := slices.Concat(newestOrders(s.timeline, last, orderOfLine), newestOrders(s.live, last, orderOfLive), newestOrders(s.pushed, last, orderOfRow))
	numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n > upTo })
	slices.Sort(numbers)
	from := upTo
	if len(numbers) > 0 {
		from = numbers[max(len(numbers)-last, 0)] - 1
	}
	return &Follower{session: s, cursors: Cursors{cursorAt(s.timeline, from, orderOfLine), cursorAt(s.live, from, orderOfLive), cursorAt(s.pushed, from, orderOfRow)}}
}

// FollowFrom returns a follower that goes on behind a place, nil if the session
// never was there.
func (s *Session) FollowFrom(at Cursors) *Follower {
	if at.Timeline > s.timeline.last() || at.Live > s.live.last() || at.Stream > s.pushed.last() {
		return nil
	}
	return &Follower{session: s, cursors: at}
}

func orderOfLine(l *TimelineLine) uint64 { return l.order }
func orderOfLive(l *LiveLine) uint64     { return l.order }
func orderOfRow(r *HistoryRow) uint64    { return r.order }

// newestOrders are the numbers under which the newest entries of a feed arrived in the
// session.
func newestOrders[T any](f *feed[T], last int, arrived func(*T) uint64) []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.items[max(len(f.items)-last, 0):]
	list := make([]uint64, len(items))
	for i := range items {
		list[i] = arrived(&items[i])
	}
	return list
}

// cursorAt is the number of a feed's last entry that arrived up to a number.
func cursorAt[T any](f *feed[T], upTo uint64, arrived func(*T) uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, _ := slices.BinarySearchFunc(f.items, upTo+1, func(item T, n uint64) int { return cmp.Compare(arrived(&item), n) })
	return f.first + uint64(i) - 1
}

// Next waits for what happened behind the follower's place and returns it, oldest
// first. The error is [ErrSessionEnded] when nothing more will come, or the
// context's.
func (f *Follower) Next(ctx context.Context) ([]Entry, error) {
	s := f.session
	for {
		// What arrived by now is in its feed by the time that the feed is read, so
		// up to here the order is known.
		heard := s.arrivals.value()
		lines, firstLine, moreLines := s.timeline.next(f.cursors.Timeline, followAtOnce, followBytes)
		live, firstLive, moreLive := s.live.next(f.cursors.Live, followAtOnce, followBytes)
		rows, firstRow, moreRows := s.pushed.next(f.cursors.Stream, followAtOnce, followBytes)
		lost := adminapi.Gap{
			Timeline: firstLine - f.cursors.Timeline - 1,
			Live:     firstLive - f.cursors.Live - 1,
			Stream:   firstRow - f.cursors.Stream - 1,
		}
		f.cursors = Cursors{firstLine - 1, firstLive - 1, firstRow - 1}
		list := make([]Entry, 0, 1+len(lines)+len(live)+len(rows))
		if lost != (adminapi.Gap{}) {
			list = append(list, Entry{Value: lost})
		}
		for i := range lines {
			list = append(list, Entry{Value: lines[i], order: lines[i].order})
		}
		for i := range live {
			list = append(list, Entry{Value: live[i], order: live[i].order})
		}
		for i := range rows {
			list = append(list, Entry{Value: rows[i], order: rows[i].order})
		}
		// Of a kind that has more, what comes later is not known yet.
		if moreLines {
			heard = min(heard, lines[len(lines)-1].order)
		}
		if moreLive {
			heard = min(heard, live[len(live)-1].order)
		}
		if moreRows {
			heard = min(heard, rows[len(rows)-1].order)
		}
		list = slices.DeleteFunc(list, func(h Entry) bool { return h.order > heard })
		slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.order, b.order) })
		for i := range list {
			switch list[i].Value.(type) {
			case TimelineLine:
				f.cursors.Timeline++
			case LiveLine:
				f.cursors.Live++
			case HistoryRow:
				f.cursors.Stream++
			}
			list[i].Cursors = f.cursors
		}
		if len(list) > 0 {
			return list, nil
		}
		if err := s.arrivals.wait(ctx, heard, s.stopped); err != nil {
			return nil, err
		}
	}
}

// Cursors is the follower's place.
func (f *Follower) Cursors() Cursors { return f.cursors }
