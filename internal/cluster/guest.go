package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// This file is the sessions' end of a connection from another gateway: the provider there is a
// guest here. The gateway sees it as an ordinary provider connection.

const (
	// maxGuests bounds the connections of one gateway's providers here.
	maxGuests = 2000
	// returnWithin is the time that a provider with gates has to come back, once its gateway has.
	returnWithin = 15 * time.Second
)

// openRequest is the data of [opOpen]: the rights that the provider's own gateway gives it. They
// can only restrict.
type openRequest struct {
	Allow       []string `json:"allow,omitzero"`
	Deny        []string `json:"deny,omitzero"`
	Prefix      string   `json:"prefix,omitzero"`
	Concurrency int      `json:"concurrency,omitzero"`
	TimeoutMs   int64    `json:"timeoutMs,omitzero"`
}

// closing is the data of [opCloseUp] and [opCloseDown].
type closing struct {
	Code   protocol.CloseCode `json:"code"`
	Reason string             `json:"reason,omitzero"`
}

// guest is a provider of another gateway that serves sessions here: a [gateway.Peer] whose messages
// go over the trunk.
//
// While its gateway is out of reach, the guest answers in its place: calls fail with DISCONNECTED
// and gates deny. It leaves after a while, unless it has gates: without the guest, calls that its
// gates would deny would run.
type guest struct {
	tr   *trunk
	id   uint64
	pass *gateway.Pass
	conn *gateway.Conn

	receiving sync.Mutex // held while the gateway handles a message of the provider

	mu             sync.Mutex // guards the fields that follow
	name, instance string     // of its hello
	hasGates       bool
	isBound        bool
	sessions       []string                 // that it serves
	open           map[string]protocol.Type // requests to the provider that it has not answered
	answers        []protocol.Message       // of a guest that is lost, for the gateway
	isLost         bool
	lostAt         time.Time
	isOverdue      bool // it is lost, and about to be dropped
	isEnded        bool
	replaced       []*guest // that are lost, and that this one takes the place of
}

// open lets a provider of the other gateway in.
func (tr *trunk) open(id uint64, data []byte) {
	var request openRequest
	if err := json.Unmarshal(data, &request); err != nil {
		tr.refuseOpen(id, "malformed")
		return
	}
	g := &guest{tr: tr, id: id, open: map[string]protocol.Type{}}
	tr.mu.Lock()
	_, isUsed := tr.guests[id]
	isFull := len(tr.guests) >= maxGuests
	if !isUsed && !isFull {
		tr.guests[id] = g
	}
	tr.mu.Unlock()
	switch {
	case isUsed:
		tr.c.count(tr.peer, "connections: their number is in use")
		return
	case isFull:
		tr.refuseOpen(id, "too many")
		return
	}
	g.pass = tr.c.gateway.Issue(gateway.PassSpec{
		Trust: tr.admission, All: true, Match: tr.c.isSharedSession,
		Owner:   gateway.OwnerGateway(tr.peer),
		Gateway: tr.peer,
		Tools: gateway.ToolPolicy{
			Allow: request.Allow, Deny: request.Deny, Prefix: request.Prefix,
			Concurrency: max(request.Concurrency, 0),
			Timeout:     time.Duration(max(request.TimeoutMs, 0)) * time.Millisecond,
		},
	})
	g.receiving.Lock()
	defer g.receiving.Unlock()
	g.conn = tr.c.gateway.Connect(g, gateway.ConnOptions{})
	g.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.pass.Token()}))
}

// refuseOpen tells the other gateway that a provider of it is not let in.
func (tr *trunk) refuseOpen(id uint64, reason string) {
	tr.c.count(tr.peer, "connections: "+reason)
	tr.push(opCloseDown, id, closeData(protocol.ClosePolicy, reason))
	tr.flush()
}

func closeData(code protocol.CloseCode, reason string) []byte {
	data, _ := json.Marshal(closing{code, reason}) // cannot fail
	return data
}

// receive handles a record from the provider.
func (g *guest) receive(r record) {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	if g.conn == nil {
		return
	}
	switch r.op {
	case opUp:
		g.note(r.data)
		g.conn.Receive(r.data)
		g.takePlaces()
	case opOversized, opBinary:
		if len(r.data) < 4 {
			g.tr.c.count(g.tr.peer, "malformed messages")
			return
		}
		size := min(int(binary.BigEndian.Uint32(r.data)), protocol.MaxFrame)
		if r.op == opBinary {
			g.conn.ReceiveBinary(size)
		} else {
			g.conn.ReceiveOversized(r.data[4:], size)
		}
	case opCloseUp:
		g.conn.Closed()
		g.end()
	}
}

