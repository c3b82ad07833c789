package gateway

import (
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/match"
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

// filter is a list of rules that choose the level of a stream's events. The first rule
// that matches decides.
type filter []filterRule

type filterRule struct {
	pattern *match.Pattern
	outcome protocol.Level
}

// compileFilter compiles a filter. The error is INVALID_JSON and names the rule.
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

// outcome is the level that an event gets; without a match it keeps its own. An
// undecided match is no match, and undecided is called for it.
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

// filterOf returns the filter of a stream; nil if it has none.
func (s *Session) filterOf(key streamKey) filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[key]; st != nil {
		return st.filter
	}
	return nil
}

// checkFilter checks whether a provider may set a filter of a stream. An empty filter
// adds no stream, so the limit of streams does not count for it. The error names the
// field.
func (s *Session) checkFilter(field string, key streamKey, spelling string, isEmpty bool) *protocol.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isEmpty {
		return s.checkSpelling(field, key, spelling)
	}
	return s.checkStream(field, key, spelling)
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
	n := 0
	for key := range s.streams {
		if key.provider == provider {
			n++
		}
	}
	return n
}

// setFilter sets the filter of a stream. Removing one adds no stream.
func (s *Session) setFilter(key streamKey, spelling string, f filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f) > 0 || s.streams[key] != nil {
		s.ensureStream(key, spelling).filter = f
	}
}

// ensureStream finds or adds a stream. Call with Session.mu held.
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
