package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

func (l *life) hearAll() {
	for _, m := range l.peer.take() {
		l.hear(m)
	}
}

func (l *life) hear(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.HelloAck:
		l.token.Store(m.ReconnectToken)
		l.answer(string(protocol.TypeHello), true)
		if l.session = m.SessionID; m.SessionID == protocol.AllSessions {
			l.session = ""
		}
	case *protocol.Ack:
		l.ack(m)
	case *protocol.Error:
		l.w.tally.add(fmt.Sprintf("error: %s", m.Code))
		if m.Code == protocol.CodeUnknownCallID {
			if l.strays--; l.strays < 0 {
				l.w.t.Errorf("%s: %s", l.kind.name, m.Message)
			}
		}
		switch {
		case strings.HasPrefix(m.RequestID, "u"):
			l.answer(m.RequestID, false)
		case m.ReplyTo == protocol.TypeHello:
			l.answer(string(protocol.TypeHello), false)
		}
		if m.Code == protocol.CodeInvalidState && !l.tried { // its session has ended
			l.w.tally.add("step: hello, unbound")
			l.tried = true
			l.hello("")
		}
	case *protocol.ToolCall:
		l.called(m)
	case *protocol.ToolCancel:
		l.cancelled(m)
	case *protocol.GateCheck:
		l.checked(m)
	case *protocol.TransformRequest:
		l.rewrite(m)
	case *protocol.SessionsUpdated:
		for _, s := range m.Active {
			if l.kind.all && !l.known[s.ID] {
				l.known[s.ID] = true
				l.w.tally.add("step: session.ready")
				l.say(`{"type":"session.ready","sessionId":%q}`, s.ID)
			}
		}
	case *protocol.SessionLifecycle:
		if m.State == protocol.LifecycleShutdownPending && l.r.IntN(8) != 0 {
			l.w.tally.add("step: shutdown.ready")
			l.say(`{"type":"shutdown.ready","sessionId":%q}`, m.SessionID)
		}
	}
}

// answer finds the question of an answer. Questions are answered in their order, each
// once; but each session acknowledges an update of several sessions.
func (l *life) answer(id string, well bool) *question {
	for len(l.asked) > 0 && l.asked[0].acked && l.asked[0].id != id {
		l.asked = l.asked[1:]
	}
	if len(l.asked) == 0 || l.asked[0].id != id {
		l.w.t.Errorf("%s: an answer to %s, which is not next", l.kind.name, id)
		return nil
	}
	q := l.asked[0]
	hello := id == string(protocol.TypeHello)
	l.tried = l.tried && !hello
	if well && !q.acked {
		q.then()
		if q.silent != l.silent || l.kind.all { // who knows what came of those, or where
			l.offered, l.denying = nil, false
		}
	}
	if q.acked = true; !l.kind.all || !well || hello {
		l.asked = l.asked[1:]
	}
	return q
}

func (l *life) ack(m *protocol.Ack) {
	if m.Fate != "" {
		l.w.tally.add("push: " + m.Fate)
		push := m.RequestID + " " + m.SessionID
		if l.fates[push]++; l.fates[push] > 2 {
			l.w.t.Errorf("%s: push %s has another fate: %s", l.kind.name, m.RequestID, m.Fate)
		}
		return
	}
	q := l.answer(m.RequestID, true)
	if q == nil || m.SessionID == protocol.AllSessions {
		return
	}
	// Each update since the last counts one, if it was not refused.
	last, known := l.revision[m.SessionID]
	if by := int(m.Revision - last.revision); (known || !l.restored) && (by < 1 || by > 1+q.silent-last.silent) {
		l.w.t.Errorf("%s: revision %d of session %s after %d", l.kind.name, m.Revision, m.SessionID, last.revision)
	}
	l.revision[m.SessionID] = lastAck{m.Revision, q.silent}
}

// called takes a tool call, and fails if it must not have come.
func (l *life) called(m *protocol.ToolCall) {
	w := l.w
	l.heard++
	var args stormArgs
	if err := json.Unmarshal(m.Args, &args); err != nil {
		w.t.Errorf("call with arguments %s: %v", m.Args, err)
		return
	}
	wrong := func(format string, a ...any) {
		w.t.Errorf("%s%s: call %d to %s: %s", l.kind.name, l.kind.instance, args.N, m.Tool, fmt.Sprintf(format, a...))
	}
	e := w.entryOf(args.N)
	if asked, granted := e.asked.Load(), e.granted.Load(); asked != granted || e.refused.Load() > 0 {
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
	case l.denying && !isHooked(m.SessionID):
		wrong("comes after the ack of a rule that denies it")
	}
	l.running[m.ID] = time.Time{}
	if l.kind.limited {
		l.checkSlots(wrong)
	}
	if c := (received{m.ID, args.N, l.heard}); l.r.IntN(5) > 0 && l.peer.since(l.heard) < surely {
		l.reply(c)
	} else {
		l.open = append(l.open, c)
	}
}