// note keeps the parts of a message that are needed while the provider's gateway is out of reach,
// and finds out whose place the provider takes.
func (g *guest) note(data []byte) {
	f, err := protocol.Open(data)
	if err != nil {
		return
	}
	g.mu.Lock()
	delete(g.open, f.CallID)
	g.mu.Unlock()
	if f.Type != protocol.TypeHello && f.Type != protocol.TypeHooksUpdate {
		return
	}
	m, err := f.Decode()
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *protocol.Hello:
		rules := []protocol.Rule{}
		if m.Hooks != nil {
			rules = m.Hooks.OnPreToolUse
		}
		g.mu.Lock()
		g.name, g.instance, g.isBound = protocol.NormalName(m.Name), m.Instance, false
		g.hasGates = hasGates(rules) || g.hasGates && m.ReconnectToken != ""
		g.mu.Unlock()
		for _, old := range g.tr.lostLike(g) {
			g.pass.Replace(old.pass)
			g.mu.Lock()
			g.replaced = append(g.replaced, old)
			g.hasGates = g.hasGates || m.ReconnectToken != "" && old.hasGates
			g.mu.Unlock()
		}
	case *protocol.HooksUpdate:
		if m.OnPreToolUse != nil {
			g.mu.Lock()
			g.hasGates = hasGates(m.OnPreToolUse) || g.hasGates && m.SessionID != ""
			g.mu.Unlock()
		}
	}
}

func hasGates(rules []protocol.Rule) bool {
	return slices.ContainsFunc(rules, func(r protocol.Rule) bool {
		return r.Action == protocol.ActionDeny || r.Action == protocol.ActionGate && !r.FailOpen
	})
}

// lostLike are the lost guests that were the same provider.
func (tr *trunk) lostLike(g *guest) (found []*guest) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for old := range tr.lost {
		if old.name == g.name && old.instance == g.instance { // which don't change while it is lost
			found = append(found, old)
		}
	}
	return found
}

// takePlaces ends the lost guests whose place this one has taken.
func (g *guest) takePlaces() {
	g.mu.Lock()
	var replaced []*guest
	if g.isBound {
		replaced, g.replaced = g.replaced, nil
	}
	g.mu.Unlock()
	for _, old := range replaced {
		old.drop()
	}
}

// drop ends a guest that is lost.
func (g *guest) drop() {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	g.conn.Closed()
	g.end()
}

// Send implements [gateway.Peer].
func (g *guest) Send(m protocol.Message) {
	m = g.tr.c.onlyShared(m)
	g.mu.Lock()
	g.track(m)
	if g.isLost {
		if a := g.absent(m); a != nil {
			g.answers = append(g.answers, a)
		}
	}
	isGone := g.isLost || g.isEnded
	g.mu.Unlock()
	if !isGone {
		g.tr.push(opDown, g.id, protocol.Append(nil, m))
	}
}

// track notes the requests to the provider, and which sessions it serves. Call with g.mu held.
func (g *guest) track(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		g.open[m.ID] = m.MessageType()
	case *protocol.GateCheck:
		g.open[m.CallID] = m.MessageType()
	case *protocol.HelloAck:
		g.isBound, g.sessions = true, nil
	case *protocol.SessionLifecycle:
		isEnd := m.State == protocol.LifecycleShutdownPending
		if at := slices.Index(g.sessions, m.SessionID); at >= 0 && isEnd {
			g.sessions = slices.Delete(g.sessions, at, at+1)
		} else if at < 0 && m.State == protocol.LifecycleStarted {
			g.sessions = append(g.sessions, m.SessionID)
		}
	case *protocol.ToolCancel: // no caller waits for its answer
		delete(g.open, m.ID)
	}
}

// absent answers a message in the place of a provider whose gateway is out of reach; nil if it
// needs no answer.
func (g *guest) absent(m protocol.Message) protocol.Message {
	switch m := m.(type) {
	case *protocol.ToolCall:
		return g.absentAnswer(m.ID, m.MessageType())
	case *protocol.GateCheck:
		return g.absentAnswer(m.CallID, m.MessageType())
	case *protocol.TransformRequest:
		return &protocol.TransformResult{CallID: m.CallID, Content: &m.Current}
	case *protocol.SessionLifecycle:
		if m.State == protocol.LifecycleShutdownPending {
			return &protocol.ShutdownReady{SessionID: m.SessionID}
		}
	}
	return nil
}

