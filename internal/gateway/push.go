package gateway

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Pushes are the events that providers and the admin side send to sessions. See docs/protocol.md,
// "Pushes".

// pushSource says where a push comes from.
type pushSource struct {
	id, name string
	pass     *identity // of the provider; nil on the admin side
	isPerson bool      // its injects are the user's word: it is the admin, or answers for the user
	kept     *KeptEvent
}

// isModel reports whether the session's model decides when the source injects, see
// [PassSpec].Model.
func (s pushSource) isModel() bool { return s.pass != nil && s.pass.Model }

// isBudgeted reports whether the guard against loops leaves the source out, see
// [PassSpec].Budgeted.
func (s pushSource) isBudgeted() bool { return s.pass != nil && s.pass.Budgeted }

// modelPushers is before the name in the id of a source that the model starts. It has one id
// however often it is started. A space is in no other id.
const modelPushers = "model "

// push handles a provider's push (docs/protocol.md, "Pushes"): it finds the sessions that the push
// is about. Without one, it stores the event for the next session.
func (c *Conn) push(m *protocol.Push) {
	g, p := c.g, c.provider
	source := pushSource{id: p.id, name: p.name, pass: c.identity, isPerson: p.mayAnswer &&
		m.Prompt != ""}
	if source.isModel() {
		source.id = modelPushers + p.name
	}
	g.mu.Lock()
	bindings, err := c.bindingsOf(m.SessionID, protocol.TypePush)
	var stored Receipt
	isKept := false
	switch {
	case err != nil:
	case p.all && m.SessionID == "" && !m.Broadcast:
		err = errorf(protocol.CodeInvalidSession,
			"push.sessionId: is required of a provider that is bound to all sessions (or "+
				"\"broadcast\": true)")
	case g.keeps(source, m.Stream) && (len(bindings) > 0 || p.all):
		isKept = true
	case len(bindings) == 0 && len(g.sessions) > 0:
		err = errorf(protocol.CodeInvalidSession,
			"push.broadcast: this provider is bound to no session now")
	case len(bindings) == 0:
		if stored, err = g.addWaitingEvent(source, m); err != nil {
			err.Message = "push.broadcast: " + err.Message
		}
	}
	g.mu.Unlock()
	if isKept {
		err = c.keep(source, m, bindings)
	}
	if err != nil {
		c.reportError(err)
		return
	}
	if isKept {
		return
	}
	if len(bindings) == 0 {
		newPushReceipts(c, m, protocol.AllSessions).reportFirst(stored)
	}
	// Each session has its own budget: one that is over it does not stop the others.
	for _, b := range bindings {
		receipts := newPushReceipts(c, m, b.session.id)
		r, err := b.session.receivePush(source, m, receipts.reportLast)
		if err != nil {
			c.reportError(err)
			continue
		}
		receipts.reportFirst(r)
	}
}

// Push stores and delivers an event from the admin side; from is the name of the provider that it
// is shown as coming from. The receipt says how far the event has come. The error is RATE_LIMITED,
// PAYLOAD_TOO_LARGE, INVALID_SESSION, or INVALID_JSON with the field's name.
func (s *Session) Push(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	return s.pushAs(ctx, from, m, false, true)
}

// PushForAgent is [Session.Push] for an agent that is no session host, such as an MCP client. Its
// injects are not the user's word, so that a loop of such injects is paused.
func (s *Session) PushForAgent(
	ctx context.Context, from string, m *protocol.Push,
) (Receipt, error) {
	return s.pushAs(ctx, from, m, false, false)
}

// PushAndWait is [Session.Push], but waits for a queued event to be delivered and for the
// turn that it starts to end. An event that becomes no prompt is not waited for. The error
// may also be [ErrSessionEnded] or that of ctx.
func (s *Session) PushAndWait(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	return s.pushAs(ctx, from, m, true, true)
}

// injectGrace is how long [Session.Push] waits for an idle session to get an inject,
// before it reports the inject as queued.
const injectGrace = time.Second

