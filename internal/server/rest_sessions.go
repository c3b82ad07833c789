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

	mu      sync.Mutex
	caller  *restCaller // whom live answers
	removed bool        // no more known to restSessions
}

// start starts a session (helperSessionStart). The error is that of
// [gateway.Gateway.Start].
func (r *restSessions) start(ctx context.Context, modelID, workingDirectory string) (*gateway.Session, error) {
	request := gateway.StartRequest{Host: apiHostCopilot, Model: modelID, CWD: workingDirectory, Label: git.Label(workingDirectory)}
	if modelID == gateway.HostLocal {
		request.Host, request.Model = gateway.HostLocal, ""
	}
	s, err := r.gateway.Start(ctx, request)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(s, true).started = true
	return s, nil
}

// stop ends a session (helperSessionStop), also when the one who asked for it
// does not wait.
func (r *restSessions) stop(ctx context.Context, s *gateway.Session) error {
	return s.Stop(context.WithoutCancel(ctx), "stopped over the session API")
}

// get finds a session that runs, whoever started it, or returns nil
// (helperGetSession).
func (r *restSessions) get(id string) *gateway.Session {
	s, _ := r.gateway.Session(id)
	return s
}

// push adds a response to what a session says (helperPushSessionResponse). All
// who follow the session get it.
func (r *restSessions) pushResponse(s *gateway.Session, response gateway.Event) { s.Event(response) }

// running lists the sessions that clients of the contract started and that have
// not ended (hasRunningSessions).
func (r *restSessions) running() []*gateway.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*gateway.Session
	for _, s := range r.list {
		if s.started && !s.hasEnded() {
			list = append(list, s.session)
		}
	}
	return list
}

func (s *restSession) hasEnded() bool {
	select {
	case <-s.session.Done():
		return true
	default:
		return false
	}
}

// add returns what is known of a session, from now on at the latest. Call with
// mu held.
func (r *restSessions) addLocked(s *gateway.Session, fromStart bool) *restSession {
	if i := slices.IndexFunc(r.list, func(known *restSession) bool { return known.session == s }); i >= 0 {
		return r.list[i]
	}
	r.evictEnded()
	added := &restSession{session: s, responses: s.Responses(fromStart)}
	r.list = append(r.list, added)
	return added
}

// tidy forgets the oldest of the sessions that have ended, where they are many
// or hold much. Call with mu held.
func (r *restSessions) evictEnded() {
	ended, bytes := 0, 0
	for _, s := range slices.Backward(slices.Clone(r.list)) {
		if !s.hasEnded() {
			continue
		}
		ended++
		bytes += s.responses.Bytes()
		if ended > restEndedKept || ended > 1 && bytes > restEndedBytes {
			r.removeLocked(s)
		}
	}
}

// forget drops a session whose end its clients know.
func (r *restSessions) remove(s *restSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(s)
}

// drop needs mu held.
func (r *restSessions) removeLocked(s *restSession) {
	s.mu.Lock()
	s.removed = true
	s.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(known *restSession) bool { return known == s })
}

// follow finds a session with its response queue: one that has ended as long as
// that is known, before a new one of the same id.
func (r *restSessions) findOrAdd(id string) *restSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.list {
		if s.session.ID() == id {
			return s
		}
	}
	if s := r.get(id); s != nil {
		return r.addLocked(s, false)
	}
	return nil
}

// enter makes a caller the one whom a session's live answers, until it leaves,
// or returns the contract's word for why not.
func (r *restSessions) acquire(ctx context.Context, id string, c *restCaller) (*restSession, string) {
	for {
		s := r.findOrAdd(id)
		if s == nil {
			return nil, restSessionNotFound
		}
		switch s.acquire(ctx, c) {
		case acquired:
			return s, ""
		case busy:
			return nil, restParallelCall
		}
	}
}

// entry is what became of a caller.
type acquireResult int

const (
	acquired acquireResult = iota
	busy
	wasRemoved // the session was forgotten meanwhile
)

// enter refuses a caller while another one waits for a response. One that has its
// answer, or that hung up, is about to leave: the next one need not know of it.
func (s *restSession) acquire(ctx context.Context, c *restCaller) acquireResult {
	for {
		s.mu.Lock()
		other := s.caller
		switch {
		case s.removed:
			s.mu.Unlock()
			return wasRemoved
		case other == nil:
			s.caller = c
			s.mu.Unlock()
			return acquired
		}
		leaves := other.answering || other.hasHungUp()
		s.mu.Unlock()
		if !leaves {
			return busy
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return busy
		}
	}
}

// answering says that the caller is about to have its answer.
func (s *restSession) markAnswering(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.answering = true
}

func (s *restSession) release(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = nil
	close(c.done)
}
