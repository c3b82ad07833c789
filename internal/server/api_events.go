package server

import (
	"context"
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

// eventOf returns the name and the data of the event that shows what happened.
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

// maxEventsLast bounds what a stream of events begins with; no more is kept.
const maxEventsLast = 100_000

// cutOff are the sessions of which a reader's stream ended within the last minute.
// One that was cut off gets the rest when it comes back, although the session may
// have ended meanwhile.
type cutOff struct {
	mu       sync.Mutex
	sessions []*gateway.Session // oldest first
}

const (
	cutOffKept = time.Minute
	maxCutOff  = 16
)

// add remembers a session.
func (c *cutOff) add(s *gateway.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.sessions, s) {
		return
	}
	c.sessions = append(c.sessions, s)
	c.sessions = slices.Delete(c.sessions, 0, max(len(c.sessions)-maxCutOff, 0))
	time.AfterFunc(cutOffKept, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sessions = slices.DeleteFunc(c.sessions, func(known *gateway.Session) bool { return known == s })
	})
}

// find finds the session with an id in which the place of an event is, nil if there
// is none.
func (c *cutOff) find(id, eventID string) *gateway.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if _, here := parsePlace(eventID, birthOf(s)); here && s.ID() == id {
			return s
		}
	}
	return nil
}

// birthOf tells a session from others that have its id before or later.
func birthOf(s *gateway.Session) string {
	return strconv.FormatInt(s.View().CreatedAt.UnixMicro(), 36)
}

// followed answers GET /sessions/{id}/events.
func (a *api) followed(w http.ResponseWriter, r *http.Request) error {
	if s := a.cutOff.find(r.PathValue("id"), lastEventID(r)); s != nil {
		return a.events(w, r, s)
	}
	return a.session(a.events)(w, r)
}

// events follows what happens in a session.
func (a *api) events(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	q, err := apiParams(r, "last")
	if err != nil {
		return err
	}
	last := 0
	if q.Has("last") {
		if last, err = apiLast(q, 0); err != nil {
			return err
		}
	}
	birth := birthOf(s)
	var f *gateway.Follower
	had := lastEventID(r)
	if had != "" {
		if at, ok := parsePlace(had, birth); ok {
			f = s.FollowFrom(at)
		}
	}
	unknown := had != "" && f == nil // of another session of this id: all that is kept is news
	switch {
	case unknown:
		f = s.Follow(maxEventsLast)
	case f == nil:
		f = s.Follow(min(last, maxEventsLast))
	}
	e := newSSE(w, r)
	defer e.clearDeadline()
	defer a.cutOff.add(s)
	if unknown {
		e.add(adminapi.EventGap, placeID(birth, f.Cursors()), adminapi.Gap{})
	}
	for e.err == nil {
		var list []gateway.Entry
		err := e.waitWithKeepAlive(r.Context(), a.server.recordActivity, func(ctx context.Context) (err error) {
			list, err = f.Next(ctx)
			return err
		})
		if errors.Is(err, gateway.ErrSessionEnded) {
			// Behind its end a session is at no place.
			e.add(adminapi.EventEnded, placeID(birth, f.Cursors())+".end", adminapi.Nothing{})
			e.send()
			return nil
		}
		if err != nil {
			return nil
		}
		for _, h := range list {
			name, data := eventOf(h)
			e.add(name, placeID(birth, h.Cursors), data)
		}
		e.send()
	}
	return nil
}

// lastEventID is the id of the last event that a reader has had, "" if it begins.
func lastEventID(r *http.Request) string { return r.Header.Get("Last-Event-ID") }

// placeID writes a place as an event's id: with the birth of the session, since
// another one may have its name later.
func placeID(birth string, at gateway.Cursors) string {
	return fmt.Sprintf("%s.%d.%d.%d", birth, at.Timeline, at.Live, at.Stream)
}

// parsePlace reads what placeID wrote of the same session.
func parsePlace(id, birth string) (at gateway.Cursors, ok bool) {
	parts := strings.SplitN(id, ".", 5)
	if len(parts) != 4 || parts[0] != birth {
		return at, false
	}
	for i, n := range []*uint64{&at.Timeline, &at.Live, &at.Stream} {
		var err error
		if *n, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return gateway.Cursors{}, false
		}
	}
	return at, true
}
