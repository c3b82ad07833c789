package server

import (
	"context"
	"slices"
	"sync"

	"tapgw/internal/gateway"
	"tapgw/internal/git"
)

// What is kept of sessions that have ended and whose responses nobody fetches.
const (
	restEndedKept  = 100
	restEndedBytes = 64 << 20
)

// restSessions are the sessions that clients of the session contract started or
// follow, until they know that a session is closed. Its methods are the
// contract's helpers.
type restSessions struct {
	gateway *gateway.Gateway

	mu   sync.Mutex
	list []*restSession // oldest first
}

// restSession is a session with its response queue, which outlives it.
type restSession struct {
	session   *gateway.Session
	responses *gateway.Responses

	started bool // by a client of the contract; guarded by restSessions.mu

	mu        sync.Mutex
	caller    *restCaller // whom live answers
	forgotten bool        // no more known to restSessions
}

// start starts a session (helperSessionStart). The error is that of
// [gateway.Gateway.Start].
func (x *restSessions) start(ctx context.Context, modelID, workingDirectory string) (*gateway.Session, error) {
	r := gateway.StartRequest{Host: apiHostCopilot, Model: modelID, CWD: workingDirectory, Label: git.Label(workingDirectory)}
	if modelID == gateway.HostLocal {
		r.Host, r.Model = gateway.HostLocal, ""
	}
	s, err := x.gateway.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.add(s, true).started = true
	return s, nil
}

// stop ends a session (helperSessionStop), also when the one who asked for it
// does not wait.
func (x *restSessions) stop(ctx context.Context, s *gateway.Session) error {
	return s.Stop(context.WithoutCancel(ctx), "stopped over the session API")
}

// get finds a session that runs, whoever started it, or returns nil
// (helperGetSession).
func (x *restSessions) get(id string) *gateway.Session {
	s, _ := x.gateway.Session(id)
	return s
}

// push adds a response to what a session says (helperPushSessionResponse). All
// who follow the session get it.
func (x *restSessions) push(s *gateway.Session, response gateway.Event) { s.Event(response) }

// running lists the sessions that clients of the contract started and that have
// not ended (hasRunningSessions).
func (x *restSessions) running() []*gateway.Session {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []*gateway.Session
	for _, s := range x.list {
		if s.started && !s.ended() {
			list = append(list, s.session)
		}
	}
	return list
}

func (s *restSession) ended() bool {
	select {
	case <-s.session.Done():
		return true
	default:
		return false
	}
}

// add returns what is known of a session, from now on at the latest. Call with
// mu held.
func (x *restSessions) add(s *gateway.Session, fromStart bool) *restSession {
	if i := slices.IndexFunc(x.list, func(known *restSession) bool { return known.session == s }); i >= 0 {
		return x.list[i]
	}
	x.tidy()
	added := &restSession{session: s, responses: s.Responses(fromStart)}
	x.list = append(x.list, added)
	return added
}

// tidy forgets the oldest of the sessions that have ended, where they are many
// or hold much. Call with mu held.
func (x *restSessions) tidy() {
	ended, bytes := 0, 0
	for _, s := range slices.Backward(slices.Clone(x.list)) {
		if !s.ended() {
			continue
		}
		ended++
		bytes += s.responses.Bytes()
		if ended > restEndedKept || ended > 1 && bytes > restEndedBytes {
			x.drop(s)
		}
	}
}

// forget drops a session whose end its clients know.
func (x *restSessions) forget(s *restSession) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(s)
}

// drop needs mu held.
func (x *restSessions) drop(s *restSession) {
	s.mu.Lock()
	s.forgotten = true
	s.mu.Unlock()
	x.list = slices.DeleteFunc(x.list, func(known *restSession) bool { return known == s })
}

// follow finds a session with its response queue: one that has ended as long as
// that is known, before a new one of the same id.
func (x *restSessions) follow(id string) *restSession {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.list {
		if s.session.ID() == id {
			return s
		}
	}
	if s := x.get(id); s != nil {
		return x.add(s, false)
	}
	return nil
}

// enter makes a caller the one whom a session's live answers, until it leaves,
// or returns the contract's word for why not.
func (x *restSessions) enter(ctx context.Context, id string, c *restCaller) (*restSession, string) {
	for {
		s := x.follow(id)
		if s == nil {
			return nil, restSessionNotFound
		}
		switch s.enter(ctx, c) {
		case entered:
			return s, ""
		case refused:
			return nil, restParallelCall
		}
	}
}

// entry is what became of a caller.
type entry int

const (
	entered entry = iota
	refused
	tooLate // the session was forgotten meanwhile
)

// enter refuses a caller while another one waits for a response. One that has its
// answer, or that hung up, is about to leave: the next one need not know of it.
func (s *restSession) enter(ctx context.Context, c *restCaller) entry {
	for {
		s.mu.Lock()
		other := s.caller
		switch {
		case s.forgotten:
			s.mu.Unlock()
			return tooLate
		case other == nil:
			s.caller = c
			s.mu.Unlock()
			return entered
		}
		leaves := other.answering || other.hungUp()
		s.mu.Unlock()
		if !leaves {
			return refused
		}
		select {
		case <-other.left:
		case <-ctx.Done():
			return refused
		}
	}
}

// answering says that the caller is about to have its answer.
func (s *restSession) answering(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.answering = true
}

func (s *restSession) leave(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = nil
	close(c.left)
}
