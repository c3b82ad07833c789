package providers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

// Drop is the outcome of a [FilterRule] that drops the event: the stream does not store it.
const Drop Level = "drop"

// FilterRule gives an outcome to the events whose text matches: a [Level] instead of their own, or
// [Drop].
type FilterRule struct {
	Match   string // a JavaScript regular expression, at most 1 KiB
	Outcome Level
}

// SetFilter makes the gateway filter the events that this provider pushes into a stream. The first
// rule that matches decides; an event that no rule matches keeps its level. At most 100 rules; no
// rules remove the filter (docs/protocol.md, "Filters").
func (p *Provider) SetFilter(
	ctx context.Context, stream string, rules ...FilterRule,
) (revision uint64, err error) {
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

// Query says which events to read from the streams of a session.
type Query struct {
	// Streams are names of streams: those of this provider or, for an internal provider,
	// "stream@provider". Nil: all streams of this provider.
	Streams []string
	// Last is how many of the newest events of each stream to read, at most 100. Zero: 20.
	Last int
	// Session is the id of the session. Empty: the bound one. A provider of [AllSessions] must set
	// it.
	Session string
}

// Entry is an event that a stream keeps.
type Entry struct {
	Stream   string
	Provider string // the provider that the stream belongs to
	Time     time.Time
	Text     string
	Level    Level
	Metadata json.RawMessage // JSON of an object; may be nil
	Prompt   string
}

// Query reads streams, the newest event first. A stream keeps its newest 200 events while its
// session lives; a stream without events is empty and no error. Streams of other providers need
// trust internal, else the [*Error] is UNAUTHORIZED (docs/protocol.md, "Queries").
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
	c, err := p.connected()
	if err != nil {
		return nil, err
	}
	// Errors do not name the query that they are about, so there is one query at a time.
	select {
	case c.querying <- struct{}{}:
		defer func() { <-c.querying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrNotConnected
	}
	r := &request{typ: protocol.TypeStreamQuery, due: map[string]bool{q.Session: true}}
	m.QueryID, _ = c.addRequest("query-", r)
	defer c.removeRequest(m.QueryID)
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
				return nil, fmt.Errorf("the gateway's answer: %q is not a time", e.TS)
			}
			entries = append(entries, Entry{Stream: stream, Provider: provider, Time: at,
				Text: e.Event, Level: Level(e.Level), Metadata: json.RawMessage(e.Metadata),
				Prompt: e.Prompt})
		}
	}
	// Each list is sorted; events of one stream with the same time keep their order.
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Stream, b.Stream))
	})
	return entries, nil
}