func (s *Session) pushAs(
	ctx context.Context, from string, m *protocol.Push, wait, isPerson bool,
) (Receipt, error) {
	from, err := checkAdminPush(from, m)
	if err != nil {
		return Receipt{}, err
	}
	last := make(chan Receipt, 1)
	wasIdle := s.isIdle() // before this push makes it busy
	source := pushSource{id: from, name: from, isPerson: isPerson}
	// A push that waits for the turn of its prompt is for this session alone.
	if !wait && s.g.keeps(source, m.Stream) {
		return s.g.keepNow(ctx, source, m, []string{s.id})
	}
	r, fault := s.receivePush(source, m, func(r Receipt) { last <- r })
	if fault != nil {
		return r, fault
	}
	if r.Fate != adminapi.FateQueued {
		return r, nil
	}
	var giveUp <-chan time.Time
	if !wait {
		// A busy session may keep the inject for long.
		var grace time.Duration
		if wasIdle && r.Reason == "" { // else it says why the inject must wait
			grace = injectGrace
		}
		giveUp = time.After(grace)
	}
	select {
	case r = <-last:
	case <-giveUp:
		return r, nil
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if !wait || r.Fate != adminapi.FateDelivered {
		return r, nil
	}
	return r, s.waitForTurnEnd(ctx, r.turn)
}

// checkAdminPush checks a push from the admin side and returns the name of its
// provider as [protocol.NormalName] writes it.
func checkAdminPush(from string, m *protocol.Push) (name string, err error) {
	if err := protocol.Validate(m); err != nil {
		return "", err
	}
	if !protocol.ValidName(from) {
		return "", errorf(protocol.CodeInvalidJSON,
			"provider: %q must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a "+
				"letter or digit", from)
	}
	return protocol.NormalName(from), nil
}

// receivePush is the entry of every push into a session: it stores the event and
// begins its delivery. report gets the last receipt of a queued inject.
func (s *Session) receivePush(
	source pushSource, m *protocol.Push, report func(Receipt),
) (Receipt, *protocol.Error) {
	span := s.startPush(source, m)
	r, err := s.acceptPush(source, m, report, span)
	if !isRetry(source, err) {
		endPush(span, r, err)
	}
	return r, err
}

// isRetry reports whether a kept event is pushed once more because the session had no room before.
// Such an attempt is not reported.
func isRetry(source pushSource, err *protocol.Error) bool {
	return source.kept != nil && err != nil && err.Code == protocol.CodeRateLimited
}

// pushedEvent is a push after its stream's filter.
type pushedEvent struct {
	source   pushSource
	push     *protocol.Push
	key      streamKey
	spelling string         // of the stream
	text     string         // for the filter and the timeline
	level    protocol.Level // the filter's outcome
	rule     int            // of the filter, that decided; -1 without
	pattern  string         // of that rule
	isInject bool
}

// filterPush asks the stream's filter about a push. A filter that is set meanwhile
// counts for the next push.
func (s *Session) filterPush(source pushSource, m *protocol.Push) *pushedEvent {
	e := &pushedEvent{source: source, push: m, spelling: cmp.Or(m.Stream, source.name),
		text: cmp.Or(m.Event, m.Prompt)}
	e.key = streamKey{protocol.NormalName(e.spelling), source.name}
	undecided := func() { s.g.reportUndecided("filter", source.name) }
	f := s.streams.filterOf(e.key)
	if e.level, e.rule = f.outcome(e.text, m.Level, undecided); e.rule >= 0 {
		e.pattern = f[e.rule].text
	}
	e.isInject = e.level == protocol.LevelInject || m.Prompt != "" &&
		e.level != protocol.OutcomeDrop
	return e
}

// acceptPush is the part of [Session.receivePush] that runs within the push's span.
func (s *Session) acceptPush(source pushSource, m *protocol.Push, report func(Receipt),
	span spans.Span) (Receipt, *protocol.Error) {
	e := s.filterPush(source, m)
	var notNow string
	if e.isInject {
		notNow = s.whyNotNow()
	}
	ps := s.prompts
	ps.mu.Lock()
	if ps.ctx.Err() != nil { // the worker has ended, so nothing would report the push's fate
		ps.mu.Unlock()
		return Receipt{}, noSession(s.id)
	}
	row := newHistoryRow(e.key, m, e.level)
	if source.kept != nil {
		row.ID, row.TS = source.kept.ID, source.kept.TS
		if s.streams.has(e.key, row.ID) {
			ps.mu.Unlock()
			return Receipt{Fate: adminapi.FateStored, Reason: "the session has it already"}, nil
		}
	}
	p := ps.pusherOf(source)
	r := Receipt{Fate: adminapi.FateStored}
	err := s.checkPush(p, e)
	if err == nil && e.level != protocol.OutcomeDrop {
		r.Seq, err = s.streams.store("push.stream", e.key, e.spelling, row)
	}
	if err != nil {
		if !isRetry(source, err) {
			p.dropped++
			s.g.stats.DroppedPushes.Add(1)
		}
		ps.mu.Unlock()
		return Receipt{}, err
	}
	if e.level == protocol.OutcomeDrop {
		ps.mu.Unlock()
		s.streams.noteDropped(e)
		r := Receipt{Fate: adminapi.FateDropped, Reason: "the stream's filter drops it"}
		s.recordPush(e, r, span)
		return r, nil
	}
	if e.isInject && s.info.Send {
		ps.queueInject(p, &inject{seq: r.Seq, source: source, stream: e.key.stream, text: e.text,
			isShown: e.level != protocol.LevelKeep, prompt: cmp.Or(m.Prompt, m.Event),
			traceparent: span.Traceparent, report: s.recordingFate(e, report, span)},
			s.g.InjectQuiet())
		r.Fate = adminapi.FateQueued
	}
	// A push with a prompt starts a turn at level keep too, without a line.
	isSurfaced := e.level == protocol.LevelSurface || e.isInject && !s.info.Send
	switch {
	case r.Fate == adminapi.FateQueued:
		r.Reason = notNow
	case e.isInject:
		r.Fate = adminapi.FateSurfaced
		r.Reason = fmt.Sprintf("sessions of host %s take no prompts", s.info.Kind)
	case isSurfaced:
		r.Fate = adminapi.FateSurfaced
	}
	s.recordPush(e, r, span) // before the worker can deliver it
	ps.mu.Unlock()
	s.g.stats.Pushes.Add(1)

	if isSurfaced || e.isInject && e.level != protocol.LevelKeep {
		s.show(adminapi.LogInfo, streamLabel(source.name, e.key.stream), e.text)
		s.tellPushed(e)
	}
	if r.Fate == adminapi.FateQueued {
		s.wake()
	}
	return r, nil
}

// checkPush checks a push against its pusher's budget. A push that the filter drops counts
// for the rate only. Call with prompts.mu held.
func (s *Session) checkPush(p *pusher, e *pushedEvent) *protocol.Error {
	switch {
	case e.source.kept == nil && !p.limit.Allow(): // a kept event was limited where it was pushed
		return tooManyPushes(s.id)
	case e.isInject && p.queued >= protocol.MaxQueuedInjects:
		return &protocol.Error{Code: protocol.CodeRateLimited, SessionID: s.id,
			Message: fmt.Sprintf("%d injects wait for the session to become idle already",
				protocol.MaxQueuedInjects)}
	}
	return nil
}

func tooManyPushes(session string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeRateLimited, SessionID: session,
		Message: fmt.Sprintf("more than %d pushes a second; retry in a second", protocol.PushRate)}
}

