package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

// Drop, as the outcome of a [FilterRule], stores nothing.
const Drop Level = "drop"

// FilterRule gives the events whose text matches an outcome: a [Level] in place
// of their own, or [Drop].
type FilterRule struct {
	Match   string // a JavaScript regular expression, at most 1 KiB
	Outcome Level
}

// SetFilter has the gateway filter what this provider pushes into a stream. The
// first rule that matches decides; an event that none matches keeps its level.
// No rules take the filter away (v2, "filter.set").
func (p *Provider) SetFilter(ctx context.Context, stream string, rules ...FilterRule) (revision uint64, err error) {
	rules = slices.Clone(rules)
	return p.change(ctx, &change{what: "setting the filter of " + stream,
		apply: func(o *offer) error {
			if o.filters == nil {
				o.filters = map[string][]FilterRule{}
			}
			o.filters[stream] = rules
			return nil
		},
		message: func(_ *offer, session, id string) protocol.Message {
			return filterSet(stream, rules, session, id)
		},
	})
}

func filterSet(stream string, rules []FilterRule, session, id string) *protocol.FilterSet {
	m := &protocol.FilterSet{RequestID: id, SessionID: session, Stream: stream,
		Rules: make([]protocol.FilterRule, len(rules))}
	for i, r := range rules {
		m.Rules[i] = protocol.FilterRule{Match: r.Match, Outcome: protocol.Level(r.Outcome)}
	}
	return m
}

// Query says what to read of the streams that a session keeps.
type Query struct {
	// Streams by name: one of this provider's own, or, for an internal
	// provider, "stream@provider". Nil: all of its own.
	Streams []string
	// Last is how many events of each stream: the newest. Zero: 20; 100 at most.
	Last int
	// Session is the id of the session. Empty: the bound one, which a
	// provider of [AllSessions] has to name.
	Session string
}

// Entry is an event that a stream keeps.
type Entry struct {
	Stream   string
	Provider string // whose stream it is
	Time     time.Time
	Text     string
	Level    Level
	Metadata json.RawMessage // of an object; nil for none
	Prompt   string
}

// Query reads streams, newest event first. A stream keeps its newest 200 events
// for as long as its session lives; one that nothing was pushed into is empty
// (v2, "Stream access control").
func (p *Provider) Query(ctx context.Context, q Query) ([]Entry, error) {
	entries, err := p.query(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("querying: %w", err)
	}
	return entries, nil
}

func (p *Provider) query(ctx context.Context, q Query) ([]Entry, error) {
	m := &protocol.StreamQuery{SessionID: q.Session, Streams: q.Streams}
	if q.Last != 0 {
		m.Last = &q.Last
	}
	c, err := p.current()
	if err != nil {
		return nil, err
	}
	// An error does not say which query it is about, so there is one at a time.
	select {
	case c.querying <- struct{}{}:
		defer func() { <-c.querying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrNotConnected
	}
	r := &request{typ: protocol.TypeStreamQuery, due: map[string]bool{q.Session: true}}
	m.QueryID, _ = c.begin("query-", r)
	defer c.forget(m.QueryID)
	if err := protocol.Validate(m); err != nil {
		return nil, fromGateway(err)
	}
	if err := c.write(ctx, m); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, errCutOff
	}
	if r.err != nil {
		return nil, r.err
	}
	return entriesOf(r.history)
}

func entriesOf(m *protocol.StreamHistory) ([]Entry, error) {
	var entries []Entry
	for key, list := range m.Streams {
		stream, provider, _ := strings.Cut(key, "@")
		for _, e := range list {
			at, err := time.Parse(time.RFC3339Nano, e.TS)
			if err != nil {
				return nil, fmt.Errorf("the gateway's answer: %q is no time", e.TS)
			}
			entries = append(entries, Entry{Stream: stream, Provider: provider, Time: at, Text: e.Event,
				Level: Level(e.Level), Metadata: json.RawMessage(e.Metadata), Prompt: e.Prompt})
		}
	}
	// Each list is in order; what has the same time stays so.
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if order := b.Time.Compare(a.Time); order != 0 || a.Stream == b.Stream {
			return order
		}
		return strings.Compare(a.Stream, b.Stream)
	})
	return entries, nil
}
