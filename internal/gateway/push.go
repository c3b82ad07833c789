package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// pusher is what a session knows of one provider's pushes. Guarded by Session.mu.
type pusher struct {
	limit        *rate.Limiter
	queued       int // injects that wait
	name         string
	dropped      uint64 // refused for more than it may
	injectsInRow int    // injects in a row: without the user, and without a quiet time between them
	lastInject   time.Time
	isWarned     bool // that the row is too long
}

// isPaused reports whether the provider's injects are only shown.
func (p *pusher) isPaused() bool { return p.injectsInRow > protocol.MaxInjectCycles }

// recordInject notes that an inject came. One that comes after a quiet time begins a row
// anew: a job that has something to say each hour is no loop.
func (p *pusher) recordInject(quiet time.Duration) {
	now := time.Now()
	if now.Sub(p.lastInject) >= quiet {
		p.resetRow()
	}
	p.lastInject = now
}

func (p *pusher) resetRow() { p.injectsInRow, p.isWarned = 0, false }

// inject is a push that waits for its turn.
type inject struct {
	seq     uint64
	source  pushSource
	stream  string
	text    string // what the timeline shows
	isShown bool   // and did, when it was taken
	prompt  string // what the session gets
	trace   string // traceparent of the push
	report  func(Receipt)
}

// pushSource is where a push comes from.
type pushSource struct {
	id, name string
	person   bool // by the admin side: what it injects is the user's word
}

// push takes a provider's push.
func (c *Conn) push(m *protocol.Push) {
	g, p := c.g, c.provider
	g.mu.Lock()
	bindings, err := c.bindingsOf(m.SessionID, protocol.TypePush)
	var stored Receipt
	switch {
	case err != nil:
	case p.all && m.SessionID == "" && !m.Broadcast:
		err = errorf(protocol.CodeInvalidSession, "push.sessionId: is required of a provider that is bound to all sessions (or \"broadcast\": true)")
	case len(bindings) == 0 && len(g.sessions) > 0:
		err = errorf(protocol.CodeInvalidSession, "push.broadcast: this provider is bound to no session now")
	case len(bindings) == 0:
		if stored, err = g.addWaitingEvent(pushSource{id: p.id, name: p.name}, m); err != nil {
			err.Message = "push.broadcast: " + err.Message
		}
	}
	g.mu.Unlock()
	fail := func(e *protocol.Error) {
		e.ReplyTo, e.RequestID = protocol.TypePush, m.RequestID
		c.reportError(e)
	}
	if err != nil {
		fail(err)
		return
	}
	if len(bindings) == 0 {
		(&pushReceipts{conn: c, requestID: m.RequestID, session: protocol.AllSessions, stream: changedName(m.Stream)}).reportFirst(stored)
	}
	for _, b := range bindings { // a budget each: one over it does not hold the others up
		receipts := &pushReceipts{conn: c, requestID: m.RequestID, session: b.session.id, stream: changedName(m.Stream)}
		r, err := b.session.receivePush(pushSource{id: p.id, name: p.name}, m, receipts.reportLast)
		if err != nil {
			fail(err)
			continue
		}
		receipts.reportFirst(r)
	}
}

// pushReceipts tells a provider the fate of a push, if it asked with a requestId:
// what it is at once, and for a queued one what became of it.
type pushReceipts struct {
	conn      *Conn
	requestID string
	session   string
	stream    string // as it is known, where the push spelled it otherwise

	mu        sync.Mutex
	firstSent bool
	last      *Receipt // came before the first was told
}

func (r *pushReceipts) reportFirst(first Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firstSent = true
	r.send(first)
	if r.last != nil {
		r.send(*r.last)
	}
}

func (r *pushReceipts) reportLast(last Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.firstSent {
		r.last = &last
		return
	}
	r.send(last)
}

func (r *pushReceipts) send(receipt Receipt) {
	if r.requestID == "" {
		return
	}
	r.conn.peer.Send(&protocol.Ack{RequestID: r.requestID, SessionID: r.session, Seq: receipt.Seq, Fate: string(receipt.Fate), Reason: receipt.Reason, Stream: r.stream})
	r.conn.peer.Flush()
}

