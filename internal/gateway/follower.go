package gateway

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"tapgw/internal/adminapi"
)

// Entry is one entry of a session's feeds, as a [Follower] reads it: a timeline line, a
// callback, a stored event, or the number of entries that the follower missed.
type Entry struct {
	// Value is a [TimelineLine], a [LiveLine] or a [HistoryRow], or an [adminapi.Gap]
	// before them.
	Value any
	// Cursors are those of a follower that has read the entry.
	Cursors Cursors

	order uint64 // among all entries of the session's feeds; 0 for a gap
}

// Cursors are the cursors of a follower: the numbers of the last timeline line, callback
// and stored event that it has read; 0 for none. A client that comes back gives them to
// [Session.FollowFrom].
type Cursors struct {
	Timeline, Live, Stream uint64

	// Things is how many things had begun in the live feed, and Order the place of the last
	// entry among those of all feeds.
	Things, Order uint64
}

// Follower reads a session's timeline, live feed and stored events in the order in which
// the entries came. It holds cursors only, so a slow follower blocks nobody: it gets an
// [adminapi.Gap]. It is for one goroutine, and needs no closing.
type Follower struct {
	session *Session
	cursors Cursors
}

// Limits of what a follower reads of each feed at once, so that one with a long way to
// go takes no more memory than others.
const (
	maxFollowItems = 256
	maxFollowBytes = 64 << 10
)

// Follow returns a follower that begins with the last things that the feeds still have: at
// most last, of all three feeds together. All callbacks of a message, a thought or a call
// count as one. It begins where no feed has lost anything since: what is older, and how much
// is lost, tells [Session.Earlier]. With 0 it begins with the next entry. It implements the
// parameter last of GET /sessions/{id}/events.
func (s *Session) Follow(last int) *Follower {
	upTo := s.arrivals.value()
	from := s.placeOf(last, upTo+1) - 1
	from = max(from, lossEnd(s.timeline, orderOfLine), lossEnd(s.live, orderOfLive), lossEnd(s.pushed, orderOfRow))
	return &Follower{session: s, cursors: s.cursorsAt(min(from, upTo))}
}

// lossEnd is the place before the first entry that a feed has, 0 if it has lost none.
func lossEnd[T any](f *feed[T], orderOf func(*T) uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == 1 {
		return 0
	}
	return orderOf(&f.items[0]) - 1 // the newest entry is always there
}

// placeOf returns the order of the first of the last things before a place, 1 if there are
// no more than these.
func (s *Session) placeOf(last int, before uint64) uint64 {
	if last <= 0 {
		return before
	}
	orders := slices.Concat(thingsBefore(s.timeline, last, before, orderOfLine),
		thingsBefore(s.live, last, before, orderOfLive), thingsBefore(s.pushed, last, before, orderOfRow))
	if len(orders) <= last {
		return 1
	}
	slices.Sort(orders)
	return orders[len(orders)-last]
}

// thingsBefore returns the orders of the last things of a feed before a place.
func thingsBefore[T any](f *feed[T], last int, before uint64, orderOf func(*T) uint64) (orders []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.items) - 1; i >= 0 && len(orders) <= last; i-- {
		if l, ok := any(&f.items[i]).(*LiveLine); ok && l.Event.isPart() {
			continue
		}
		if n := orderOf(&f.items[i]); n < before {
			orders = append(orders, n)
		}
	}
	return orders
}

// cursorsAt are the cursors of a follower that has read all entries up to an order.
func (s *Session) cursorsAt(order uint64) Cursors {
	c := Cursors{Timeline: cursorAt(s.timeline, order, orderOfLine), Live: cursorAt(s.live, order, orderOfLive),
		Stream: cursorAt(s.pushed, order, orderOfRow), Order: order}
	c.Things = s.thingsAt(c.Live)
	return c
}

// thingsAt is how many things had begun in the live feed up to a number. Of those that the
// feed has lost it counts all.
func (s *Session) thingsAt(seq uint64) uint64 {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	later := s.live.from(seq)
	if len(later) == 0 {
		return s.things
	}
	return thingsBeforeLine(later[0])
}

// thingsBeforeLine is how many things had begun before a line.
func thingsBeforeLine(l LiveLine) uint64 {
	if l.Event.isPart() {
		return l.things
	}
	return l.things - 1
}

// Earlier returns the last things before a place, [Cursors].Order of an entry, oldest first,
// and whether there are more. Where a feed has lost what came before its first entry, an
// [adminapi.Gap] says how much.
func (s *Session) Earlier(before uint64, last int) (list []Entry, hasMore bool) {
	from := s.placeOf(last, before)
	at := s.cursorsAt(from - 1)
	var gaps []Entry
	list = slices.Concat(
		between(s.timeline, from, before, orderOfLine, func(first uint64, l *TimelineLine) {
			gaps = append(gaps, Entry{Value: adminapi.Gap{Timeline: first - 1}, order: l.order})
		}),
		between(s.live, from, before, orderOfLive, func(_ uint64, l *LiveLine) {
			gaps = append(gaps, Entry{Value: adminapi.Gap{Live: thingsBeforeLine(*l)}, order: l.order})
		}),
		between(s.pushed, from, before, orderOfRow, func(first uint64, r *HistoryRow) {
			gaps = append(gaps, Entry{Value: adminapi.Gap{Stream: first - 1}, order: r.order})
		}))
	byOrder := func(a, b Entry) int { return cmp.Compare(a.order, b.order) }
	slices.SortFunc(gaps, byOrder)
	slices.SortFunc(list, byOrder)
	list = append(gaps, list...)
	slices.SortStableFunc(list, byOrder) // a gap comes before the entry of its place
	for i := range list {
		at.pass(&list[i])
	}
	return list, from > 1
}

