package cluster

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// relay stands between a provider of this gateway and the gateways whose sessions it serves: this
// one by a [gateway.Conn], and each other one by an upstream. To the provider all of them are one
// gateway: it sees the sessions of all in one list, binds to one of them or to all, and each of its
// messages goes to the gateways that it is about.
//
// It implements [gateway.Peer] for this gateway's connection.
type relay struct {
	c     *Cluster
	peer  gateway.Peer
	local *gateway.Conn // set before the provider's first message

	receiving sync.Mutex // held while the local connection handles a message

	mu         sync.Mutex // guards the fields that follow
	isAuthed   bool
	reach      *gateway.Reach     // nil: it may serve sessions of this gateway only
	mustOpen   bool               // the provider has authenticated, and nothing was opened
	first      *protocol.Sessions // the first list, while it waits for those of other gateways
	firstTimer *time.Timer
	own        []protocol.SessionInfo
	listed     []protocol.SessionInfo // that the provider was told last
	wasListed  bool                   // it was told of sessions
	upstreams  map[*trunk]*upstream
	calls      map[string]asked // requests of other gateways to the provider, by its id
	setup      setup            // of a provider of all sessions, for gateways that come later
	all        bool             // it has bound to all sessions
	isBound    bool             // here
	// the only gateway that it is bound at; nil for this one, or for all
	home      *upstream
	answered  bool // its hello has an answer
	unbinding bool // the next error is the answer to a hello that only ends the bindings here
	joining   bool // the next answer is to a hello that the relay has sent
	isClosed  bool
	token     string // of its auth
	// the state that the reconnect token of its auth, or of a hello that failed, restores
	old *savedState
	// sessions of other gateways whose end it was told of, and has not answered
	ending map[string]bool
	saved  *savedState       // the state that its own reconnect token restores
	shown  adminapi.Provider // its entry in lists while it is bound only elsewhere
	tools  map[string]bool   // that it offers, of a provider that may serve elsewhere
}

// Connect begins the connection of a provider, as [gateway.Gateway.Connect] does. A provider that
// may serve sessions of other gateways does, if it and the sessions are shared.
func (c *Cluster) Connect(p gateway.Peer, o gateway.ConnOptions) *Conn {
	r := &relay{c: c, peer: p, upstreams: map[*trunk]*upstream{}, calls: map[string]asked{}}
	r.receiving.Lock() // nothing is received before local is set
	r.local = c.gateway.Connect(r, o)
	r.receiving.Unlock()
	return &Conn{r}
}

// Conn is a provider's connection to a gateway of a cluster. Its methods are those of a
// [gateway.Conn].
type Conn struct{ r *relay }

// AuthEnded reports the same as [gateway.Conn.AuthEnded].
func (c *Conn) AuthEnded() bool { return c.r.local.AuthEnded() }

// Receive handles a message of the provider, as [gateway.Conn.Receive] does.
func (c *Conn) Receive(data []byte) { c.r.receive(data) }

// ReceiveOversized handles a message that is too large, as [gateway.Conn.ReceiveOversized] does.
func (c *Conn) ReceiveOversized(beginning []byte, size int) {
	head := protocol.Peek(beginning)
	if u := c.r.targetOf(head.Type, head.ID); u != nil {
		u.push(opOversized, append(appendSize(size), headOnly(head)...))
		return
	}
	c.r.toLocal(func() { c.r.local.ReceiveOversized(beginning, size) })
}

// ReceiveBinary refuses a binary message, as [gateway.Conn.ReceiveBinary] does.
func (c *Conn) ReceiveBinary(size int) {
	if u := c.r.targetOf("", ""); u != nil {
		u.push(opBinary, appendSize(size))
		return
	}
	c.r.toLocal(func() { c.r.local.ReceiveBinary(size) })
}

// headOnly replaces a message that is too large.
func headOnly(h protocol.Head) []byte {
	members := map[string]string{}
	for name, value := range map[string]string{"type": string(h.Type), "id": h.ID,
		"requestId": h.RequestID} {
		if value != "" && len(value) < maxBatch {
			members[name] = value
		}
	}
	if h.Type == protocol.TypeStreamQuery {
		members["queryId"] = members["requestId"]
	}
	data, _ := json.Marshal(members, json.Deterministic(true)) // cannot fail
	return data
}

// appendSize is the size of a frame as records have it.
func appendSize(size int) []byte {
	// It is small.
	return binary.BigEndian.AppendUint32(nil, uint32(min(size, protocol.MaxFrame))) //nolint:gosec
}

// Closed tells both ends that the provider's connection has ended.
func (c *Conn) Closed() {
	c.r.local.Closed()
	c.r.leave()
}

