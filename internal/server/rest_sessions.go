package server

import (
	"context"
	"slices"
	"sync"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/git"
)

// How many ended sessions are kept whose responses were not fetched, and how many bytes of them.
const (
	restEndedKept  = 100
	restEndedBytes = 64 << 20
)

// restSessions are the sessions that clients of the session API started or follow. An ended one
// stays until `live` has told its clients, or until there are too many.
type restSessions struct {
	gateway    *gateway.Gateway
	supervisor Supervisor // may be nil

	mu   sync.Mutex     // guards the fields below
	list []*restSession // oldest first
}

// restSession is a session with its queue of responses, which outlives it.
type restSession struct {
	session   *gateway.Session
	responses *gateway.Responses

	started bool // by a client of the session API; guarded by restSessions.mu

	mu      sync.Mutex  // guards the fields below
	caller  *restCaller // the request of live that waits, or nil
	removed bool        // from restSessions
}

// start starts a session with a model, or without one on the local host. The error is that of
// [gateway.Gateway.Start].
func (r *restSessions) start(
	ctx context.Context, modelID, workingDirectory string,
) (*gateway.Session, error) {
	request := gateway.StartRequest{
		Host: apiHostCopilot, Model: modelID, CWD: workingDirectory,
		Label: git.Label(workingDirectory),
	}
	if modelID == gateway.HostLocal {
		request.Host, request.Model = gateway.HostLocal, ""
	}
	s, err := r.gateway.Start(ctx, request)
	if err != nil {
		return nil, err
	}
	if r.supervisor != nil {
		r.supervisor.Settle(ctx, s.ID())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(s, true).started = true
	return s, nil
}

// get returns a running session, whoever started it, or nil.
func (r *restSessions) get(id string) *gateway.Session {
	s, _ := r.gateway.Session(id)
	return s
}

// running lists the sessions that clients of the session API started and that have not ended.
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

func (s *restSession) hasEnded() bool { return chans.IsClosed(s.session.Done()) }

// add returns the entry of a session, and makes it if it is missing; fromStart says whether
// its queue begins with the session or now. Call with mu held.
func (r *restSessions) add(s *gateway.Session, fromStart bool) *restSession {
	if i := slices.IndexFunc(r.list, func(known *restSession) bool {
		return known.session == s
	}); i >= 0 {
		return r.list[i]
	}
	r.evictEnded()
	added := &restSession{session: s, responses: s.Responses(fromStart)}
	r.list = append(r.list, added)
	return added
}

// evictEnded removes the oldest ended sessions over restEndedKept or restEndedBytes. The newest
// stays however large it is. Call with mu held.
func (r *restSessions) evictEnded() {
	ended, bytes := 0, 0
	for _, s := range slices.Backward(slices.Clone(r.list)) {
		if !s.hasEnded() {
			continue
		}
		ended++
		bytes += s.responses.Bytes()
		if ended > restEndedKept || ended > 1 && bytes > restEndedBytes {
			r.remove(s)
		}
	}
}

// remove removes an ended session. Call with mu held.
func (r *restSessions) remove(s *restSession) {
	s.mu.Lock()
	s.removed = true
	s.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(known *restSession) bool { return known == s })
}

// findOrAdd returns the entry of a session id, or nil if there is no such session. An ended session
// goes before a running one with the same id, until it is removed.
func (r *restSessions) findOrAdd(id string) *restSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.list {
		if s.session.ID() == id {
			return s
		}
	}
	if s := r.get(id); s != nil {
		return r.add(s, false)
	}
	return nil
}

// acquire makes a caller the one that a session's `live` answers, until it calls release. If it
// can't be, the session is nil and the string is the word to answer with.
func (r *restSessions) acquire(
	ctx context.Context, id string, c *restCaller,
) (*restSession, string) {
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

// acquireResult is the result of [restSession.acquire].
type acquireResult int

const (
	acquired acquireResult = iota
	busy
	wasRemoved // the session is no more in restSessions
)

// acquire refuses a caller while another one waits for a response. It waits for one that has its
// answer or has disconnected, since that is about to release the session.
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
		isLeaving := other.answering || other.hasHungUp()
		s.mu.Unlock()
		if !isLeaving {
			return busy
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return busy
		}
	}
}

// markAnswering lets the next caller wait for this one, which is about to get its answer.
func (s *restSession) markAnswering(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.answering = true
}

// release lets the next caller acquire the session.
func (s *restSession) release(c *restCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = nil
	close(c.done)
}
