package cluster

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// This file merges the session lists of several gateways into the one list that a provider gets.

// listsWithin is how long the first list waits for those of other gateways. Providers often take
// its first session.
const listsWithin = 300 * time.Millisecond

// sendFirst sends the first list, with all that is known by then.
func (r *relay) sendFirst() {
	r.mu.Lock()
	r.sendFirstNow()
	r.mu.Unlock()
	r.peer.Flush()
}

// sendFirstNow sends the first list if it has not been sent. Call with r.mu held.
func (r *relay) sendFirstNow() {
	if r.first == nil {
		return
	}
	m := &protocol.Sessions{Token: r.first.Token, Active: r.merged()}
	r.first, r.listed, r.wasListed = nil, m.Active, len(m.Active) > 0
	if r.firstTimer != nil {
		r.firstTimer.Stop()
	}
	r.peer.Send(m)
}

// list tells the provider of the sessions, those of this gateway first: with a message of a kind,
// or if that is "", of a list that has changed. Call with r.mu held.
func (r *relay) list(kind protocol.Type) {
	if r.first != nil {
		for _, u := range r.upstreams {
			if !u.hasList {
				return
			}
		}
		r.sendFirstNow()
		return
	}
	all := r.merged()
	isSame := slices.Equal(all, r.listed)
	r.listed = all
	switch {
	case !r.wasListed && len(all) == 0:
	case !r.wasListed: // a client that has not said hello yet waits for this message
		r.wasListed = true
		r.peer.Send(&protocol.Sessions{Active: all})
	case kind == protocol.TypeSessions:
		r.peer.Send(&protocol.Sessions{Active: all})
	case kind != "" || !isSame:
		r.peer.Send(&protocol.SessionsUpdated{Active: all})
	}
}

// merged is the list of all sessions. Call with r.mu held.
func (r *relay) merged() []protocol.SessionInfo {
	byName := func(a, b *trunk) int { return strings.Compare(a.peer, b.peer) }
	parts := make([][]protocol.SessionInfo, 0, 1+len(r.upstreams))
	parts = append(parts, r.own)
	for _, tr := range slices.SortedFunc(maps.Keys(r.upstreams), byName) {
		parts = append(parts, r.upstreams[tr].sessions)
	}
	return r.c.lists.merge(parts)
}

// within returns those of the sessions of another gateway that the provider may bind. Call with
// r.mu held.
func (r *relay) within(list []protocol.SessionInfo) []protocol.SessionInfo {
	reach := r.reach
	if reach == nil || reach.Session == "" && reach.Match == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(s protocol.SessionInfo) bool {
		return reach.Session != "" && reach.Session != s.ID ||
			reach.Match != nil && !reach.Match(adminapi.Session{ID: s.ID, Label: s.Label})
	})
}

// lists keeps the newest lists of sessions, so that the providers of a gateway, which get the same
// lists, share them. A list is never changed.
type lists struct {
	mu    sync.Mutex // guards the fields that follow
	own   []protocol.SessionInfo
	parts [][]protocol.SessionInfo // of whole
	whole []protocol.SessionInfo
}

// shared returns a list that equals the argument, the same for all providers.
func (l *lists) shared(own []protocol.SessionInfo) []protocol.SessionInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.own, own) {
		l.own = own
	}
	return l.own
}

// merge makes one list of the lists of several gateways. If two of them list a session, the first
// one's entry counts. Only the first foreground session of all lists stays one.
func (l *lists) merge(parts [][]protocol.SessionInfo) []protocol.SessionInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.EqualFunc(parts, l.parts, isSameList) {
		return l.whole
	}
	l.parts, l.whole = parts, []protocol.SessionInfo{}
	known := map[string]bool{}
	hasForeground := false
	for _, part := range parts {
		for _, s := range part {
			if known[s.ID] {
				continue
			}
			known[s.ID] = true
			s.Foreground = s.Foreground && !hasForeground
			hasForeground = hasForeground || s.Foreground
			l.whole = append(l.whole, s)
		}
	}
	return l.whole
}

// isSameList reports whether two lists are the same one, not whether they are equal.
func isSameList(a, b []protocol.SessionInfo) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// upstreamOf returns the gateway that has a session. It returns nil if that is this gateway, or if
// the session is unknown. Call with r.mu held.
func (r *relay) upstreamOf(session string) *upstream {
	if session == "" || r.isOwn(session) {
		return nil
	}
	for _, u := range r.upstreams {
		if slices.ContainsFunc(u.sessions, func(s protocol.SessionInfo) bool {
			return s.ID == session
		}) {
			return u
		}
	}
	return nil
}

// isOwn reports whether this gateway has a session. Call with r.mu held.
func (r *relay) isOwn(session string) bool {
	return slices.ContainsFunc(r.own, func(s protocol.SessionInfo) bool { return s.ID == session })
}

// isWaiting reports whether the first list has not been sent.
func (r *relay) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first != nil
}

// view returns the entry that lists show of a provider that serves only sessions of other gateways.
func (r *relay) view() (v adminapi.Provider, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isBound || r.reach == nil {
		return v, false
	}
	v = r.shown
	v.Trust, v.State, v.Tools, v.InFlight = string(r.reach.Trust), "bound", len(r.tools),
		len(r.calls)
	for tr, u := range r.upstreams {
		if u.isBound {
			v.Serves = append(v.Serves, tr.peer)
		}
	}
	slices.Sort(v.Serves)
	return v, len(v.Serves) > 0
}

// show updates the provider's entry in lists by its hello or by an update of its tools. Call with
// r.mu held.
func (r *relay) show(data []byte) {
	m, err := decode(data)
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *protocol.Hello:
		r.shown.Name, r.shown.Instance, r.shown.Session = protocol.NormalName(m.Name), m.Instance,
			m.Session
		r.tools = map[string]bool{}
		for i := range m.Tools {
			r.tools[m.Tools[i].Name] = true
		}
	case *protocol.ToolsUpdate:
		if m.Remove == nil {
			r.tools = map[string]bool{}
		}
		for i := range m.Tools {
			r.tools[m.Tools[i].Name] = true
		}
		for _, name := range m.Remove {
			delete(r.tools, name)
		}
	}
}
