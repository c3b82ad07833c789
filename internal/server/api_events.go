package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// eventOf returns the name and the data of the event that shows an entry of the feed.
func eventOf(h gateway.Entry) (name string, data any) {
	switch what := h.Value.(type) {
	case gateway.LiveLine:
		return adminapi.EventLive, what.View()
	case gateway.HistoryRow:
		return adminapi.EventStream, what
	case adminapi.Gap:
		return adminapi.EventGap, what
	}
	return adminapi.EventTimeline, h.Value
}

// maxEventsLast bounds how many events a stream begins with. No session buffers more.
const maxEventsLast = 100_000

// resumable are the sessions whose stream of events ended for a reader within the last minute.
// A reader that lost its connection gets the rest when it connects again, even if the session
// has ended in between.
type resumable struct {
	mu       sync.Mutex         // guards the fields below
	sessions []*gateway.Session // oldest first
}

const (
	resumableTime = time.Minute
	maxResumable  = 16
)

// add remembers a session for a minute.
func (r *resumable) add(s *gateway.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.sessions, s) {
		return
	}
	r.sessions = append(r.sessions, s)
	r.sessions = slices.Delete(r.sessions, 0, max(len(r.sessions)-maxResumable, 0))
	time.AfterFunc(resumableTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sessions = slices.DeleteFunc(r.sessions, func(other *gateway.Session) bool {
			return other == s
		})
	})
}

// find returns the session that has this id and sent the event, or nil.
func (r *resumable) find(id, eventID string) *gateway.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if _, ok := parsePlace(eventID, birthOf(s)); ok && s.ID() == id {
			return s
		}
	}
	return nil
}

// birthOf is part of each event's id. It differs between sessions that have the same id one after
// the other.
func birthOf(s *gateway.Session) string {
	return strconv.FormatInt(s.View().CreatedAt.UnixMicro(), 36)
}

// sessionEvents answers GET /sessions/{id}/events.
func (a *api) sessionEvents(w http.ResponseWriter, r *http.Request) error {
	if s := a.resumable.find(r.PathValue("id"), lastEventID(r)); s != nil {
		return a.writeEvents(w, r, s)
	}
	return a.sessionStream(a.writeEvents)(w, r)
}

// writeEvents writes the events of a session until it ends. It begins after the reader's last
// event, or with as many of the last events as a new reader asks for.
func (a *api) writeEvents(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := readParams(r, "last")
	if err != nil {
		return err
	}
	last := 0
	if q.Has("last") {
		if last, err = readLast(q, 0); err != nil {
			return err
		}
	}
	birth := birthOf(s)
	f, isUnknown := follow(s, lastEventID(r), last)
	e := newSSE(w, r)
	defer e.clearDeadline()
	defer a.resumable.add(s)
	if isUnknown {
		e.add(adminapi.EventGap, placeID(birth, f.Place()), adminapi.Gap{})
	}
	for e.err == nil {
		var list []gateway.Entry
		err := e.waitWithKeepAlive(r.Context(), a.server.recordActivity,
			func(ctx context.Context) (err error) {
				list, err = f.Next(ctx)
				return err
			})
		if errors.Is(err, gateway.ErrSessionEnded) {
			// Its id is not a place to resume at: no event comes after the end of a session.
			e.add(adminapi.EventEnded, placeID(birth, f.Place())+".end", adminapi.Nothing{})
			e.send()
			return nil
		}
		if err != nil {
			return nil
		}
		for _, h := range list {
			name, data := eventOf(h)
			e.add(name, placeID(birth, h.Place), data)
		}
		e.send()
	}
	return nil
}

// follow returns a follower from the place of a reader's last event, else of the last
// things that happened. Where the event's id is of another session with this session's id,
// isUnknown is true, and the follower begins with all that is buffered.
func follow(s *gateway.Session, lastEvent string, last int) (f *gateway.Follower, isUnknown bool) {
	if lastEvent == "" {
		return s.Follow(min(last, maxEventsLast)), false
	}
	if at, ok := parsePlace(lastEvent, birthOf(s)); ok {
		if f := s.FollowFrom(at); f != nil {
			return f, false
		}
	}
	return s.Follow(maxEventsLast), true
}

// lastEventID is the id of the last event that a reader has, "" if it begins.
func lastEventID(r *http.Request) string { return r.Header.Get("Last-Event-ID") }

// placeID writes a place as an event's id. It has the birth of the session, since another
// session may have the same id later.
func placeID(birth string, at gateway.Place) string {
	return fmt.Sprintf("%s.%d.%d.%d.%d.%d", birth, at.Timeline, at.Live, at.Stream, at.Things,
		at.Number)
}

// parsePlace reads an id that placeID wrote; ok is false for an event of another session.
func parsePlace(id, birth string) (at gateway.Place, ok bool) {
	parts := strings.SplitN(id, ".", 7)
	if len(parts) != 6 || parts[0] != birth {
		return at, false
	}
	for i, n := range []*uint64{&at.Timeline, &at.Live, &at.Stream, &at.Things, &at.Number} {
		var err error
		if *n, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return gateway.Place{}, false
		}
	}
	return at, true
}

// earlierEvents answers GET /sessions/{id}/earlier.
func (a *api) earlierEvents(r *http.Request, s *gateway.Session) (any, error) {
	q, err := readParams(r, "before", "last")
	if err != nil {
		return nil, err
	}
	last, err := readLast(q, 1)
	if err != nil {
		return nil, err
	}
	birth := birthOf(s)
	at, ok := parsePlace(q.Get("before"), birth)
	if !ok {
		return nil, fieldError("before",
			"must be the id of an event of this session, not %q", q.Get("before"))
	}
	list, hasMore := s.Earlier(at.Number, min(last, maxEventsLast))
	answer := adminapi.Earlier{Events: []adminapi.SessionEvent{}, More: hasMore}
	for _, e := range list {
		name, what := eventOf(e)
		data, err := json.Marshal(what)
		if err != nil {
			return nil, err
		}
		answer.Events = append(answer.Events,
			adminapi.SessionEvent{ID: placeID(birth, e.Place), Event: name, Data: data})
	}
	return answer, nil
}
