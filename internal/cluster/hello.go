package cluster

import (
	"fmt"

	"tapgw/internal/protocol"
)

// This file decides which gateways a provider's hello goes to.

// hello handles a hello: it binds the provider here, elsewhere, or everywhere.
func (r *relay) hello(a about, data []byte) {
	old := r.restored(a, data)
	r.mu.Lock()
	if a.session == "" && r.reach != nil && r.reach.Session != "" {
		a.session = r.reach.Session
		data = withMember(data, "session", a.session)
	}
	target := r.upstreamOf(a.session)
	isAll := a.session == protocol.AllSessions
	if old != nil && a.session == "" {
		if isAll = old.session == protocol.AllSessions; !isAll {
			target = r.upstreams[old.tr]
		}
	}
	if old != nil && old.isElsewhere {
		data = withMember(data, "reconnectToken", old.token)
	}
	if old != nil && isAll { // gateways that did not give the token know nothing of its session
		data = withMember(data, "session", protocol.AllSessions)
	}
	if target == nil && !isAll && !r.isOwn(a.session) { // no gateway knows the session
		target = r.home
	}
	var reopen []func()
	for _, u := range r.upstreams { // a hello ends all bindings
		if u.isBound && u != target && !isAll {
			reopen = append(reopen, r.reopen(u))
		}
	}
	wasBound := r.isBound
	r.all, r.home, r.answered = isAll, nil, false
	if r.reach != nil {
		r.show(data)
	}
	r.setup = setup{}
	if isAll {
		r.setup.hello = data
		if old != nil {
			r.setup = old.setup.renewed(data)
		}
	}
	r.unbinding = target != nil && wasBound
	r.mu.Unlock()
	for _, f := range reopen {
		f()
	}
	switch {
	case target != nil:
		r.helloElsewhere(target, a, data, wasBound)
	case isAll:
		r.helloEverywhere(a, data)
	default:
		r.helloHere(data)
	}
}

// helloHere gives this gateway a hello, which ends the bindings here and may make new ones.
func (r *relay) helloHere(data []byte) {
	r.toLocal(func() {
		r.mu.Lock()
		r.isBound = false
		r.mu.Unlock()
		r.local.Receive(data)
	})
}

// helloElsewhere binds the provider to a session of another gateway.
func (r *relay) helloElsewhere(u *upstream, a about, data []byte, wasBound bool) {
	r.mu.Lock()
	err := r.mayServe(a.name)
	r.unbinding = r.unbinding && err == nil
	r.mu.Unlock()
	if err != nil {
		err.SessionID = a.session
		r.peer.Send(err)
		r.peer.Flush()
		return
	}
	if wasBound { // this gateway does not know the session, so that its bindings end
		r.helloHere(data)
	}
	r.mu.Lock()
	wasRefused := r.answered // too many hellos: the bindings here stay
	if !wasRefused {
		r.home, u.isQuiet, u.isAsked, u.name = u, false, true, protocol.NormalName(a.name)
	}
	r.isBound, r.unbinding = wasRefused, false
	r.mu.Unlock()
	if !wasRefused {
		u.send(data, a)
	}
}

// helloEverywhere binds the provider to all sessions, here and elsewhere. This gateway answers, or
// if it has no session, the first other one that does.
func (r *relay) helloEverywhere(a about, data []byte) {
	r.helloHere(data)
	r.mu.Lock()
	if wasRefused := r.answered && !r.isBound; wasRefused {
		r.all, r.setup = false, setup{}
		r.mu.Unlock()
		return
	}
	var upstreams []*upstream
	if !r.mayJoin() {
		if !r.answered && r.reach != nil && !r.reach.All && len(r.merged()) > 0 {
			r.all = false
			r.peer.Send(&protocol.Error{Code: protocol.CodeUnauthorized,
				ReplyTo: protocol.TypeHello,
				Message: fmt.Sprintf(
					"hello.session: a provider of trust %s may not bind to all sessions; "+
						"choose one id from the sessions list", r.reach.Trust)})
		}
		r.mu.Unlock()
		r.peer.Flush()
		return
	}
	for _, u := range r.upstreams {
		if len(u.sessions) > 0 {
			upstreams = append(upstreams, u)
			u.isAsked, u.isQuiet, u.name = true, r.answered, protocol.NormalName(a.name)
		}
	}
	frames := r.setup.frames()
	if len(frames) < 2 {
		frames = [][]byte{data}
	}
	r.mu.Unlock()
	for _, u := range upstreams {
		for _, frame := range frames {
			u.send(frame, a)
		}
	}
}

// mayServe checks whether the provider may serve sessions of other gateways with a name. Call with
// r.mu held.
func (r *relay) mayServe(name string) *protocol.Error {
	name = protocol.NormalName(name)
	fault := func(code protocol.Code, format string, args ...any) *protocol.Error {
		return &protocol.Error{Code: code, ReplyTo: protocol.TypeHello,
			Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.reach == nil:
		return fault(protocol.CodeInvalidSession,
			"hello.session: is of another gateway, and not open to this token")
	case r.reach.Name != "" && r.reach.Name != name:
		return fault(protocol.CodeUnauthorized,
			"hello.name: %q is not the name that this token is for, which is %q", name,
			r.reach.Name)
	case !r.c.isShared(name):
		return fault(protocol.CodeInvalidSession,
			"hello.session: is of another gateway, and share of [cluster] here does not "+
				"have provider %q", name)
	}
	return nil
}

// mayJoin reports whether the provider may serve all sessions of other gateways. Call with r.mu
// held.
func (r *relay) mayJoin() bool {
	return r.reach != nil && r.reach.All && r.mayServe(readAbout(r.setup.hello).name) == nil
}

// joinHere binds a provider of all sessions at this gateway, which has its first one now.
func (r *relay) joinHere() {
	r.mu.Lock()
	frames := r.setup.frames()
	r.mu.Unlock()
	r.toLocal(func() {
		for _, data := range frames {
			r.local.Receive(data)
		}
	})
}