// streamLabel is how the timeline names the source of an event.
func streamLabel(provider, stream string) string {
	if stream == provider {
		return provider
	}
	return stream + "@" + provider
}

// Receipt tells the fate of a push so far. A provider whose push is queued gets a second
// receipt later, with the same Seq. See docs/protocol.md, "Receipts".
type Receipt struct {
	Seq    uint64 // of the event in the session; 0 if it was not stored
	Fate   adminapi.Fate
	Reason string // for people; "" if there is nothing to explain

	turn uint64 // turns that had ended when it was delivered
}

// pushReceipts reports the fate of a provider's push in one session, if the push has
// a requestId: a first receipt at once, and a last one for a queued inject.
type pushReceipts struct {
	conn      *Conn
	requestID string
	session   string
	stream    string // the stream's normal name, if the push spelled it otherwise

	mu        sync.Mutex // guards the fields below
	firstSent bool
	last      *Receipt // that came before the first was sent
}

func newPushReceipts(c *Conn, m *protocol.Push, session string) *pushReceipts {
	return &pushReceipts{conn: c, requestID: m.RequestID, session: session,
		stream: changedName(m.Stream)}
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
	r.conn.peer.Send(&protocol.Ack{RequestID: r.requestID, SessionID: r.session, Seq: receipt.Seq,
		Fate: string(receipt.Fate), Reason: receipt.Reason, Stream: r.stream})
	r.conn.peer.Flush()
}
