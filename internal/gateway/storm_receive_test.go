package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

func (l *link) receiveAll() {
	for _, m := range l.inbox.drain() {
		l.receive(m)
	}
}

func (l *link) receive(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.HelloAck:
		l.token.Store(m.ReconnectToken)
		l.recordAnswer(string(protocol.TypeHello), true)
		if l.session = m.SessionID; m.SessionID == protocol.AllSessions {
			l.session = ""
		}
	case *protocol.Ack:
		l.recordAck(m)
	case *protocol.Error:
		l.w.tally.add(fmt.Sprintf("error: %s", m.Code))
		if m.Code == protocol.CodeUnknownCallID {
			if l.strayAnswers--; l.strayAnswers < 0 {
				l.w.t.Errorf("%s: %s", l.kind.name, m.Message)
			}
		}
		switch {
		case strings.HasPrefix(m.RequestID, "u"):
			l.recordAnswer(m.RequestID, false)
		case m.ReplyTo == protocol.TypeHello:
			l.recordAnswer(string(protocol.TypeHello), false)
		}
		if m.Code == protocol.CodeInvalidState && !l.helloRetried { // its session has ended
			l.w.tally.add("step: hello, unbound")
			l.helloRetried = true
			l.hello("")
		}
	case *protocol.ToolCall:
		l.onToolCall(m)
	case *protocol.ToolCancel:
		l.onCancel(m)
	case *protocol.GateCheck:
		l.onGateCheck(m)
	case *protocol.TransformRequest:
		l.onTransform(m)
	case *protocol.SessionsUpdated:
		for _, s := range m.Active {
			if l.kind.inAllSessions && !l.readySessions[s.ID] {
				l.readySessions[s.ID] = true
				l.w.tally.add("step: session.ready")
				l.send(`{"type":"session.ready","sessionId":%q}`, s.ID)
			}
		}
	case *protocol.SessionLifecycle:
		if m.State == protocol.LifecycleShutdownPending && l.r.IntN(8) != 0 {
			l.w.tally.add("step: shutdown.ready")
			l.send(`{"type":"shutdown.ready","sessionId":%q}`, m.SessionID)
		}
	}
}

// recordAnswer returns the question that an answer belongs to. The gateway answers in
// order and once, but each of several sessions acknowledges the same update.
func (l *link) recordAnswer(id string, ok bool) *question {
	for len(l.questions) > 0 && l.questions[0].isAnswered && l.questions[0].id != id {
		l.questions = l.questions[1:]
	}
	if len(l.questions) == 0 || l.questions[0].id != id {
		l.w.t.Errorf("%s: an answer to %s, which is not next", l.kind.name, id)
		return nil
	}
	q := l.questions[0]
	hello := id == string(protocol.TypeHello)
	l.helloRetried = l.helloRetried && !hello
	if ok && !q.isAnswered {
		q.onAnswer()
		// the effect of silent updates is unknown
		if q.silentUpdates != l.silentUpdates || l.kind.inAllSessions {
			l.offered, l.deniesOwnTools = nil, false
		}
	}
	if q.isAnswered = true; !l.kind.inAllSessions || !ok || hello {
		l.questions = l.questions[1:]
	}
	return q
}

func (l *link) recordAck(m *protocol.Ack) {
	if m.Fate != "" {
		l.w.tally.add("push: " + m.Fate)
		push := m.RequestID + " " + m.SessionID
		if l.pushFates[push]++; l.pushFates[push] > 2 {
			l.w.t.Errorf("%s: push %s has another fate: %s", l.kind.name, m.RequestID, m.Fate)
		}
		return
	}
	q := l.recordAnswer(m.RequestID, true)
	if q == nil || m.SessionID == protocol.AllSessions {
		return
	}
	// Each accepted update since the last ack adds one to the revision.
	last, isKnown := l.acks[m.SessionID]
	by, most := int(m.Revision-last.revision), 1+q.silentUpdates-last.silentUpdates
	if (isKnown || !l.isReconnect) && (by < 1 || by > most) {
		l.w.t.Errorf("%s: revision %d of session %s after %d", l.kind.name, m.Revision, m.SessionID,
			last.revision)
	}
	l.acks[m.SessionID] = lastAck{m.Revision, q.silentUpdates}
}

// onToolCall handles a tool call, and fails if the gateway must not send it.
func (l *link) onToolCall(m *protocol.ToolCall) {
	w := l.w
	l.callCount++
	var args stormArgs
	if err := json.Unmarshal(m.Args, &args); err != nil {
		w.t.Errorf("call with arguments %s: %v", m.Args, err)
		return
	}
	wrong := func(format string, a ...any) {
		w.t.Errorf("%s%s: call %d to %s: %s", l.kind.name, l.kind.instance, args.N, m.Tool,
			fmt.Sprintf(format, a...))
	}
	e := w.record(args.N)
	if asked, granted := e.asked.Load(), e.granted.Load(); asked != granted ||
		e.refused.Load() > 0 {
		wrong("%d of %d gates granted it", granted, asked)
	}
	if args.Thawing {
		w.tally.add("call: runs, a gate failed open")
	}
	here := int32(l.index)
	switch runs := e.runs.Add(1); {
	case runs == 1:
		e.instance.Store(here)
	case runs > 2 || runs > 1+e.retries.Load() || l.kind.instance == "" || args.To != "":
		wrong("runs again")
	case e.instance.Load() == here:
		wrong("is tried again where it failed")
	default:
		w.tally.add("call: retried")
	}
	if args.To != "" && l.kind.instance != "" {
		if w.tally.add("call: runs, on its target"); args.To != l.kind.instance {
			wrong("is for instance %s", args.To)
		}
	}
	switch {
	case l.session != "" && m.SessionID != l.session:
		wrong("is of session %s, bound is %s", m.SessionID, l.session)
	case l.offered != nil && !l.offered[m.Tool]:
		wrong("comes after the ack that removed it")
	case l.deniesOwnTools && !isHostGated(m.SessionID):
		wrong("comes after the ack of a rule that denies it")
	}
	l.running[m.ID] = time.Time{}
	if l.kind.isLimited {
		l.checkSlots(wrong)
	}
	if c := (received{m.ID, args.N, l.callCount}); l.r.IntN(5) > 0 &&
		l.inbox.callsAfter(l.callCount) < minRemembered {
		l.reply(c)
	} else {
		l.openCalls = append(l.openCalls, c)
	}
}

