package gateway

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
)

// ErrSessionEnded is the error of waiting for something that a session does, after the session has
// ended. Followers get it only once they have read all entries.
var ErrSessionEnded = errors.New("the session has ended")

// feed holds the events of a session in one order: the lines of the timeline, the callbacks of the
// host, and the events that streams store. It keeps the newest entries. Each kind has its own
// limits, so that a talkative model pushes out no line of the timeline. A reader holds its [Place],
// so a slow reader doesn't block the writer: it has a gap where entries were dropped.
type feed struct {
	count counter       // of all entries ever added; readers wait for it
	ended chan struct{} // closed when no entry will come

	// mu is a leaf but for Responses.mu and the counter's. It guards all that follows.
	mu        sync.Mutex
	entries   []Entry // oldest first; one that was dropped has no Value until compact removes it
	holes     int     // entries without a Value
	end       Place   // of the newest entry
	kinds     [kindCount]retained
	unfolded  int        // callbacks that were added since compact looked at all
	responses *Responses // gets the callbacks too; nil until somebody reads it
}

// kind is a kind of entry of a feed.
type kind int

const (
	kindTimeline kind = iota
	kindLive
	kindStream
	kindCount
)

// retained counts the entries that a feed keeps of a kind, and holds their limits.
type retained struct {
	maxItems, maxBytes int
	items, bytes       int
	oldest             int   // no entry of the kind has a lower index
	dropped            Place // of the newest entry that was dropped, or zero
}

func (r *retained) isOver() bool {
	return r.items > r.maxItems || r.bytes > r.maxBytes && r.items > 1
}

// Limits of the entries that a feed keeps: their number, and the bytes of their texts.
const (
	maxTimelineLines = 20_000
	maxLiveLines     = 20_000
	maxPushedRows    = 5000
	maxTextBytes     = 8 << 20 // of each kind
)

func newFeed() *feed {
	return &feed{ended: make(chan struct{}), kinds: [kindCount]retained{
		kindTimeline: {maxItems: maxTimelineLines, maxBytes: maxTextBytes},
		kindLive:     {maxItems: maxLiveLines, maxBytes: maxTextBytes},
		kindStream:   {maxItems: maxPushedRows, maxBytes: maxTextBytes},
	}}
}

// Place is how far a reader of a session's entries has come: to the entry of a number. The
// counts tell it later how many entries it has missed.
type Place struct {
	Number uint64 // of the last entry that it has read; 0 at first
	// How many timeline lines, callbacks and stored events there were up to that entry, and
	// how many things had begun in the callbacks: see isPart.
	Timeline, Live, Stream, Things uint64
}

// count returns how many entries of a kind there were up to the place.
func (p *Place) count(k kind) uint64 {
	return [...]uint64{kindTimeline: p.Timeline, kindLive: p.Live, kindStream: p.Stream}[k]
}

// Entry is one entry of a session's feed: a timeline line, a callback, a stored event, or the
// number of entries that a [Follower] missed.
type Entry struct {
	// Value is an [adminapi.TimelineLine], a [LiveLine] or a [HistoryRow], or an
	// [adminapi.Gap] before them.
	Value any
	// Place is that of a reader that has read the entry.
	Place Place
}

// kind is the kind of an entry, and -1 for one that was dropped.
func (e *Entry) kind() kind {
	switch e.Value.(type) {
	case adminapi.TimelineLine:
		return kindTimeline
	case LiveLine:
		return kindLive
	case HistoryRow:
		return kindStream
	}
	return -1
}

// size is about how many bytes an entry takes.
func (e *Entry) size() int {
	switch v := e.Value.(type) {
	case adminapi.TimelineLine:
		return 100 + len(v.Message) + len(v.ToolCallID)
	case LiveLine:
		return liveSize(&v)
	case HistoryRow:
		return rowSize(&v)
	}
	return 0
}

// isThing reports whether a person would see the entry as a thing of its own. The parts of
// a message or a call are no things.
func (e *Entry) isThing() bool {
	l, isLive := e.Value.(LiveLine)
	return e.Value != nil && !(isLive && l.Event.isPart())
}

// addLine adds a line of the timeline. It gives the line its number, and a time if it lacks one.
func (f *feed) addLine(l adminapi.TimelineLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end.Timeline++
	l.Seq = f.end.Timeline
	if l.TS.IsZero() {
		l.TS = time.Now().UTC()
	}
	f.add(Entry{Value: l})
}

// addCallback adds a callback to the feed, and to the response queue if there is one.
func (f *feed) addCallback(l LiveLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end.Live++
	if !l.Event.isPart() {
		f.end.Things++
	}
	l.Seq, l.TS = f.end.Live, time.Now().UTC()
	f.unfolded++
	f.add(Entry{Value: l})
	if f.responses != nil {
		f.responses.add(l.Event)
	}
}

