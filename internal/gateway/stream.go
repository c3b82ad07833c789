package gateway

import (
	"fmt"
	"slices"
	"strings"

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

// stream holds the newest events and the filter for new ones. Guarded by Session.mu.
type stream struct {
	rows     []HistoryRow // oldest first
	filter   filter
	spelling string // as the provider writes its name; "" if that is the normal name
}

// checkStream checks whether a provider may use a stream, or add it. The error is
// INVALID_JSON with the field's name, or PAYLOAD_TOO_LARGE over the limit of streams.
// Call with Session.mu held.
func (s *Session) checkStream(field string, key streamKey, spelling string) *protocol.Error {
	if err := s.checkSpelling(field, key, spelling); err != nil {
		return err
	}
	if s.streams[key] != nil || s.countStreams(key.provider) < protocol.MaxStreams {
		return nil
	}
	return &protocol.Error{Code: protocol.CodePayloadTooLarge, SessionID: s.id,
		Message: fmt.Sprintf("stream %q would be more than the %d that a provider may have",
			key.stream, protocol.MaxStreams)}
}

// checkSpelling refuses a second spelling of one stream: two names that the provider
// takes for two streams would share one. Call with Session.mu held.
func (s *Session) checkSpelling(field string, key streamKey, spelling string) *protocol.Error {
	st := s.streams[key]
	if st != nil && st.spelling != "" && spelling != key.stream && spelling != st.spelling {
		return &protocol.Error{Code: protocol.CodeInvalidJSON, SessionID: s.id,
			Message: fmt.Sprintf("%s: %q is stream %q, as %q is already; spell it like that, or choose another",
				field, spelling, key.stream, st.spelling)}
	}
	return nil
}

// countStreams counts a provider's streams. Call with Session.mu held.
func (s *Session) countStreams(provider string) int {
	if k := s.keepers[provider]; k != nil {
		return len(k.streams)
	}
	return 0
}

// ensureStream finds or adds a stream. Call with Session.mu held.
func (s *Session) ensureStream(key streamKey, spelling string) *stream {
	st := s.streams[key]
	if st == nil {
		st = &stream{}
		s.streams[key] = st
		k := s.keepers[key.provider]
		if k == nil {
			k = &keeper{}
			s.keepers[key.provider] = k
		}
		k.streams = append(k.streams, st)
	}
	if spelling != key.stream {
		st.spelling = spelling
	}
	return st
}

// streamNames lists a provider's streams by name.
func (s *Session) streamNames(provider string) []streamKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []streamKey
	for key := range s.streams {
		if key.provider == provider {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b streamKey) int { return strings.Compare(a.stream, b.stream) })
	return keys
}

// keeper is what the streams of one provider's name keep. Guarded by Session.mu.
type keeper struct {
	streams []*stream
	bytes   int // size of their rows
}

// store appends a row to its stream and returns its number. Call with Session.mu held.
func (s *Session) store(key streamKey, spelling string, row HistoryRow) uint64 {
	st := s.ensureStream(key, spelling)
	k := s.keepers[key.provider]
	row.Seq = s.feed.addRow(row)
	if len(st.rows) == protocol.StreamRetention {
		s.countRow(k, -rowSize(&st.rows[0]))
		copy(st.rows, st.rows[1:])
		st.rows[len(st.rows)-1] = row
	} else {
		st.rows = append(st.rows, row)
	}
	s.countRow(k, rowSize(&row))
	for k.bytes > protocol.MaxStreamBytes {
		s.dropOldestRow(k)
	}
	if s.keptBytes > protocol.MaxSessionBytes {
		s.makeRoom()
	}
	return row.Seq
}

// countRow adds the size of a row of k, or takes it away. Call with Session.mu held.
func (s *Session) countRow(k *keeper, size int) {
	k.bytes += size
	s.keptBytes += size
}

// largestKeeper returns who keeps most. Call with Session.mu held.
func (s *Session) largestKeeper() *keeper {
	largest := &keeper{}
	for _, k := range s.keepers {
		if k.bytes > largest.bytes {
			largest = k
		}
	}
	return largest
}

// makeRoom drops the oldest rows of those who keep most, a little more than must go, and of one up to the half at once:
// a look for the largest of thousands at each row would hold the session up. Call with Session.mu held.
func (s *Session) makeRoom() {
	const enough = protocol.MaxSessionBytes - 1<<20
	for s.keptBytes > enough {
		k := s.largestKeeper()
		for half := k.bytes / 2; s.keptBytes > enough && k.bytes > half; {
			s.dropOldestRow(k)
		}
	}
}

// dropOldestRow drops the oldest row of k, of whichever stream. Call with Session.mu held.
func (s *Session) dropOldestRow(k *keeper) {
	var oldest *stream
	for _, st := range k.streams {
		if len(st.rows) > 0 && (oldest == nil || st.rows[0].Seq < oldest.rows[0].Seq) {
			oldest = st
		}
	}
	s.countRow(k, -rowSize(&oldest.rows[0]))
	oldest.rows = slices.Delete(oldest.rows, 0, 1)
	if len(oldest.rows) <= cap(oldest.rows)/2 { // nothing counts the room behind them
		oldest.rows = slices.Clone(oldest.rows)
	}
}
