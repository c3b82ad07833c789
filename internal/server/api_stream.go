package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

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

func newAPILines(w http.ResponseWriter) *apiLines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	l := &apiLines{w: w, out: http.NewResponseController(w)}
	l.flush() // the reader learns that there will be lines
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
			if l.write(item); l.err != nil {
				return l.err
			}
		}
		if err := wait(cursor); err != nil {
			return err
		}
	}
}

func (a *api) timeline(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := apiParams(r, "follow")
	if err != nil {
		return err
	}
	follow, err := apiFlag(q, "follow")
	if err != nil {
		return err
	}
	_ = apiFollow(newAPILines(w), 0, s.Timeline, func(after uint64) error {
		if !follow {
			return gateway.ErrSessionEnded
		}
		return s.WaitTimeline(r.Context(), after)
	})
	return nil
}

func (a *api) live(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := apiParams(r); err != nil {
		return err
	}
	cursor := s.LiveCursor()
	_ = apiFollow(newAPILines(w), cursor, s.Live, func(after uint64) error { return s.WaitLive(r.Context(), after) })
	return nil
}

// apiTurnEnd is the last line of a query.
type apiTurnEnd struct {
	Done  bool          `json:"done"`
	Error *apiTurnError `json:"error,omitempty"`
}

type apiTurnError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// apiSessionError is the code of a turn that failed in the session itself.
const apiSessionError = "SESSION_ERROR"

func (a *api) query(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Prompt string `json:"prompt"`
		Mode   string `json:"mode"`
		Detach bool   `json:"detach"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(body.Prompt) == "":
		return apiFault("prompt", "is required and must not be empty")
	case body.Mode == "":
		body.Mode = "enqueue"
	case body.Mode != "enqueue" && body.Mode != "immediate":
		return apiFault("mode", "must be enqueue or immediate, not %q", body.Mode)
	}
	cursor, err := s.Prompt(r.Context(), gateway.Prompt{Text: body.Prompt, Mode: body.Mode, Source: gateway.SourceUser})
	if err != nil {
		return err
	}
	if body.Detach {
		return apiAnswer(w, http.StatusAccepted, struct{}{})
	}
	l := newAPILines(w)
	if end := a.followTurn(r.Context(), l, s, cursor); end != nil {
		l.write(end)
	}
	return nil
}

// followTurn writes the live lines of a turn and returns how it ended, nil when
// the reader is gone.
func (a *api) followTurn(ctx context.Context, l *apiLines, s *gateway.Session, cursor uint64) *apiTurnEnd {
	end := &apiTurnEnd{Done: true}
	for {
		var lines []gateway.LiveLine
		lines, cursor = s.Live(cursor)
		for _, line := range lines {
			if l.write(line); l.err != nil {
				return nil
			}
			if line.Event.SessionError != "" {
				end.Error = &apiTurnError{apiSessionError, line.Event.SessionError}
			}
			if line.Event.Callback == gateway.OnIdle {
				return end
			}
		}
		switch err := s.WaitLive(ctx, cursor); {
		case errors.Is(err, gateway.ErrSessionEnded):
			if end.Error == nil {
				end.Error = &apiTurnError{string(protocol.CodeInvalidSession), "the session ended before the turn did"}
			}
			return end
		case err != nil:
			return nil
		}
	}
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
	var since time.Time
	if text := q.Get("since"); text != "" {
		if since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return apiFault("since", "%q must be a time like 2026-01-02T15:04:05Z", text)
		}
	}
	streams := q["stream"]
	for _, name := range streams {
		stream, provider, owned := strings.Cut(name, "@")
		if !protocol.ValidName(stream) || owned && !protocol.ValidName(provider) {
			return apiFault("stream", "%q must be STREAM or STREAM@PROVIDER", name)
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
	l := newAPILines(w)
	for _, row := range rows {
		l.write(row)
	}
	_ = apiFollow(l, cursor, func(after uint64) ([]gateway.HistoryRow, uint64) {
		newest := s.HistoryCursor()
		return slices.DeleteFunc(s.HistoryAfter(after, streams), func(h gateway.HistoryRow) bool { return h.Seq > newest }), newest
	}, func(after uint64) error { return s.WaitHistory(r.Context(), after) })
	return nil
}
