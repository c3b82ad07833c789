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

// apiLines writes one JSON object a line, each sent at once, until the one who
// reads them is gone.
type apiLines struct {
	w   http.ResponseWriter
	out *http.ResponseController
	err error
}

func newAPILines(w http.ResponseWriter, r *http.Request) *apiLines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	l := &apiLines{w: w, out: http.NewResponseController(w)}
	l.flush() // the reader learns that there will be lines
	if r.Method == http.MethodHead {
		l.err = http.ErrBodyNotAllowed
	}
	return l
}

func (l *apiLines) write(v any) {
	if l.err == nil {
		l.err = apiEncode(l.w, v)
	}
	l.flush()
}

func (l *apiLines) flush() {
	if l.err == nil {
		l.err = l.out.Flush()
	}
}

// apiFollow writes what next returns for a cursor, as often as wait says that
// there is more, until wait or the reader ends it.
func apiFollow[T any](l *apiLines, cursor uint64, next func(uint64) ([]T, uint64), wait func(uint64) error) error {
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

func (a *api) timeline(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := apiParams(r, "follow", "events", "last", "since")
	if err != nil {
		return err
	}
	follow, err := apiFlag(q, "follow")
	if err != nil {
		return err
	}
	events, err := apiFlag(q, "events")
	if err != nil {
		return err
	}
	last := math.MaxInt
	if q.Has("last") {
		if last, err = apiLast(q, 0); err != nil {
			return err
		}
	}
	since, err := apiSince(q)
	if err != nil {
		return err
	}
	wait := func(wait func(context.Context, uint64) error) func(uint64) error {
		return func(after uint64) error {
			if !follow {
				return gateway.ErrSessionEnded
			}
			return wait(r.Context(), after)
		}
	}
	if events {
		if err := s.CheckRuntimeEvents(); err != nil {
			return err
		}
		next := newest(s.RuntimeEvents, last, since, func(e adminapi.RuntimeEvent) time.Time { return e.TS })
		_ = apiFollow(newAPILines(w, r), 0, next, wait(s.WaitRuntimeEvents))
		return nil
	}
	next := newest(s.Timeline, last, since, func(l gateway.TimelineLine) time.Time { return l.TS })
	_ = apiFollow(newAPILines(w, r), 0, next, wait(s.WaitTimeline))
	return nil
}

// newest makes a next of [apiFollow] that leaves out what is older than since, and
// all but the last ones of what there is when it is first called.
func newest[T any](next func(uint64) ([]T, uint64), last int, since time.Time, at func(T) time.Time) func(uint64) ([]T, uint64) {
	return func(after uint64) ([]T, uint64) {
		items, cursor := next(after)
		if !since.IsZero() {
			items = slices.DeleteFunc(slices.Clone(items), func(item T) bool { return at(item).Before(since) })
		}
		if len(items) > last {
			items = items[len(items)-last:]
		}
		last = math.MaxInt
		return items, cursor
	}
}

func apiSince(q url.Values) (time.Time, error) {
	text := q.Get("since")
	if text == "" {
		return time.Time{}, nil
	}
	since, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return since, apiFault("since", "%q must be a time like 2026-01-02T15:04:05Z", text)
	}
	return since, nil
}

func (a *api) live(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := apiParams(r); err != nil {
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
	_ = apiFollow(newAPILines(w, r), cursor, next, func(after uint64) error { return s.WaitLive(r.Context(), after) })
	return nil
}

func (a *api) history(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := apiParams(r, "stream", "last", "since", "follow")
	if err != nil {
		return err
	}
	follow, err := apiFlag(q, "follow")
	if err != nil {
		return err
	}
	least := 1
	if follow {
		least = 0
	}
	last, err := apiLast(q, least)
	if err != nil {
		return err
	}
	since, err := apiSince(q)
	if err != nil {
		return err
	}
	streams := q["stream"]
	for i, name := range streams {
		stream, provider, owned := protocol.SplitStream(name)
		if !protocol.ValidName(stream) || owned && !protocol.ValidName(provider) {
			return apiFault("stream", "%q must be STREAM or STREAM@PROVIDER", name)
		}
		if streams[i] = protocol.NormalName(stream); owned {
			streams[i] += "@" + protocol.NormalName(provider)
		}
	}
	if !follow {
		return apiAnswer(w, http.StatusOK, apiList(s.History(streams, last, since)))
	}
	// The cursor is from before: what is stored meanwhile comes twice to hand
	// and is dropped once.
	cursor := s.HistoryCursor()
	var rows []gateway.HistoryRow
	if last > 0 {
		rows = slices.DeleteFunc(s.History(streams, last, since), func(h gateway.HistoryRow) bool { return h.Seq > cursor })
		slices.Reverse(rows)
	}
	l := newAPILines(w, r)
	for _, row := range rows {
		l.write(row)
	}
	_ = apiFollow(l, cursor, func(after uint64) ([]gateway.HistoryRow, uint64) {
		newest := s.HistoryCursor()
		return slices.DeleteFunc(s.HistoryAfter(after, streams), func(h gateway.HistoryRow) bool { return h.Seq > newest }), newest
	}, func(after uint64) error { return s.WaitHistory(r.Context(), after) })
	return nil
}
