package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// streamKey names a stream, both names as [protocol.NormalName] shows them: it
// belongs to the provider's name, so instances share it, and with that to whose
// the name is in the session.
type streamKey struct{ stream, provider string }

func (k streamKey) String() string { return k.stream + "@" + k.provider }

// parseStream reads stream or stream@provider; spelling is that of the stream.
func parseStream(s, own string) (key streamKey, spelling string) {
	spelling, provider, owned := protocol.SplitStream(s)
	if !owned {
		provider = own
	}
	return streamKey{protocol.NormalName(spelling), protocol.NormalName(provider)}, spelling
}

// stream keeps the newest events, oldest first, and the filter that new ones go
// through. Guarded by Session.mu.
type stream struct {
	rows     []HistoryRow
	filter   filter
	spelling string // one that is not the stream's name itself, "" for none
}

// filter gives events an outcome: the first rule that matches.
type filter []filterRule

type filterRule struct {
	pattern *match.Pattern
	outcome protocol.Level
}

// compileFilter compiles a filter; the error names the rule.
func compileFilter(m *protocol.FilterSet) (filter, *protocol.Error) {
	f := make(filter, len(m.Rules))
	for i, r := range m.Rules {
		p, err := match.Compile(r.Match)
		if err != nil {
			return nil, errorf(protocol.CodeInvalidJSON, "filter.set.rules[%d].match: %v", i, err)
		}
		f[i] = filterRule{p, r.Outcome}
	}
	return f, nil
}

// outcome is the level that an event gets; without a match it keeps its own. It
// calls undecided for each pattern whose match was undecided, which is no match.
func (f filter) outcome(event string, own protocol.Level, undecided func()) protocol.Level {
	text := match.NewText(event)
	for _, r := range f {
		switch r.pattern.Match(text) {
		case match.Yes:
			return r.outcome
		case match.Undecided:
			undecided()
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

// checkFilter reports whether a provider may set a filter, one that is not empty or
// another, of a stream that it spells like this. The error names the field.
func (s *Session) checkFilter(field string, key streamKey, spelling string, empty bool) *protocol.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if empty { // it makes no stream
		return s.checkSpelling(field, key, spelling)
	}
	return s.checkStream(field, key, spelling)
}

// checkStream reports whether a provider may have a stream: one more, or one that it
// spells like this. The error may name the field. Call with Session.mu held.
func (s *Session) checkStream(field string, key streamKey, spelling string) *protocol.Error {
	if err := s.checkSpelling(field, key, spelling); err != nil {
		return err
	}
	if s.streams[key] != nil || s.countStreams(key.provider) < protocol.MaxStreams {
		return nil
	}
	return &protocol.Error{Code: protocol.CodePayloadTooLarge, SessionID: s.id,
		Message: fmt.Sprintf("stream %q would be more than the %d that a provider may have", key.stream, protocol.MaxStreams)}
}

// checkSpelling refuses another spelling of a stream that is there. Call with
// Session.mu held.
func (s *Session) checkSpelling(field string, key streamKey, spelling string) *protocol.Error {
	st := s.streams[key]
	if st != nil && st.spelling != "" && spelling != key.stream && spelling != st.spelling {
		return &protocol.Error{Code: protocol.CodeInvalidJSON, SessionID: s.id,
			Message: fmt.Sprintf("%s: %q is stream %q, as %q is already; spell it like that, or choose another", field, spelling, key.stream, st.spelling)}
	}
	return nil
}

// countStreams counts a provider's streams. Call with Session.mu held.
func (s *Session) countStreams(provider string) int {
	n := 0
	for key := range s.streams {
		if key.provider == provider {
			n++
		}
	}
	return n
}

func (s *Session) setFilter(key streamKey, spelling string, f filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f) > 0 || s.streams[key] != nil { // removing one makes no stream
		s.ensureStream(key, spelling).filter = f
	}
}

// ensureStream finds or makes a stream. Call with Session.mu held.
func (s *Session) ensureStream(key streamKey, spelling string) *stream {
	st := s.streams[key]
	if st == nil {
		st = &stream{}
		s.streams[key] = st
	}
	if spelling != key.stream {
		st.spelling = spelling
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

// dropOldestRows drops a provider's oldest events, whichever of its streams they are in,
// until what is left may stay. Call with Session.mu held.
func (s *Session) dropOldestRows(provider string) {
	for s.streamBytes[provider] > protocol.MaxStreamBytes {
		var oldest *stream
		for key, st := range s.streams {
			if key.provider == provider && len(st.rows) > 0 && (oldest == nil || st.rows[0].Seq < oldest.rows[0].Seq) {
				oldest = st
			}
		}
		s.streamBytes[provider] -= rowSize(&oldest.rows[0])
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
		list = append(list, protocol.StreamEntry{TS: row.TS.Format(time.RFC3339Nano), Event: row.Event, Level: protocol.Level(row.Level),
			Metadata: protocol.Raw(row.Metadata), Prompt: row.Prompt})
		if len(list) == last {
			break
		}
	}
	return list
}