func (r *relay) toLocal(receive func()) {
	r.receiving.Lock()
	defer r.receiving.Unlock()
	receive()
}

// leave ends the provider's bindings at other gateways.
func (r *relay) leave() {
	r.mu.Lock()
	if r.firstTimer != nil {
		r.firstTimer.Stop()
	}
	r.isClosed, r.first = true, nil
	upstreams := slices.Collect(maps.Values(r.upstreams))
	r.upstreams, r.calls, r.home = map[*trunk]*upstream{}, map[string]asked{}, nil
	r.mu.Unlock()
	for _, u := range upstreams {
		u.close()
	}
	r.c.mu.Lock()
	delete(r.c.relays, r)
	if m := r.saved; m != nil && m.endedAt.IsZero() {
		m.endedAt, m.setup, m.relay = time.Now(), r.setup, nil
	}
	r.c.mu.Unlock()
}

// open connects the provider with the gateways within reach, if it may serve sessions of others.
func (r *relay) open() {
	reach, ok := r.local.Reach()
	if !ok || len(r.c.share) == 0 {
		return
	}
	r.mu.Lock()
	r.reach, r.shown.ConnectedAt = &reach, time.Now().UTC()
	r.mu.Unlock()
	r.c.mu.Lock()
	isClosed := r.c.isClosed
	if !isClosed {
		r.c.relays[r] = true
	}
	r.c.mu.Unlock()
	if isClosed {
		return
	}
	for _, tr := range r.c.trunks {
		r.openAt(tr)
	}
}

// openAt connects the provider with another gateway, if that is within reach and it is not
// connected there.
func (r *relay) openAt(tr *trunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.reach == nil || r.upstreams[tr] != nil || r.reach.At != "" &&
		r.reach.At != tr.peer {
		return
	}
	tools := r.reach.Tools
	request, _ := json.Marshal(openRequest{Allow: tools.Allow, Deny: tools.Deny,
		Prefix:      tools.Prefix,
		Concurrency: tools.Concurrency, TimeoutMs: tools.Timeout.Milliseconds()}) // cannot fail
	if u := tr.connect(r, request); u != nil {
		r.upstreams[tr] = u
	}
}

// reopen replaces a connection elsewhere, which ends its bindings there. Call with r.mu held.
func (r *relay) reopen(u *upstream) func() {
	delete(r.upstreams, u.tr)
	for _, m := range r.forgetCalls(u) {
		r.peer.Send(m)
	}
	return func() {
		u.close()
		r.openAt(u.tr)
	}
}

// Send implements [gateway.Peer] for this gateway.
func (r *relay) Send(m protocol.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m := m.(type) {
	case *protocol.Sessions:
		isFirst := !r.isAuthed
		r.own = r.c.lists.shared(m.Active)
		if isFirst {
			r.isAuthed, r.mustOpen, r.first = true, true, m
			return
		}
		kind := protocol.TypeSessionsUpdated
		// some clients say hello again only at this message
		if r.home == nil && !r.all && !r.isBound {
			kind = protocol.TypeSessions
		}
		r.list(kind)
		if r.all && !r.isBound && !r.joining {
			r.joining = true
			r.c.begin(r.joinHere)
		}
	case *protocol.SessionsUpdated:
		r.own = r.c.lists.shared(m.Active)
		if len(r.upstreams) == 0 && r.wasListed {
			r.listed = r.own
			r.peer.Send(m)
			return
		}
		r.list("")
	case *protocol.HelloAck:
		r.isBound = true
		if !r.joining {
			r.answered = true
			r.remember(m, nil)
			r.peer.Send(m)
		}
		r.joining = false
	case *protocol.Error:
		isHello := m.ReplyTo == protocol.TypeHello
		if isHello && (r.unbinding && m.Code != protocol.CodeRateLimited || r.joining) {
			r.unbinding, r.joining = false, false
			return
		}
		r.answered = r.answered || isHello
		r.peer.Send(m)
	case *protocol.Ack:
		if !isOwnRequest(m.RequestID) {
			r.peer.Send(m)
		}
	default:
		r.peer.Send(m)
	}
}

// Flush implements [gateway.Peer].
func (r *relay) Flush() {
	r.peer.Flush()
	r.mu.Lock()
	mustOpen := r.mustOpen
	r.mustOpen = false
	r.mu.Unlock()
	if mustOpen {
		r.open()
		r.mu.Lock()
		r.list("")
		if r.first != nil {
			r.firstTimer = time.AfterFunc(listsWithin, r.sendFirst)
		}
		r.mu.Unlock()
		r.peer.Flush()
	}
}

// Close implements [gateway.Peer].
func (r *relay) Close(code protocol.CloseCode, reason string) {
	r.peer.Close(code, reason)
	r.leave()
}
