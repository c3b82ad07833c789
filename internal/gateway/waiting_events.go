package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// What is kept for the next session at most, while there is none: the newest.
const (
	maxWaitingEvents = 100
	maxWaitingBytes  = 1 << 20
)

// waitingEvents are events that came while there was no session. Guarded by Gateway.mu.
type waitingEvents struct {
	events  []waitingEvent
	bytes   int
	dropped int                      // older ones that made room
	limits  map[string]*rate.Limiter // by the id of who pushes
}

type waitingEvent struct {
	spelling string // of the stream
	row      HistoryRow
}

// StoreEvent stores an event for the next session, while there is none; else it is pushed
// to the foreground one. Level must be keep, without a prompt: nobody is there to be
// shown or asked anything. The error is that of [Session.Push], or INVALID_SESSION.
func (g *Gateway) StoreEvent(from string, m *protocol.Push) (Receipt, error) {
	if err := protocol.Validate(m); err != nil {
		return Receipt{}, err
	}
	if !protocol.ValidName(from) {
		return Receipt{}, invalidPusher(from)
	}
	from = protocol.NormalName(from)
	g.mu.Lock()
	if s := g.foregroundSession(); s != nil {
		g.mu.Unlock()
		r, err := s.receivePush(pushSource{id: from, name: from, person: true}, m, func(Receipt) {})
		if err != nil {
			return r, err
		}
		return r, nil
	}
	defer g.mu.Unlock()
	r, err := g.addWaitingEvent(pushSource{id: from, name: from}, m)
	if err != nil {
		return r, err
	}
	return r, nil
}

// addWaitingEvent stores an event for the next session. Call with Gateway.mu held, while there
// is no session. The error is INVALID_SESSION for a push that needs a session,
// INVALID_STATE or RATE_LIMITED.
func (g *Gateway) addWaitingEvent(who pushSource, m *protocol.Push) (Receipt, *protocol.Error) {
	if m.Level != protocol.LevelKeep || m.Prompt != "" {
		return Receipt{}, errorf(protocol.CodeInvalidSession, "there is no session; only an event of level keep, without a prompt, waits for the next")
	}
	if g.draining {
		return Receipt{}, errorf(protocol.CodeInvalidState, "the gateway is shutting down")
	}
	limit := g.waitingEvents.limits[who.id]
	if limit == nil {
		if g.waitingEvents.limits == nil {
			g.waitingEvents.limits = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(protocol.PushRate, protocol.PushRate)
		g.waitingEvents.limits[who.id] = limit
	}
	if !limit.Allow() {
		g.stats.DroppedPush.Add(1)
		return Receipt{}, tooManyPushes("")
	}
	e := waitingEvent{spelling: cmp.Or(m.Stream, who.name)}
	e.row = HistoryRow{StreamRow: adminapi.StreamRow{Stream: protocol.NormalName(e.spelling), Provider: who.name, TS: time.Now().UTC(), Event: m.Event, Level: string(m.Level)}}
	if m.Metadata.Kind() == '{' {
		e.row.Metadata = json.RawMessage(slices.Clone(m.Metadata))
	}
	k := &g.waitingEvents
	k.events = append(k.events, e)
	k.bytes += rowSize(&e.row)
	for len(k.events) > 1 && (len(k.events) > maxWaitingEvents || k.bytes > maxWaitingBytes) {
		k.bytes -= rowSize(&k.events[0].row)
		k.events = slices.Delete(k.events, 0, 1)
		k.dropped++
	}
	return Receipt{Fate: adminapi.FateStored, Reason: fmt.Sprintf("there is no session: it is kept for the next one, as one of %d", len(k.events))}, nil
}

// storeWaitingEvents gives a new session what was kept for it.
func (s *Session) storeWaitingEvents(k waitingEvents) {
	if len(k.events) == 0 {
		return
	}
	s.mu.Lock()
	lost := k.dropped
	for _, e := range k.events {
		key := streamKey{e.row.Stream, e.row.Provider}
		if s.checkStream("stream", key, e.spelling) != nil {
			lost++
			continue
		}
		s.store(key, e.spelling, e.row)
	}
	s.mu.Unlock()
	text := "1 event that came while there was no session is in its streams"
	if n := len(k.events) - (lost - k.dropped); n != 1 {
		text = fmt.Sprintf("%d events that came while there was no session are in its streams", n)
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d more are lost, which did not fit", lost)
	}
	s.note(LogInfo, sourceGateway, text)
}