// checkSlots fails if more calls run than the slots allow. A cancelled call counts
// until it is answered, or for a while.
func (l *life) checkSlots(wrong func(string, ...any)) {
	taken, cancelled := 0, 0
	for _, at := range l.running {
		switch {
		case at.IsZero():
			taken++
		case !raceEnabled && time.Since(at) < slotGrace: // in real time the gateway counts from earlier on
			taken++
		default:
			cancelled++
		}
	}
	switch {
	case taken > l.max:
		wrong("is one of %d, %d is the most", taken, l.max)
	case taken+cancelled > l.max:
		l.w.tally.add("slot: freed without an answer")
	}
	p := l.conn.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.pending {
		k.tool.slots.mu.Lock()
		for _, q := range k.tool.slots.queue {
			if q.tool.provider == p && p.pending[q.id] != q {
				wrong("a call that has ended waits with it")
			}
		}
		k.tool.slots.mu.Unlock()
		break // all have the same slots
	}
}

func (l *life) cancelled(m *protocol.ToolCancel) {
	l.w.tally.add("cancel: " + m.Reason)
	if at, ok := l.running[m.ID]; ok && at.IsZero() {
		l.running[m.ID] = time.Now()
	}
	switch n := l.r.IntN(40); {
	case n == 0:
		l.w.tally.add("result: never, to a cancel")
		l.open = slices.DeleteFunc(l.open, func(c received) bool { return c.id == m.ID })
	case n < 28 && l.peer.since(l.heard) < surely:
		l.w.tally.add("result: CANCELLED")
		delete(l.running, m.ID)
		l.say(`{"type":"tool.result","id":%q,"error":"Cancelled","errorCode":"CANCELLED"}`, m.ID)
	}
}

// gateStrict is a gate that fails closed, gateOpen one that fails open.
const (
	gateStrict = "strict"
	gateOpen   = "open"
)

// checked answers a gate, or stays silent.
func (l *life) checked(m *protocol.GateCheck) {
	e, args := l.entryOfGate(m)
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
		l.grant(m, protocol.DecisionAllow)
	case n < 13:
		l.grant(m, protocol.DecisionContext)
	case n < 15:
		l.w.tally.add("gate: deny")
		refuse()
		l.say(`{"type":"gate.result","callId":%q,"decision":"deny","reason":"the gate said no"}`, m.CallID)
	case n < 16:
		l.w.tally.add("gate: malformed")
		refuse()
		l.say(`{"type":"gate.result","callId":%q,"decision":"perhaps"}`, m.CallID)
	case n < 19 || l.kind.steady:
		l.checks = append(l.checks, m)
	default:
		l.w.tally.add("gate: leaves instead of an answer")
		refuse()
		l.checks = append(l.checks, m)
		l.ends = true
	}
}

// entryOfGate is the entry of the call that a gate is asked about. A host may ask
// about a call whose arguments turn out to be wrong.
func (l *life) entryOfGate(m *protocol.GateCheck) (*entry, stormArgs) {
	var args stormArgs
	if json.Unmarshal(m.Args, &args) != nil {
		return &l.w.ledger[0], args
	}
	return l.w.entryOf(args.N), args
}

func (l *life) grant(m *protocol.GateCheck, decision string) {
	l.w.tally.add("gate: " + decision)
	if e, _ := l.entryOfGate(m); m.GateID == gateStrict {
		e.granted.Add(1) // before the gateway hears of it
	}
	l.say(`{"type":"gate.result","callId":%q,"decision":%q,"reason":"c"}`, m.CallID, decision)
}

// rewrite answers a transform, or stays silent.
func (l *life) rewrite(m *protocol.TransformRequest) {
	switch n := l.r.IntN(8); {
	case m.Section == "frozen":
		l.w.tally.add("transform: never answered")
	case n < 4:
		l.w.tally.add("transform: answered")
		l.say(`{"type":"transform.result","callId":%q,"content":%q}`, m.CallID, m.Current+"+")
	case n == 4:
		l.w.tally.add("transform: malformed")
		l.say(`{"type":"transform.result","callId":%q}`, m.CallID)
	default:
		l.requests = append(l.requests, m)
	}
}
