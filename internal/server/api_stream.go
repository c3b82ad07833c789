package server

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A session's logs over the admin API, as one JSON object a line.

// lineWriter writes one JSON object a line and sends each at once. err is set once the reader
// is gone; later writes do nothing.
type lineWriter struct {
	w   http.ResponseWriter
	out *http.ResponseController
	err error
}

func newLineWriter(w http.ResponseWriter, r *http.Request) *lineWriter {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	l := &lineWriter{w: w, out: http.NewResponseController(w)}
	l.flush() // so that the reader has the status before the first line
	if r.Method == http.MethodHead {
		l.err = http.ErrBodyNotAllowed
	}
	return l
}

func (l *lineWriter) write(v any) {
	if l.err == nil {
		l.err = encodeJSON(l.w, v)
	}
	l.flush()
}

func (l *lineWriter) flush() {
	if l.err == nil {
		l.err = l.out.Flush()
	}
}

// writeNew writes the entries that next returns after a cursor, and again each time that
// wait returns nil. It ends with wait's error, or when the reader is gone.
func writeNew[T any](
	l *lineWriter, cursor uint64, next func(uint64) ([]T, uint64), wait func(uint64) error,
) error {
	for {
		var items []T
		items, cursor = next(cursor)
		for _, item := range items {
			l.write(item)
		}
		if l.err != nil {
			return l.err
		}
		if err := wait(cursor); err != nil {
			return err
		}
	}
}

// logParams are the parameters of a request for a log.
type logParams struct {
	follow, events bool
	last           int       // how many entries that there are already; math.MaxInt: all
	since          time.Time // no entry that is older; the zero time: all
}

// readLogParams reads those of the parameters that the request takes.
func readLogParams(r *http.Request, known ...string) (p logParams, err error) {
	q, err := readParams(r, known...)
	if err != nil {
		return p, err
	}
	if p.follow, err = readFlag(q, "follow"); err != nil {
		return p, err
	}
	if p.events, err = readFlag(q, "events"); err != nil {
		return p, err
	}
	p.last = math.MaxInt
	if q.Has("last") {
		if p.last, err = readLast(q, 0); err != nil {
			return p, err
		}
	}
	p.since, err = readTime(q, "since")
	return p, err
}

// timeline answers with a session's timeline, or with the events of its runtime.
func (a *api) timeline(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	p, err := readLogParams(r, "follow", "events", "last", "since")
	if err != nil {
		return err
	}
	if p.events {
		if err := s.CheckRuntimeEvents(); err != nil {
			return err
		}
		writeLog(w, r, p, s.RuntimeEvents, s.WaitRuntimeEvents,
			func(e adminapi.RuntimeEvent) time.Time { return e.TS })
		return nil
	}
	writeLog(w, r, p, s.Timeline, s.WaitTimeline, func(l adminapi.TimelineLine) time.Time {
		return l.TS
	})
	return nil
}

// writeLog writes the entries that the parameters choose, and the coming ones where the
// request follows. next returns the entries after a number and the number to ask with next,
// wait waits for one, at returns an entry's time.
func writeLog[T any](w http.ResponseWriter, r *http.Request, p logParams,
	next func(uint64) ([]T, uint64),
	wait func(context.Context, uint64) error, at func(T) time.Time) {
	out := newLineWriter(w, r)
	last := p.last
	chosen := func(after uint64) ([]T, uint64) {
		items, cursor := next(after)
		if !p.since.IsZero() {
			items = slices.DeleteFunc(slices.Clone(items), func(item T) bool {
				return at(item).Before(p.since)
			})
		}
		items = items[max(len(items)-last, 0):]
		last = math.MaxInt // of the coming ones all
		return items, cursor
	}
	_ = writeNew(out, 0, chosen, func(after uint64) error {
		if !p.follow {
			return gateway.ErrSessionEnded
		}
		return wait(r.Context(), after)
	})
}

// readTime reads a time that a request may have.
func readTime(q url.Values, name string) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fieldError(name, "%q must be a time like 2026-01-02T15:04:05Z", text)
	}
	return t, nil
}

func (a *api) live(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := readParams(r); err != nil {
		return err
	}
	cursor := s.LiveCursor()
	next := func(after uint64) ([]adminapi.Callback, uint64) {
		lines, cursor := s.Live(after)
		views := make([]adminapi.Callback, len(lines))
		for i, l := range lines {
			views[i] = l.View()
		}
		return views, cursor
	}
	_ = writeNew(newLineWriter(w, r), cursor, next, func(after uint64) error {
		return s.WaitLive(r.Context(), after)
	})
	return nil
}

func (a *api) history(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := readParams(r, "stream", "last", "since", "follow")
	if err != nil {
		return err
	}
	follow, err := readFlag(q, "follow")
	if err != nil {
		return err
	}
	least := 1
	if follow {
		least = 0
	}
	last, err := readLast(q, least)
	if err != nil {
		return err
	}
	since, err := readTime(q, "since")
	if err != nil {
		return err
	}
	streams, err := readStreams(q["stream"])
	if err != nil {
		return err
	}
	if !follow {
		return writeJSON(w, http.StatusOK, orEmpty(s.History(streams, last, since)))
	}
	// The cursor is read first: a row that is stored meanwhile is in both lists, and is
	// dropped from the first.
	cursor := s.HistoryCursor()
	var rows []gateway.HistoryRow
	if last > 0 {
		rows = rowsUpTo(cursor, s.History(streams, last, since))
		slices.Reverse(rows)
	}
	l := newLineWriter(w, r)
	for _, row := range rows {
		l.write(row)
	}
	next := func(after uint64) ([]gateway.HistoryRow, uint64) {
		newest := s.HistoryCursor()
		return rowsUpTo(newest, s.HistoryAfter(after, streams)), newest
	}
	_ = writeNew(l, cursor, next, func(after uint64) error {
		return s.WaitHistory(r.Context(), after)
	})
	return nil
}

// rowsUpTo drops the rows that are newer than a number.
func rowsUpTo(newest uint64, rows []gateway.HistoryRow) []gateway.HistoryRow {
	return slices.DeleteFunc(rows, func(h gateway.HistoryRow) bool { return h.Seq > newest })
}

// readStreams checks names of streams, STREAM or STREAM@PROVIDER, and returns their normal
// forms.
func readStreams(names []string) ([]string, error) {
	for i, name := range names {
		stream, provider, isOwned := protocol.SplitStream(name)
		if !protocol.ValidName(stream) || isOwned && !protocol.ValidName(provider) {
			return nil, fieldError("stream", "%q must be STREAM or STREAM@PROVIDER", name)
		}
		if names[i] = protocol.NormalName(stream); isOwned {
			names[i] += "@" + protocol.NormalName(provider)
		}
	}
	return names, nil
}