// Push takes an event from the admin side, shown as coming from a provider of
// the given name. The receipt tells what became of it by now. The error is
// RATE_LIMITED, PAYLOAD_TOO_LARGE, or INVALID_JSON naming the field.
func (s *Session) Push(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	return s.pushAs(ctx, from, m, false)
}

// PushAndWait is Push that waits for a queued event to be delivered, and for the
// turn that it started to end.
func (s *Session) PushAndWait(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	return s.pushAs(ctx, from, m, true)
}

func (s *Session) pushAs(ctx context.Context, from string, m *protocol.Push, wait bool) (Receipt, error) {
	if err := protocol.Validate(m); err != nil {
		return Receipt{}, err
	}
	if !protocol.ValidName(from) {
		return Receipt{}, invalidPusher(from)
	}
	from = protocol.NormalName(from)
	settled := make(chan Receipt, 1)
	idle := s.isIdle() // before it is busy with just this
	r, fault := s.receivePush(pushSource{id: from, name: from, person: true}, m, func(r Receipt) { settled <- r })
	if fault != nil {
		return r, fault
	}
	if r.Fate != adminapi.FateQueued {
		return r, nil
	}
	var patience <-chan time.Time
	if !wait {
		// An idle session takes it at once; a busy one may keep it long.
		var grace time.Duration
		if idle {
			grace = injectGrace
		}
		patience = time.After(grace)
	}
	select {
	case r = <-settled:
	case <-patience:
		return r, nil
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if !wait || r.Fate != adminapi.FateDelivered {
		return r, nil
	}
	return r, s.waitForTurnEnd(ctx, r.turn)
}

func invalidPusher(from string) *protocol.Error {
	return errorf(protocol.CodeInvalidJSON, "provider: %q must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit", from)
}

// injectGrace is how long a push to an idle session waits to learn that it was
// delivered, before it answers that it is queued.
const injectGrace = time.Second

// receivePush is the entry of every push into a session: it stores the event and
// begins its delivery. report gets the last receipt of a queued inject; nil if
// nobody waits for it.
func (s *Session) receivePush(source pushSource, m *protocol.Push, report func(Receipt)) (Receipt, *protocol.Error) {
	if s.g.tracer == nil {
		return s.acceptPush(source, m, report, "")
	}
	traceparent, end := s.tracePush(source, m)
	r, err := s.acceptPush(source, m, report, traceparent)
	end(r, err)
	return r, err
}

// acceptPush does what [Session.receivePush] says, within the span of traceparent.
func (s *Session) acceptPush(who pushSource, m *protocol.Push, settle func(Receipt), traceparent string) (Receipt, *protocol.Error) {
	g := s.g
	spelling := cmp.Or(m.Stream, who.name)
	key := streamKey{protocol.NormalName(spelling), who.name}
	text := m.Event
	if text == "" {
		text = m.Prompt
	}
	// A filter that is set while this event is in its patterns is for the next.
	level := s.filterOf(key).outcome(text, m.Level, func() { g.reportUndecided("filter", who.name) })
	injects := level == protocol.LevelInject || (m.Prompt != "" && level != protocol.OutcomeDrop)
	s.mu.Lock()
	if s.ctx.Err() != nil {
		// The worker has gone: nobody would settle it.
		s.mu.Unlock()
		return Receipt{}, noSession(s.id)
	}
	from := s.pushers[who.id]
	if from == nil {
		from = &pusher{limit: rate.NewLimiter(protocol.PushRate, protocol.PushRate), name: who.name}
		s.pushers[who.id] = from
	}
	switch {
	case !from.limit.Allow():
		from.dropped++
		s.mu.Unlock()
		g.stats.DroppedPush.Add(1)
		return Receipt{}, tooManyPushes(s.id)
	case level == protocol.OutcomeDrop:
		s.mu.Unlock()
		return Receipt{Fate: adminapi.FateDropped, Reason: "the stream's filter drops it"}, nil
	case injects && from.queued >= protocol.MaxQueuedInjects:
		from.dropped++
		s.mu.Unlock()
		g.stats.DroppedPush.Add(1)
		return Receipt{}, &protocol.Error{Code: protocol.CodeRateLimited, SessionID: s.id, Message: fmt.Sprintf("%d injects wait for the session to become idle already", protocol.MaxQueuedInjects)}
	}
	if err := s.checkStream("push.stream", key, spelling); err != nil {
		from.dropped++
		s.mu.Unlock()
		g.stats.DroppedPush.Add(1)
		return Receipt{}, err
	}
	row := HistoryRow{StreamRow: adminapi.StreamRow{Stream: key.stream, Provider: who.name, TS: time.Now().UTC(), Event: m.Event, Level: string(level), Prompt: m.Prompt}}
	if m.Metadata.Kind() == '{' {
		row.Metadata = json.RawMessage(slices.Clone(m.Metadata))
	}
	seq := s.store(key, spelling, row)
	r := Receipt{Seq: seq, Fate: adminapi.FateStored}
	var in *inject
	if injects {
		in = &inject{seq: seq, source: who, stream: key.stream, text: text, prompt: m.Prompt, isShown: level != protocol.LevelKeep, trace: traceparent, report: settle}
		if in.prompt == "" {
			in.prompt = m.Event
		}
		if in.report == nil {
			in.report = func(Receipt) {}
		}
		if s.info.Send {
			if who.person {
				s.resetRows()
			}
			from.recordInject(s.g.InjectQuiet())
			from.queued++
			s.injects = append(s.injects, in)
			r.Fate = adminapi.FateQueued
		}
	}
	s.mu.Unlock()
	g.stats.Pushes.Add(1)

	switch {
	case in != nil && !s.info.Send:
		s.show(LogInfo, streamLabel(who.name, key.stream), text)
		return Receipt{Seq: seq, Fate: adminapi.FateSurfaced, Reason: fmt.Sprintf("sessions of host %s take no prompts", s.info.Kind)}, nil
	case in != nil:
		if level != protocol.LevelKeep {
			s.show(LogInfo, streamLabel(who.name, key.stream), text)
		}
		s.wake()
	case level == protocol.LevelSurface:
		s.show(LogInfo, streamLabel(who.name, key.stream), text)
		r.Fate = adminapi.FateSurfaced
	}
	return r, nil
}

func tooManyPushes(session string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeRateLimited, SessionID: session, Message: fmt.Sprintf("more than %d pushes a second; retry in a second", protocol.PushRate)}
}

