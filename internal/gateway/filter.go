package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// filter is a list of rules that choose the level of a stream's events. The first rule
// that matches decides.
type filter []filterRule

type filterRule struct {
	pattern *match.Pattern
	text    string // of pattern
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
		f[i] = filterRule{p, r.Match, r.Outcome}
	}
	return f, nil
}

// outcome is the level that an event gets, and the index of the rule that decided; without a match
// it keeps its own, and the index is -1. An undecided match is no match, and undecided is called
// for it.
func (f filter) outcome(
	event string, own protocol.Level, undecided func(),
) (level protocol.Level, rule int) {
	text := match.NewText(event)
	for i, r := range f {
		switch r.pattern.Match(text) {
		case match.Yes:
			return r.outcome, i
		case match.Undecided:
			undecided()
		}
	}
	return own, -1
}

// How many dropped events a session remembers, and how much of the text of each, for people who
// look for an event that did not come.
const (
	maxDropped     = 100
	maxDroppedText = 2 << 10
)

// noteDropped remembers an event that a rule of its stream's filter drops.
func (ss *streams) noteDropped(e *pushedEvent) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.dropped = appendNewest(ss.dropped, adminapi.DroppedEvent{
		Stream: e.key.stream, Provider: e.key.provider, TS: time.Now().UTC(),
		Event: strings.Clone(cut(e.text, maxDroppedText)), Rule: e.rule, Match: e.pattern,
	}, maxDropped)
}

// Filters lists the filters of the session's streams by name, and the events that they dropped
// lately, newest first.
func (s *Session) Filters() adminapi.Filters {
	ss := s.streams
	ss.mu.Lock()
	defer ss.mu.Unlock()
	view := adminapi.Filters{Filters: []adminapi.Filter{},
		Dropped: append([]adminapi.DroppedEvent{}, ss.dropped...)}
	slices.Reverse(view.Dropped)
	for key, st := range ss.byKey {
		if len(st.filter) == 0 {
			continue
		}
		f := adminapi.Filter{Stream: key.stream, Provider: key.provider}
		for _, r := range st.filter {
			f.Rules = append(f.Rules,
				adminapi.FilterRule{Match: r.text, Outcome: string(r.outcome)})
		}
		view.Filters = append(view.Filters, f)
	}
	slices.SortFunc(view.Filters, func(a, b adminapi.Filter) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Provider, b.Provider))
	})
	return view
}

// filterOf returns the filter of a stream, or nil.
func (ss *streams) filterOf(key streamKey) filter {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if st := ss.byKey[key]; st != nil {
		return st.filter
	}
	return nil
}

// checkFilter checks whether a provider may set a filter of a stream. An empty filter
// adds no stream, so the limit of streams does not count for it. The error names the
// field.
func (ss *streams) checkFilter(
	field string, key streamKey, spelling string, isEmpty bool,
) *protocol.Error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if isEmpty {
		return ss.checkSpelling(field, key, spelling)
	}
	return ss.check(field, key, spelling)
}

// setFilter sets the filter of a stream. Removing one adds no stream.
func (ss *streams) setFilter(key streamKey, spelling string, f filter) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(f) > 0 || ss.byKey[key] != nil {
		ss.ensure(key, spelling).filter = f
	}
}