func (g *guest) absentAnswer(id string, asked protocol.Type) protocol.Message {
	delete(g.open, id)
	if asked == protocol.TypeGateCheck {
		return &protocol.GateResult{CallID: id, Decision: protocol.DecisionDeny,
			Reason: fmt.Sprintf("%v, so its gate denies", g.tr.unreachable())}
	}
	return &protocol.ToolResult{ID: id, Error: g.tr.unreachable().Error(),
		ErrorCode: protocol.CodeDisconnected}
}

// Flush implements [gateway.Peer].
func (g *guest) Flush() {
	g.mu.Lock()
	isLost, hasAnswers := g.isLost, len(g.answers) > 0
	g.mu.Unlock()
	switch {
	case !isLost:
		g.tr.flush()
	case hasAnswers:
		g.tr.c.begin(g.answer)
	}
}

// answer answers the open requests in place of a lost provider.
func (g *guest) answer() {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	for {
		g.mu.Lock()
		answers := g.answers
		g.answers = nil
		g.mu.Unlock()
		if len(answers) == 0 {
			return
		}
		for _, m := range answers {
			g.conn.Receive(protocol.Append(nil, m))
		}
	}
}

// Close implements [gateway.Peer].
func (g *guest) Close(code protocol.CloseCode, reason string) {
	g.tr.push(opCloseDown, g.id, closeData(code, reason))
	g.tr.flush()
	g.end()
}

// lose makes the guest answer in the place of the provider: its gateway is out of reach.
func (g *guest) lose() {
	g.mu.Lock()
	if g.isEnded {
		g.mu.Unlock()
		return
	}
	g.isLost, g.lostAt = true, time.Now()
	for id, asked := range g.open {
		g.answers = append(g.answers, g.absentAnswer(id, asked))
	}
	text := fmt.Sprintf("%v: calls of provider %q fail", g.tr.unreachable(), g.name)
	if g.hasGates {
		text += ", and its gates deny until it is back"
	}
	sessions := slices.Clone(g.sessions)
	g.mu.Unlock()
	g.answer()
	for _, id := range sessions {
		if s, ok := g.tr.c.gateway.Session(id); ok {
			s.Note(adminapi.LogWarning, text)
		}
	}
}

// isOver reports, once, that a lost guest has been waited for long enough.
func (g *guest) isOver(now, upSince time.Time, isUp bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	isOver := g.isLost && now.Sub(g.lostAt) > goneAfter
	if g.hasGates && len(g.sessions) > 0 {
		isOver = g.isLost && isUp && now.Sub(upSince) > returnWithin
	}
	isOver = isOver && !g.isOverdue
	g.isOverdue = g.isOverdue || isOver
	return isOver
}

// dropLost ends the lost guests that have been waited for long enough.
func (tr *trunk) dropLost(now time.Time) {
	tr.mu.Lock()
	var over []*guest
	for g := range tr.lost {
		if g.isOver(now, tr.upSince, tr.isUp) {
			over = append(over, g)
		}
	}
	tr.mu.Unlock()
	if len(over) == 0 {
		return
	}
	tr.c.begin(func() { // one after the other: others want the gateway's lock, too
		for _, g := range over {
			g.drop()
		}
	})
}

// end forgets the guest. Its token is good for as long as the provider may come back with a
// reconnect token.
func (g *guest) end() {
	g.mu.Lock()
	wasEnded := g.isEnded
	g.isEnded = true
	g.mu.Unlock()
	if wasEnded {
		return
	}
	tr := g.tr
	tr.mu.Lock()
	delete(tr.lost, g)
	if tr.guests[g.id] == g {
		delete(tr.guests, g.id)
	}
	tr.mu.Unlock()
	tr.c.retire(g.pass)
}

// onlyShared takes the sessions out of a list that other gateways may not know.
func (c *Cluster) onlyShared(m protocol.Message) protocol.Message {
	keep := func(list []protocol.SessionInfo) (shared []protocol.SessionInfo) {
		shared = make([]protocol.SessionInfo, 0, len(list))
		for _, s := range list {
			if c.isShared(s.Label) {
				shared = append(shared, s)
			}
		}
		return shared
	}
	switch m := m.(type) {
	case *protocol.Sessions:
		return &protocol.Sessions{Active: keep(m.Active)}
	case *protocol.SessionsUpdated:
		return &protocol.SessionsUpdated{Active: keep(m.Active)}
	}
	return m
}