// streamLabel is how the timeline names where an event comes from.
func streamLabel(provider, stream string) string {
	if stream == provider {
		return provider
	}
	return stream + "@" + provider
}

// store appends a row to its stream. Call with Session.mu held.
func (s *Session) store(key streamKey, spelling string, row HistoryRow) uint64 {
	st := s.ensureStream(key, spelling)
	return s.pushed.add(func(seq uint64) HistoryRow {
		row.Seq, row.order = seq, s.arrivals.increment()
		if len(st.rows) == protocol.StreamRetention {
			s.streamBytes[key.provider] -= rowSize(&st.rows[0])
			copy(st.rows, st.rows[1:])
			st.rows[len(st.rows)-1] = row
		} else {
			st.rows = append(st.rows, row)
		}
		s.streamBytes[key.provider] += rowSize(&row)
		s.dropOldestRows(key.provider)
		return row
	})
}

// deliver sends the next inject when the session is idle. The worker calls it.
func (s *Session) deliver() {
	for {
		s.mu.Lock()
		if len(s.injects) == 0 || s.busy {
			s.mu.Unlock()
			return
		}
		in := s.injects[0]
		s.injects = s.injects[1:]
		from := s.pushers[in.source.id]
		from.queued--
		paused, warned := from.isPaused(), from.isWarned
		switch {
		case paused:
			from.isWarned = true
		case !in.source.person:
			from.injectsInRow++
		}
		injected, turn := from.injectsInRow, s.endedTurns
		s.mu.Unlock()
		if paused {
			s.g.stats.PausedInjects.Add(1)
			until := fmt.Sprintf("until the user speaks or it has injected nothing for %s", s.g.InjectQuiet())
			s.showInject(in)
			if !warned {
				s.show(LogWarning, sourceGateway, fmt.Sprintf("provider %s injected %d times without a word from the user: its injects are only shown %s", in.source.name, injected, until))
			}
			in.report(Receipt{Seq: in.seq, Fate: adminapi.FateSurfaced, Reason: "paused: too many injects without the user; they are only shown " + until})
			continue
		}
		s.publish(Event{Callback: OnGeneratedUserPrompt, Content: in.prompt})
		err := s.send(Prompt{Text: stripEscapes(in.prompt), Mode: "enqueue", Source: SourceProvider + in.source.name, Traceparent: in.trace}, nil)
		if err != nil {
			s.showInject(in)
			s.show(LogWarning, sourceGateway, fmt.Sprintf("an inject of provider %s was not taken: %v", in.source.name, err))
			in.report(Receipt{Seq: in.seq, Fate: adminapi.FateSurfaced, Reason: err.Error()})
			continue
		}
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDelivered, turn: turn})
	}
}

