package gateway

import (
	"cmp"
	"context"
	"slices"

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
type Cursors struct{ Timeline, Live, Stream uint64 }

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

// Follow returns a follower that begins with the last entries that the feeds still have: at
// most last, of all three feeds together. With 0 it begins with the next entry. It
// implements the parameter last of GET /sessions/{id}/events.
func (s *Session) Follow(last int) *Follower {
	upTo := s.arrivals.value()
	orders := slices.Concat(newestOrders(s.timeline, last, orderOfLine),
		newestOrders(s.live, last, orderOfLive), newestOrders(s.pushed, last, orderOfRow))
	orders = slices.DeleteFunc(orders, func(n uint64) bool { return n > upTo })
	slices.Sort(orders)
	from := upTo
	if len(orders) > 0 {
		from = orders[max(len(orders)-last, 0)] - 1
	}
	return &Follower{session: s, cursors: Cursors{cursorAt(s.timeline, from, orderOfLine),
		cursorAt(s.live, from, orderOfLive), cursorAt(s.pushed, from, orderOfRow)}}
}

// FollowFrom returns a follower that goes on after cursors; nil if the session has not come
// that far, so that the cursors must be of another session. Entries that have left the
// feeds become an [adminapi.Gap].
func (s *Session) FollowFrom(c Cursors) *Follower {
	if c.Timeline > s.timeline.last() || c.Live > s.live.last() || c.Stream > s.pushed.last() {
		return nil
	}
	return &Follower{session: s, cursors: c}
}

func orderOfLine(l *TimelineLine) uint64 { return l.order }
func orderOfLive(l *LiveLine) uint64     { return l.order }
func orderOfRow(r *HistoryRow) uint64    { return r.order }

// newestOrders returns the orders of the last entries of a feed.
func newestOrders[T any](f *feed[T], last int, orderOf func(*T) uint64) []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.items[max(len(f.items)-last, 0):]
	orders := make([]uint64, len(items))
	for i := range items {
		orders[i] = orderOf(&items[i])
	}
	return orders
}

// cursorAt is the number of a feed's last entry up to an order.
func cursorAt[T any](f *feed[T], upTo uint64, orderOf func(*T) uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, _ := slices.BinarySearchFunc(
		f.items,
		upTo+1,
		func(item T, n uint64) int { return cmp.Compare(orderOf(&item), n) },
	)
	return f.first + uint64(i) - 1
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
		Live:     firstLive - f.cursors.Live - 1,
		Stream:   firstRow - f.cursors.Stream - 1,
	}
	f.cursors = Cursors{firstLine - 1, firstLive - 1, firstRow - 1}
	list = slices.Concat(lines, live, rows)
	list = slices.DeleteFunc(list, func(e Entry) bool { return e.order > known })
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.order, b.order) })
	if gap != (adminapi.Gap{}) {
		list = slices.Insert(list, 0, Entry{Value: gap})
	}
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
