package cluster

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/protocol"
)

// savedState is the part of a provider's state that a reconnect token restores in the other
// gateways. A provider may come back to its own gateway, which did not give the token, or to
// several gateways, of which only one gave it; the one that gave the token restores the rest.
type savedState struct {
	token       string // the reconnect token
	auth        string // the token with which the provider authenticated
	name        string // its normal name
	session     string // that it was bound to: an id or "all"
	isElsewhere bool   // another gateway gave the token
	tr          *trunk // to the gateway of the session; nil for this one
	setup       setup  // of a provider of all sessions
	endedAt     time.Time
	relay       *relay // of the connection that has the token; nil when it has ended
}

// remember stores the state that the reconnect token of an ack restores, in place of the state
// before. Call with r.mu held.
func (r *relay) remember(ack *protocol.HelloAck, from *trunk) {
	if r.reach == nil {
		return
	}
	m := &savedState{token: ack.ReconnectToken, auth: r.token, name: r.shown.Name,
		session: ack.SessionID, isElsewhere: from != nil, tr: from, relay: r}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.saved != nil {
		delete(r.c.saved, r.saved.token)
	}
	r.saved, r.old = m, nil
	r.c.saved[m.token] = m
}

// recall returns the state that a reconnect token restores, once; nil if the token restores
// nothing.
func (c *Cluster) recall(token string) *savedState {
	if token == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.saved[token]
	delete(c.saved, token)
	if m == nil || !m.endedAt.IsZero() && time.Since(m.endedAt) > protocol.ReconnectWindow {
		return nil
	}
	return m
}

// restored returns the state that the reconnect token of a hello, or of the auth before it,
// restores; nil if it restores nothing. Call without a lock.
func (r *relay) restored(a about, data []byte) *savedState {
	recalled := r.c.recall(a.restores)
	r.mu.Lock()
	if recalled != nil {
		r.old = recalled
	}
	old, token := r.old, r.token
	r.mu.Unlock()
	if old == nil || old.name != protocol.NormalName(a.name) || old.token == "" ||
		old.auth != token {
		return nil
	}
	r.c.mu.Lock()
	first := old.relay
	r.c.mu.Unlock()
	if first == nil {
		return old
	}
	// The first connection of this provider is still up. The new one takes its place and its
	// current state. The gateways do that themselves when they bind the provider, but only the
	// gateway that gave the token can.
	first.mu.Lock()
	said := first.setup
	said.updates = slices.Clone(said.updates)
	first.mu.Unlock()
	r.c.mu.Lock()
	old.setup = said
	r.c.mu.Unlock()
	if _, err := decode(data); err == nil && first != r && old.isElsewhere &&
		old.session == protocol.AllSessions {
		first.Close(protocol.CloseTakenOver, "a newer connection took this identity")
	}
	return old
}

// forgetSaved forgets the states of providers that are too late to come back.
func (c *Cluster) forgetSaved(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, m := range c.saved {
		if !m.endedAt.IsZero() && now.Sub(m.endedAt) > protocol.ReconnectWindow {
			delete(c.saved, token)
		}
	}
}

// auth handles a message of a provider that has not authenticated. With a reconnect token that
// another gateway gave, it authenticates here as it did before.
func (r *relay) auth(data []byte) {
	var m protocol.Auth
	var old *savedState
	if json.Unmarshal(data, &m, json.RejectUnknownMembers(false)) == nil {
		old = r.c.recall(m.ReconnectToken)
		r.mu.Lock()
		r.token, r.old = m.Token, old
		if old != nil && m.Token == "" {
			r.token = old.auth
		}
		token := r.token
		r.mu.Unlock()
		if old != nil && old.isElsewhere && m.Token == "" {
			data = protocol.Append(nil, &protocol.Auth{Token: token})
		}
	}
	r.toLocal(func() { r.local.Receive(data) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if old != nil && !r.isAuthed { // a refused token beside it does not use it up
		r.c.mu.Lock()
		r.c.saved[old.token] = old
		r.c.mu.Unlock()
	}
}

// noteEnd notes that a provider is done with a session that ends, or that it leaves. A provider
// that leaves by itself does not come back.
func (r *relay) noteEnd(a about) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.kind == protocol.TypeShutdownReady && a.session != "":
		delete(r.ending, a.session)
	case a.kind == protocol.TypeShutdownReady:
		clear(r.ending)
	case len(r.ending) == 0 && r.saved != nil:
		r.c.recall(r.saved.token)
	}
}

// noteLifecycle notes which sessions of other gateways end. Call with r.mu held.
func (r *relay) noteLifecycle(m *protocol.SessionLifecycle) {
	switch {
	case m.State != protocol.LifecycleShutdownPending:
		delete(r.ending, m.SessionID)
	case r.ending == nil:
		r.ending = map[string]bool{m.SessionID: true}
	default:
		r.ending[m.SessionID] = true
	}
}