// between returns the entries of a feed from an order up to another. If the feed has lost
// entries before its first one, and that is among them or just behind them, it calls lost.
func between[T any](
	f *feed[T], from, before uint64, orderOf func(*T) uint64, lost func(first uint64, item *T),
) (list []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first > 1 {
		if n := orderOf(&f.items[0]); n >= from && n <= before {
			lost(f.first, &f.items[0])
		}
	}
	for i := range f.items {
		if n := orderOf(&f.items[i]); n >= from && n < before {
			list = append(list, Entry{Value: f.items[i], order: n})
		}
	}
	return list
}

// pass moves the cursors behind an entry, which gets them.
func (c *Cursors) pass(e *Entry) {
	switch it := e.Value.(type) {
	case TimelineLine:
		c.Timeline, c.Order = it.Seq, it.order
	case LiveLine:
		c.Live, c.Things, c.Order = it.Seq, it.things, it.order
	case HistoryRow:
		c.Stream, c.Order = it.Seq, it.order
	}
	e.Cursors = *c
}

// FollowFrom returns a follower that goes on after cursors; nil if the session has not come
// that far, so that the cursors must be of another session. Entries that have left the
// feeds become an [adminapi.Gap].
func (s *Session) FollowFrom(c Cursors) *Follower {
	if c.Timeline > s.timeline.last() || c.Live > s.live.last() || c.Stream > s.pushed.last() ||
		c.Order > s.arrivals.value() || c.Things > s.thingsAt(s.live.last()) {
		return nil
	}
	return &Follower{session: s, cursors: c}
}

func orderOfLine(l *TimelineLine) uint64 { return l.order }
func orderOfLive(l *LiveLine) uint64     { return l.order }
func orderOfRow(r *HistoryRow) uint64    { return r.order }

// cursorAt is the number of a feed's last entry up to an order.
func cursorAt[T any](f *feed[T], upTo uint64, orderOf func(*T) uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := sort.Search(len(f.items), func(i int) bool { return orderOf(&f.items[i]) > upTo })
	if i == 0 {
		return f.first - 1
	}
	return f.numbers[i-1]
}

// Next waits for entries after the follower's cursors and returns them, oldest first: at
// least one, at most 256 of each feed. The error is [ErrSessionEnded] when none will come,
// or that of ctx.
func (f *Follower) Next(ctx context.Context) ([]Entry, error) {
	for {
		list, known := f.read()
		if len(list) > 0 {
			return list, nil
		}
		if err := f.session.arrivals.wait(ctx, known, f.session.stopped); err != nil {
			return nil, err
		}
	}
}

// read returns the entries after the cursors up to the order known, and advances the
// cursors. Entries get their order under the lock of their feed, so all entries up to
// the present order are in the feeds when these are read.
func (f *Follower) read() (list []Entry, known uint64) {
	s := f.session
	known = s.arrivals.value()
	lines, firstLine := readFeed(s.timeline, f.cursors.Timeline, orderOfLine, &known)
	live, firstLive := readFeed(s.live, f.cursors.Live, orderOfLive, &known)
	rows, firstRow := readFeed(s.pushed, f.cursors.Stream, orderOfRow, &known)
	gap := adminapi.Gap{
		Timeline: firstLine - f.cursors.Timeline - 1,
		Stream:   firstRow - f.cursors.Stream - 1,
	}
	if firstLive > f.cursors.Live+1 { // the newest entry is always there
		things := thingsBeforeLine(live[0].Value.(LiveLine))
		gap.Live, f.cursors.Things = things-f.cursors.Things, things
	}
	f.cursors.Timeline, f.cursors.Live, f.cursors.Stream = firstLine-1, firstLive-1, firstRow-1
	list = slices.Concat(lines, live, rows)
	list = slices.DeleteFunc(list, func(e Entry) bool { return e.order > known })
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.order, b.order) })
	if gap != (adminapi.Gap{}) {
		list = slices.Insert(list, 0, Entry{Value: gap})
	}
	for i := range list {
		f.cursors.pass(&list[i])
	}
	return list, known
}

// readFeed reads the entries of one feed after a cursor; first is the number of the
// first of them. If the feed has more, it lowers known to the order of the last one
// that it read.
func readFeed[T any](f *feed[T], cursor uint64, orderOf func(*T) uint64, known *uint64) (list []Entry, first uint64) {
	items, first, hasMore := f.next(cursor, maxFollowItems, maxFollowBytes)
	list = make([]Entry, len(items))
	for i := range items {
		list[i] = Entry{Value: items[i], order: orderOf(&items[i])}
	}
	if hasMore {
		*known = min(*known, list[len(list)-1].order)
	}
	return list, first
}

// Cursors are the follower's cursors after the last [Follower.Next].
func (f *Follower) Cursors() Cursors { return f.cursors }
