package cluster

import (
	"cmp"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// keep takes a push of the provider into a stream that lasts, if it is for sessions that are
// elsewhere: this gateway, the provider's own, keeps it, and those sessions get it as all others
// do. It reports whether it took the push. A push for sessions here goes to the local connection,
// which keeps it, too.
func (r *relay) keep(a about, data []byte) bool {
	m, err := decode(data)
	push, ok := m.(*protocol.Push)
	if err != nil || !ok { // the local connection reports the fault
		return false
	}
	r.mu.Lock()
	name := r.shown.Name
	session, ids, isElsewhere := r.keptTarget(a)
	r.mu.Unlock()
	keeper := r.c.o.Keeper
	if name == "" || !keeper.Keeps(protocol.NormalName(cmp.Or(push.Stream, name)), name) {
		return false
	}
	if !isElsewhere && a.isBroadcast { // not to the others, too: they get the kept event
		r.toLocal(func() { r.local.Receive(data) })
		return true
	}
	if !isElsewhere {
		return false
	}
	spelled := "" // the stream's name, if the push spells it otherwise
	if normal := protocol.NormalName(push.Stream); normal != push.Stream {
		spelled = normal
	}
	answer := func(m protocol.Message) {
		r.peer.Send(m)
		r.peer.Flush()
	}
	err = keeper.Keep(gateway.NewKeptEvent(name, push, ids), func(receipt gateway.Receipt) {
		if push.RequestID != "" {
			answer(&protocol.Ack{RequestID: push.RequestID, SessionID: session, Seq: receipt.Seq,
				Fate: string(receipt.Fate), Reason: receipt.Reason, Stream: spelled})
		}
	})
	if err != nil {
		err.ReplyTo, err.RequestID = protocol.TypePush, push.RequestID
		answer(err)
	}
	return true
}

// keptTarget says whether the sessions of a push are elsewhere, and which they are: ids is nil for
// all. Call with r.mu held.
func (r *relay) keptTarget(a about) (session string, ids []string, isElsewhere bool) {
	switch {
	case r.reach == nil:
	case a.session != "" && (r.all || r.home != nil):
		u := r.upstreamOf(a.session)
		if u != nil && u.isBound && (r.all || r.home == u) {
			return a.session, []string{a.session}, true
		}
	case a.session != "":
	case r.home != nil && r.saved != nil:
		return r.saved.session, []string{r.saved.session}, true
	case r.all && a.isBroadcast && !r.isBound:
		for _, u := range r.upstreams {
			if u.isBound {
				return protocol.AllSessions, nil, true
			}
		}
	}
	return "", nil, false
}
