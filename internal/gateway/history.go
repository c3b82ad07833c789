package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// HistoryRow is one event of a stream. Seq counts the events that the session stored, from
// 1, over all its streams; it is no part of the JSON, where docs/admin-api.md has
// StreamRow.
type HistoryRow struct {
	adminapi.StreamRow

	Seq uint64 `json:"-"`
}

// newHistoryRow makes the row of an event that comes now.
func newHistoryRow(key streamKey, m *protocol.Push, level protocol.Level) HistoryRow {
	row := HistoryRow{StreamRow: adminapi.StreamRow{Stream: key.stream, Provider: key.provider,
		TS: time.Now().UTC(), Event: m.Event, Level: string(level), Prompt: m.Prompt}}
	if m.Metadata.Kind() == '{' {
		row.Metadata = json.RawMessage(slices.Clone(m.Metadata))
	}
	return row
}

// rowCost is about how many bytes a row takes beside its texts.
const rowCost = 200

func rowSize(r *HistoryRow) int { return rowCost + historyTextSize(r) }

func historyTextSize(r *HistoryRow) int { return len(r.Event) + len(r.Prompt) + len(r.Metadata) }

// maxHistoryBytes bounds the text of one stream.history message: a hundred events of
// the greatest length would be more than a connection takes.
const maxHistoryBytes = 4 << 20

// entries returns the newest events of a stream for a provider, newest first: at most
// last of them, and as many as fit into budget, a number of bytes that it reduces.
func (ss *streams) entries(key streamKey, last int, budget *int) []protocol.StreamEntry {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := []protocol.StreamEntry{}
	st := ss.byKey[key]
	if st == nil {
		return list
	}
	for _, row := range slices.Backward(st.rows) {
		if *budget -= historyTextSize(&row); *budget < 0 {
			break
		}
		list = append(list, protocol.StreamEntry{TS: row.TS.Format(time.RFC3339Nano),
			Event: row.Event,
			Level: protocol.Level(row.Level), Metadata: protocol.Raw(row.Metadata),
			Prompt: row.Prompt})
		if len(list) == last {
			break
		}
	}
	return list
}

// History returns the newest events of streams, newest first. A stream is named "stream", of any
// provider, or "stream@provider"; an empty list means all. It returns at most last events of each
// stream (0: all that are stored), and no event older than since.
func (s *Session) History(streams []string, last int, since time.Time) []HistoryRow {
	s.streams.mu.Lock()
	var rows []HistoryRow
	for key, st := range s.streams.byKey {
		if !selectsStream(streams, key.stream, key.provider) {
			continue
		}
		n := 0
		for _, row := range slices.Backward(st.rows) {
			if (last > 0 && n == last) || row.TS.Before(since) {
				break
			}
			rows = append(rows, row)
			n++
		}
	}
	s.streams.mu.Unlock()
	slices.SortFunc(rows, func(a, b HistoryRow) int { return int(b.Seq) - int(a.Seq) })
	return rows
}

// HistoryAfter returns the events that were stored after a number, oldest first, for
// followers; at most the newest 5,000, of 8 MiB. Streams are named as in
// [Session.History]. Events that left the feed before are missing without a sign.
func (s *Session) HistoryAfter(after uint64, streams []string) []HistoryRow {
	rows, _ := listAfter[HistoryRow](s.feed, kindStream, after)
	return slices.DeleteFunc(rows, func(r HistoryRow) bool {
		return !selectsStream(streams, r.Stream, r.Provider)
	})
}

// HistoryCursor is the number of the newest stored event of all streams, for
// [Session.HistoryAfter]. It is 0 before the first event.
func (s *Session) HistoryCursor() uint64 { return s.feed.last().Stream }

// WaitHistory waits until an event is stored after a number, in any stream. The error is
// [ErrSessionEnded] if the session ends first, or that of ctx.
func (s *Session) WaitHistory(ctx context.Context, after uint64) error {
	return s.feed.wait(ctx, kindStream, after)
}

// selectsStream reports whether a list of names as in [Session.History] selects a
// stream.
func selectsStream(streams []string, stream, provider string) bool {
	if len(streams) == 0 {
		return true
	}
	return slices.ContainsFunc(streams, func(s string) bool {
		name, owner, hasOwner := strings.Cut(s, "@")
		return name == stream && (!hasOwner || owner == provider)
	})
}