// showInject shows an inject that is not delivered, unless it was shown before.
func (s *Session) showInject(in *inject) {
	if !in.isShown {
		s.show(LogInfo, streamLabel(in.source.name, in.stream), in.text)
	}
}

// resumeInjects ends the pauses of providers that injected too often.
func (s *Session) resumeInjects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetRows()
}

// resetRows begins the rows of all providers' injects anew. Call with Session.mu held.
func (s *Session) resetRows() {
	for _, p := range s.pushers {
		p.resetRow()
	}
}

// DefaultInjectQuiet is how long a provider injects nothing until its row of injects
// without the user is over.
const DefaultInjectQuiet = 10 * time.Minute

// InjectQuiet is how long that is in this gateway.
func (g *Gateway) InjectQuiet() time.Duration {
	if d := g.injectQuiet.Load(); d > 0 {
		return time.Duration(d)
	}
	return DefaultInjectQuiet
}

// SetInjectQuiet changes it, also for rows that are under way; 0 for the default.
func (g *Gateway) SetInjectQuiet(d time.Duration) { g.injectQuiet.Store(int64(d)) }

// History returns the newest events of streams, newest first in each: "stream"
// of any provider or "stream@provider"; none means all. At most last of each
// stream (0: all that are kept), none older than since.
func (s *Session) History(streams []string, last int, since time.Time) []HistoryRow {
	s.mu.Lock()
	var rows []HistoryRow
	for key, st := range s.streams {
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
	s.mu.Unlock()
	slices.SortFunc(rows, func(a, b HistoryRow) int { return int(b.Seq) - int(a.Seq) })
	return rows
}

// HistoryAfter returns what was stored after a number, oldest first, for
// followers; at most the newest thousand.
func (s *Session) HistoryAfter(after uint64, streams []string) []HistoryRow {
	rows, _ := s.pushed.after(after)
	return slices.DeleteFunc(rows, func(r HistoryRow) bool { return !selectsStream(streams, r.Stream, r.Provider) })
}

// HistoryCursor is the number of the newest stored event.
func (s *Session) HistoryCursor() uint64 { return s.pushed.last() }

// WaitHistory waits for something to be stored after a number.
func (s *Session) WaitHistory(ctx context.Context, after uint64) error {
	return s.pushed.wait(ctx, after)
}

func selectsStream(streams []string, stream, provider string) bool {
	if len(streams) == 0 {
		return true
	}
	for _, want := range streams {
		name, owner, exact := strings.Cut(want, "@")
		if name == stream && (!exact || owner == provider) {
			return true
		}
	}
	return false
}