// addRow adds an event of a stream and returns its number.
func (f *feed) addRow(r HistoryRow) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end.Stream++
	r.Seq = f.end.Stream
	f.add(Entry{Value: r})
	return r.Seq
}

// add adds an entry that end counts already, and drops the oldest entries of its kind beyond the
// kind's limits. Call with mu held.
func (f *feed) add(e Entry) {
	f.end.Number++
	e.Place = f.end
	f.entries = append(f.entries, e)
	k := e.kind()
	r := &f.kinds[k]
	r.items++
	r.bytes += e.size()
	// A feed with too many callbacks folds when a part of it is new, so that compact looks at
	// an entry few times.
	if k == kindLive && r.isOver() && f.unfolded >= len(f.entries)/16 ||
		f.holes > len(f.entries)/2 {
		f.compact()
	}
	for r.isOver() {
		f.dropOldest(k)
	}
	f.count.increment()
}

// dropOldest drops the oldest entry of a kind. Call with mu held.
func (f *feed) dropOldest(k kind) {
	r := &f.kinds[k]
	for f.entries[r.oldest].kind() != k {
		r.oldest++
	}
	e := &f.entries[r.oldest]
	r.items--
	r.bytes -= e.size()
	r.dropped = e.Place
	e.Value = nil
	f.holes++
}

// compact removes the entries that were dropped, and folds the callbacks that can be folded. Call
// with mu held.
func (f *feed) compact() {
	kept := slices.DeleteFunc(f.entries, func(e Entry) bool { return e.Value == nil })
	f.entries, f.holes, f.unfolded = kept[:0], 0, 0
	for k := range f.kinds {
		f.kinds[k].items, f.kinds[k].bytes, f.kinds[k].oldest = 0, 0, 0
	}
	for i := 0; i < len(kept); {
		e, n := foldDeltas(kept[i:])
		i += n
		r := &f.kinds[e.kind()]
		r.items++
		r.bytes += e.size()
		f.entries = append(f.entries, e)
	}
	clear(kept[len(f.entries):])
}

// foldDeltas makes one entry of the first one and the deltas of the same text right behind
// it, and returns of how many.
func foldDeltas(entries []Entry) (Entry, int) {
	first, _ := entries[0].Value.(LiveLine)
	n, size := 1, len(first.Event.Delta)
	for first.Event.isDelta() && n < len(entries) {
		l, _ := entries[n].Value.(LiveLine)
		size += len(l.Event.Delta)
		if l.Event.Callback != first.Event.Callback || l.Event.ID != first.Event.ID ||
			size > maxFolded {
			break
		}
		n++
	}
	if n == 1 {
		return entries[0], 1
	}
	last := entries[n-1]
	all := last.Value.(LiveLine)
	all.ends = nil
	var text strings.Builder
	for _, e := range entries[:n] {
		l := e.Value.(LiveLine)
		begin := uint32(text.Len())
		for _, end := range l.ends {
			all.ends = append(all.ends, begin+end)
		}
		text.WriteString(l.Event.Delta)
		if l.ends == nil {
			all.ends = append(all.ends, uint32(text.Len()))
		}
	}
	all.Event.Delta = text.String()
	return Entry{Value: all, Place: last.Place}, n
}

// after returns the entry without the deltas in it that a reader of so many callbacks has.
func (e Entry) after(live uint64) Entry {
	l, _ := e.Value.(LiveLine)
	first := l.Seq + 1 - uint64(len(l.ends))
	if live < first || live >= l.Seq {
		return e
	}
	n := live + 1 - first
	begin := l.ends[n-1]
	l.Event.Delta = l.Event.Delta[begin:]
	l.ends = slices.Clone(l.ends[n:])
	for i := range l.ends {
		l.ends[i] -= begin
	}
	e.Value = l
	return e
}

// index is where the entries from a number on begin. Call with mu held.
func (f *feed) index(number uint64) int {
	return sort.Search(len(f.entries), func(i int) bool {
		return f.entries[i].Place.Number >= number
	})
}

// listAfter returns the entries of a kind, which have the type T, after so many of them, and
// how many there were up to the last one.
func listAfter[T any](f *feed, k kind, after uint64) (list []T, end uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := sort.Search(len(f.entries), func(i int) bool {
		return f.entries[i].Place.count(k) > after
	})
	for _, e := range f.entries[i:] {
		if e.kind() == k {
			list = append(list, e.after(after).Value.(T))
		}
	}
	return list, f.end.count(k)
}

// last is the place of a reader that has read all entries.
func (f *feed) last() Place {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}

// wait waits until a kind has had more than after entries. The error is [ErrSessionEnded] if the
// session ends first, or that of ctx.
func (f *feed) wait(ctx context.Context, k kind, after uint64) error {
	for {
		end := f.last()
		if end.count(k) > after {
			return nil
		}
		if err := f.count.wait(ctx, end.Number, f.ended); err != nil {
			return err
		}
	}
}

// close ends the waits of readers: no entry will come.
func (f *feed) close() { close(f.ended) }
