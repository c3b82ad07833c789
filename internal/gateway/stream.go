package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

// streamKey names a stream: it belongs to the provider's name, so instances
// share it.
type streamKey struct{ stream, provider string }

func (k streamKey) String() string { return k.stream + "@" + k.provider }

// parseStream reads stream or stream@provider.
func parseStream(s, own string) streamKey {
	if name, provider, ok := strings.Cut(s, "@"); ok {
		return streamKey{name, provider}
	}
	return streamKey{s, own}
}

// stream keeps the newest events, oldest first, and the filter that new ones go
// through. Guarded by Session.mu.
type stream struct {
	rows   []HistoryRow
	filter filter
}

// filter gives events an outcome: the first rule that matches.
type filter []filterRule

type filterRule struct {
	match   *pattern
	outcome protocol.Level
}

// newFilter compiles a filter; the error names the rule.
func newFilter(m *protocol.FilterSet) (filter, *protocol.Error) {
	f := make(filter, len(m.Rules))
	for i, r := range m.Rules {
		p, err := compilePattern(r.Match)
		if err != nil {
			return nil, faultf(protocol.CodeInvalidJSON, fmt.Sprintf("filter.set.rules[%d].match: %v", i, err))
		}
		f[i] = filterRule{p, r.Outcome}
	}
	return f, nil
}

// outcome is the level that an event gets; without a match it keeps its own.
func (f filter) outcome(event string, own protocol.Level, unsured func()) protocol.Level {
	text := subject{text: event}
	for _, r := range f {
		switch r.match.match(&text) {
		case yes:
			return r.outcome
		case unsure:
			unsured()
		}
	}
	return own
}

// filterOf is the filter of a stream; nil for none.
func (s *Session) filterOf(key streamKey) filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[key]; st != nil {
		return st.filter
	}
	return nil
}

// roomForStream reports whether a provider may have one more stream.
func (s *Session) roomForStream(key streamKey) *protocol.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room(key)
}

// room needs Session.mu held.
func (s *Session) room(key streamKey) *protocol.Error {
	if s.streams[key] != nil || s.streamsOf(key.provider) < protocol.MaxStreams {
		return nil
	}
	return &protocol.Error{Code: protocol.CodePayloadTooLarge, SessionID: s.id,
		Message: fmt.Sprintf("stream %q would be more than the %d that a provider may have", key.stream, protocol.MaxStreams)}
}

// streamsOf counts a provider's streams. Call with Session.mu held.
func (s *Session) streamsOf(provider string) int {
	n := 0
	for key := range s.streams {
		if key.provider == provider {
			n++
		}
	}
	return n
}

func (s *Session) setFilter(key streamKey, f filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f) > 0 || s.streams[key] != nil { // removing one makes no stream
		s.streamOf(key).filter = f
	}
}

// streamOf finds or makes a stream. Call with Session.mu held.
func (s *Session) streamOf(key streamKey) *stream {
	st := s.streams[key]
	if st == nil {
		st = &stream{}
		s.streams[key] = st
	}
	return st
}

// streamNames lists a provider's streams, by name.
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

// rowCost is what an event takes beside its text, in bytes, roughly.
const rowCost = 200

func rowSize(r *HistoryRow) int { return rowCost + len(r.Event) + len(r.Prompt) + len(r.Metadata) }

// evict drops a provider's oldest events, whichever of its streams they are in,
// until what is left may stay. Call with Session.mu held.
func (s *Session) evict(provider string) {
	for s.kept[provider] > protocol.MaxStreamBytes {
		var oldest *stream
		for key, st := range s.streams {
			if key.provider == provider && len(st.rows) > 0 && (oldest == nil || st.rows[0].Seq < oldest.rows[0].Seq) {
				oldest = st
			}
		}
		s.kept[provider] -= rowSize(&oldest.rows[0])
		oldest.rows = slices.Delete(oldest.rows, 0, 1)
	}
}

// maxHistory bounds the text of one stream.history: events may be as long as a
// message, and a hundred of them more than a connection takes.
const maxHistory = 4 << 20

// entries are the newest events of a stream, newest first, as far as there is
// room for their text.
func (s *Session) entries(key streamKey, last int, room *int) []protocol.StreamEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []protocol.StreamEntry{}
	st := s.streams[key]
	if st == nil {
		return list
	}
	for _, row := range slices.Backward(st.rows) {
		if *room -= len(row.Event) + len(row.Prompt) + len(row.Metadata); *room < 0 {
			break
		}
		list = append(list, protocol.StreamEntry{TS: row.TS.Format(time.RFC3339Nano), Event: row.Event, Level: row.Level,
			Metadata: protocol.Raw(row.Metadata), Prompt: row.Prompt})
		if len(list) == last {
			break
		}
	}
	return list
}
