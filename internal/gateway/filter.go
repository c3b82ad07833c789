package gateway

import (
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

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

// setFilter sets the filter of a stream. Removing one adds no stream.
func (s *Session) setFilter(key streamKey, spelling string, f filter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(f) > 0 || s.streams[key] != nil {
		s.ensureStream(key, spelling).filter = f
	}
}