// checkSlots fails if more calls run than the slots allow. A cancelled call counts
// until it is answered, or for a while.
func (l *link) checkSlots(wrong func(string, ...any)) {
	taken, cancelled := 0, 0
	for _, at := range l.running {
		switch {
		case at.IsZero():
			taken++
		case !raceEnabled && time.Since(at) < slotGrace:
			// In real time the gateway counts from earlier on.
			taken++
		default:
			cancelled++
		}
	}
	switch {
	case taken > l.maxCalls:
		wrong("is one of %d, %d is the most", taken, l.maxCalls)
	case taken+cancelled > l.maxCalls:
		l.w.tally.add("slot: freed without an answer")
	}
	p := l.conn.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range p.pending {
		call.tool.slots.mu.Lock()
		for _, q := range call.tool.slots.queue {
			if q.tool.provider == p && p.pending[q.id] != q {
				wrong("a call that has ended waits with it")
			}
		}
		call.tool.slots.mu.Unlock()
		break // all have the same slots
	}
}

func (l *link) onCancel(m *protocol.ToolCancel) {
	l.w.tally.add("cancel: " + m.Reason)
	if at, ok := l.running[m.ID]; ok && at.IsZero() {
		l.running[m.ID] = time.Now()
	}
	silent := 1
	if l.kind.isLimited {
		silent = 6 // its few calls must show what becomes of their slots
	}
	switch n := l.r.IntN(40); {
	case n < silent:
		l.w.tally.add("result: never, to a cancel")
		l.openCalls = slices.DeleteFunc(l.openCalls, func(c received) bool { return c.id == m.ID })
	case n < 28 && l.inbox.callsAfter(l.callCount) < minRemembered:
		l.w.tally.add("result: CANCELLED")
		delete(l.running, m.ID)
		l.send(`{"type":"tool.result","id":%q,"error":"Cancelled","errorCode":"CANCELLED"}`, m.ID)
	}
}

// gateStrict is a gate that fails closed, gateOpen one that fails open.
const (
	gateStrict = "strict"
	gateOpen   = "open"
)

// onGateCheck answers a gate, or stays silent.
func (l *link) onGateCheck(m *protocol.GateCheck) {
	e, args := l.gateRecord(m)
	if m.GateID == gateStrict {
		e.asked.Add(1)
	}
	refuse := func() {
		if m.GateID == gateStrict {
			e.refused.Add(1)
		}
	}
	switch n := l.r.IntN(20); {
	case args.Frozen || args.Thawing:
		l.w.tally.add("gate: never answered")
		refuse()
	case n < 11:
		l.allow(m, protocol.DecisionAllow)
	case n < 13:
		l.allow(m, protocol.DecisionContext)
	case n < 15:
		l.w.tally.add("gate: deny")
		refuse()
		l.send(`{"type":"gate.result","callId":%q,"decision":"deny","reason":"the gate said no"}`,
			m.CallID)
	case n < 16:
		l.w.tally.add("gate: malformed")
		refuse()
		l.send(`{"type":"gate.result","callId":%q,"decision":"perhaps"}`, m.CallID)
	case n < 19 || l.kind.isSteady:
		l.pendingChecks = append(l.pendingChecks, m)
	default:
		l.w.tally.add("gate: leaves instead of an answer")
		refuse()
		l.pendingChecks = append(l.pendingChecks, m)
		l.shouldLeave = true
	}
}

// gateRecord returns the record of the call that a gate is asked about. A host may ask
// about a call whose arguments turn out to be wrong.
func (l *link) gateRecord(m *protocol.GateCheck) (*callRecord, stormArgs) {
	var args stormArgs
	if json.Unmarshal(m.Args, &args) != nil {
		return &l.w.records[0], args
	}
	return l.w.record(args.N), args
}

func (l *link) allow(m *protocol.GateCheck, decision string) {
	l.w.tally.add("gate: " + decision)
	if e, _ := l.gateRecord(m); m.GateID == gateStrict {
		e.granted.Add(1) // before the gateway hears of it
	}
	l.send(`{"type":"gate.result","callId":%q,"decision":%q,"reason":"c"}`, m.CallID, decision)
}

// onTransform answers a transform, or stays silent.
func (l *link) onTransform(m *protocol.TransformRequest) {
	switch n := l.r.IntN(8); {
	case m.Section == "frozen":
		l.w.tally.add("transform: never answered")
	case n < 4:
		l.w.tally.add("transform: answered")
		l.send(`{"type":"transform.result","callId":%q,"content":%q}`, m.CallID, m.Current+"+")
	case n == 4:
		l.w.tally.add("transform: malformed")
		l.send(`{"type":"transform.result","callId":%q}`, m.CallID)
	default:
		l.pendingTransforms = append(l.pendingTransforms, m)
	}
}
