package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// streamKey names a stream, with both names as [protocol.NormalName] writes them. A
// stream belongs to the provider's name, so all instances share it, and the owner of
// the name owns it.
type streamKey struct{ stream, provider string }

func (k streamKey) String() string { return k.stream + "@" + k.provider }

// parseStream reads stream or stream@provider. spelling is the stream's name as it is
// written; own is the provider of a name without one.
func parseStream(s, own string) (key streamKey, spelling string) {
	spelling, provider, hasOwner := protocol.SplitStream(s)
	if !hasOwner {
		provider = own
	}
	return streamKey{protocol.NormalName(spelling), protocol.NormalName(provider)}, spelling
}

// streams are the streams of a session: the newest events of each, and the filters for new
// ones. How much is kept is bounded for a stream, for a provider and for the session.
type streams struct {
	session string // its id, for errors
	feed    *feed  // numbers the events

	// mu guards all that follows. Below it comes feed.mu.
	mu      sync.Mutex
	byKey   map[streamKey]*stream
	byOwner map[string]*ownedStreams // by the provider's name
	bytes   int                      // of all owners
	dropped []adminapi.DroppedEvent  // by filters; oldest first
}

// stream holds the newest events and the filter for new ones.
type stream struct {
	rows     []HistoryRow // oldest first
	filter   filter
	spelling string // as the provider writes its name; "" if that is the normal name
}

// ownedStreams are the streams of one provider's name.
type ownedStreams struct {
	list  []*stream
	bytes int // of their rows
}

func newStreams(session string, f *feed) *streams {
	return &streams{session: session, feed: f, byKey: map[streamKey]*stream{},
		byOwner: map[string]*ownedStreams{}}
}

// check checks whether a provider may use a stream, or add it. The error is INVALID_JSON with
// the field's name, or PAYLOAD_TOO_LARGE over the limit of streams. Call with mu held.
func (ss *streams) check(field string, key streamKey, spelling string) *protocol.Error {
	if err := ss.checkSpelling(field, key, spelling); err != nil {
		return err
	}
	if o := ss.byOwner[key.provider]; ss.byKey[key] != nil || o == nil ||
		len(o.list) < protocol.MaxStreams {
		return nil
	}
	return &protocol.Error{Code: protocol.CodePayloadTooLarge, SessionID: ss.session,
		Message: fmt.Sprintf("stream %q would be more than the %d that a provider may have",
			key.stream, protocol.MaxStreams)}
}

// checkSpelling refuses a second spelling of one stream: two names that the provider
// takes for two streams would share one. Call with mu held.
func (ss *streams) checkSpelling(field string, key streamKey, spelling string) *protocol.Error {
	st := ss.byKey[key]
	if st != nil && st.spelling != "" && spelling != key.stream && spelling != st.spelling {
		return &protocol.Error{Code: protocol.CodeInvalidJSON, SessionID: ss.session,
			Message: fmt.Sprintf(
				"%s: %q is stream %q, as %q is already; spell it like that, or choose another",
				field, spelling, key.stream, st.spelling)}
	}
	return nil
}

// ensure finds or adds a stream. Call with mu held.
func (ss *streams) ensure(key streamKey, spelling string) *stream {
	st := ss.byKey[key]
	if st == nil {
		st = &stream{}
		ss.byKey[key] = st
		o := ss.byOwner[key.provider]
		if o == nil {
			o = &ownedStreams{}
			ss.byOwner[key.provider] = o
		}
		o.list = append(o.list, st)
	}
	if spelling != key.stream {
		st.spelling = spelling
	}
	return st
}

// owners lists the names of the providers that have streams.
func (ss *streams) owners() []string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Keys(ss.byOwner))
}

// isOwner reports whether a provider's name has streams.
func (ss *streams) isOwner(provider string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byOwner[provider] != nil
}

// names lists a provider's streams by name.
func (ss *streams) names(provider string) []streamKey {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var keys []streamKey
	for key := range ss.byKey {
		if key.provider == provider {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b streamKey) int { return strings.Compare(a.stream, b.stream) })
	return keys
}

// has reports whether a stream has the event of an id.
func (ss *streams) has(key streamKey, id string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := ss.byKey[key]
	return st != nil && slices.ContainsFunc(st.rows, func(r HistoryRow) bool { return r.ID == id })
}

// store appends a row to its stream, which it adds if there is room, and returns the row's
// number. The error is that of check; field names the stream in it.
func (ss *streams) store(
	field string, key streamKey, spelling string, row HistoryRow,
) (uint64, *protocol.Error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if err := ss.check(field, key, spelling); err != nil {
		return 0, err
	}
	st := ss.ensure(key, spelling)
	o := ss.byOwner[key.provider]
	row.Seq = ss.feed.addRow(row)
	if len(st.rows) == protocol.StreamRetention {
		ss.count(o, -rowSize(&st.rows[0]))
		copy(st.rows, st.rows[1:])
		st.rows[len(st.rows)-1] = row
	} else {
		st.rows = append(st.rows, row)
	}
	ss.count(o, rowSize(&row))
	for o.bytes > protocol.MaxStreamBytes {
		ss.dropOldest(o)
	}
	if ss.bytes > protocol.MaxSessionBytes {
		ss.makeRoom()
	}
	return row.Seq, nil
}

// count adds the size of a row of o, or takes it away. Call with mu held.
func (ss *streams) count(o *ownedStreams, size int) {
	o.bytes += size
	ss.bytes += size
}

// makeRoom drops the oldest rows of the largest owners, a little more than must go, and of one
// up to the half at once: a look for the largest of thousands at each row would hold the
// session up. Call with mu held.
func (ss *streams) makeRoom() {
	const enough = protocol.MaxSessionBytes - 1<<20
	for ss.bytes > enough {
		largest := &ownedStreams{}
		for _, o := range ss.byOwner {
			if o.bytes > largest.bytes {
				largest = o
			}
		}
		for half := largest.bytes / 2; ss.bytes > enough && largest.bytes > half; {
			ss.dropOldest(largest)
		}
	}
}

// dropOldest drops the oldest row of o, of whichever stream. Call with mu held.
func (ss *streams) dropOldest(o *ownedStreams) {
	var oldest *stream
	for _, st := range o.list {
		if len(st.rows) > 0 && (oldest == nil || st.rows[0].Seq < oldest.rows[0].Seq) {
			oldest = st
		}
	}
	ss.count(o, -rowSize(&oldest.rows[0]))
	oldest.rows = slices.Delete(oldest.rows, 0, 1)
	if len(oldest.rows) <= cap(oldest.rows)/2 { // free room behind the rows is not counted
		oldest.rows = slices.Clone(oldest.rows)
	}
}
