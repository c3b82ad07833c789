package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Events that are pushed while no session runs wait here for the next one.

// Limits of the waiting events. Over them the oldest are dropped.
const (
	maxWaitingEvents = 100
	maxWaitingBytes  = 1 << 20
)

// waitingEvents are the events of level keep that came while there was no session.
// The next session gets them. Guarded by Gateway.mu.
type waitingEvents struct {
	events  []waitingEvent
	bytes   int
	dropped int                      // over the limits
	limits  map[string]*rate.Limiter // by pushSource.id
}

type waitingEvent struct {
	spelling string // of the stream
	row      HistoryRow
}

// StoreEvent stores an event from the admin side for the next session. If there is a session
// already, it pushes the event to the foreground session instead. Its level must be keep and it
// must have no prompt, since there is no session to show it; else the error is INVALID_SESSION.
// Other errors are those of [Session.Push], and INVALID_STATE while the gateway shuts down.
func (g *Gateway) StoreEvent(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	from, err := checkAdminPush(from, m)
	if err != nil {
		return Receipt{}, err
	}
	source := pushSource{id: from, name: from, isPerson: true}
	g.mu.Lock()
	var r Receipt
	var fault *protocol.Error
	if s := g.foregroundSession(); s != nil {
		g.mu.Unlock()
		if g.keeps(source, m.Stream) {
			return g.keepNow(ctx, source, m, []string{s.id})
		}
		r, fault = s.receivePush(source, m, func(Receipt) {})
	} else {
		r, fault = g.addWaitingEvent(pushSource{id: from, name: from}, m)
		g.mu.Unlock()
	}
	if fault != nil {
		return r, fault
	}
	return r, nil
}

// addWaitingEvent stores an event for the next session. The error is INVALID_SESSION
// for a push that needs a session, INVALID_STATE while the gateway shuts down, or
// RATE_LIMITED. Call with Gateway.mu held, while there is no session.
func (g *Gateway) addWaitingEvent(source pushSource, m *protocol.Push) (Receipt, *protocol.Error) {
	if m.Level != protocol.LevelKeep || m.Prompt != "" {
		return Receipt{}, errorf(protocol.CodeInvalidSession,
			"there is no session; only an event of level keep, without a prompt, waits for "+
				"the next")
	}
	if g.isDraining {
		return Receipt{}, errorf(protocol.CodeInvalidState, "the gateway is shutting down")
	}
	w := &g.waitingEvents
	limit := w.limits[source.id]
	if limit == nil {
		// New names must not fill the memory: no more senders than events are kept.
		if w.limits == nil || len(w.limits) >= maxWaitingEvents {
			w.limits = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(protocol.PushRate, protocol.PushRate)
		w.limits[source.id] = limit
	}
	if !limit.Allow() {
		g.stats.DroppedPushes.Add(1)
		return Receipt{}, tooManyPushes("")
	}
	e := waitingEvent{spelling: cmp.Or(m.Stream, source.name)}
	e.row = newHistoryRow(streamKey{protocol.NormalName(e.spelling), source.name}, m, m.Level)
	w.events = append(w.events, e)
	w.bytes += rowSize(&e.row)
	for len(w.events) > 1 && (len(w.events) > maxWaitingEvents || w.bytes > maxWaitingBytes) {
		w.bytes -= rowSize(&w.events[0].row)
		w.events = slices.Delete(w.events, 0, 1)
		w.dropped++
	}
	return Receipt{Fate: adminapi.FateStored,
		Reason: fmt.Sprintf("there is no session: it is kept for the next one, as one of %d",
			len(w.events))}, nil
}

// storeWaitingEvents stores the waiting events in the streams of a new session, as
// far as the limit of streams allows.
func (s *Session) storeWaitingEvents(w waitingEvents) {
	if len(w.events) == 0 {
		return
	}
	stored := 0
	for _, e := range w.events {
		key := streamKey{e.row.Stream, e.row.Provider}
		if seq, err := s.streams.store("stream", key, e.spelling, e.row); err == nil {
			e.row.Seq = seq
			s.recordWaiting(&e.row)
			stored++
		}
	}
	text := fmt.Sprintf("%s that came while there was no session %s in its streams",
		visible.Count(stored, "event"), visible.IsAre(stored))
	if lost := w.dropped + len(w.events) - stored; lost > 0 {
		text += fmt.Sprintf("; %d more %s lost, which did not fit", lost, visible.IsAre(lost))
	}
	s.note(adminapi.LogInfo, sourceGateway, text)
}
