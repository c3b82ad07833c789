package gateway

import (
	"context"
	"slices"
	"sync"
)

// Bounds of a response queue.
const (
	maxResponseBytes = 64 << 20                 // bytes that may wait
	lowResponseBytes = maxResponseBytes * 3 / 4 // bytes that stay when more came
	responseCost     = 350                      // bytes of a response beside its texts
)

// Responses is a session's response queue (spec/session-api.md,
// copilot/session/{session-id}/live): what the session did since the queue began
// and nobody has taken yet. Other than the live feed it is for one reader, whom
// it keeps everything for: past 64 MiB the oldest deltas are left out, whose text
// comes again with the complete content. Its lock is a leaf below the live feed's.
type Responses struct {
	mu    sync.Mutex
	items []Response // oldest first
	last  uint64     // number of the newest
	bytes int
	ended bool
	added chan struct{} // closed when there is news; nil while nobody waits
}

// Response is one entry of a response queue.
type Response struct {
	Event Event
	seq   uint64
}

// Responses returns the session's response queue, which begins when it is first
// asked for: with everything that the session did so far, or with what is under
// way, so that nothing ends in it that did not begin.
func (s *Session) Responses(fromStart bool) *Responses {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if s.responses == nil {
		s.responses = &Responses{ended: s.live.closed}
		lines := s.live.items
		if !fromStart {
			lines = unfinished(lines)
		}
		for _, l := range lines {
			s.responses.add(l.Event)
		}
	}
	return s.responses
}

// startCallback gives the callback that comes before the one that ends something.
var startCallback = map[string]string{
	OnEndReasoning: OnStartReasoning, OnEndMessage: OnStartMessage, OnEndToolExecution: OnStartToolExecution, OnAgentEnd: OnAgentStart,
}

// unfinished returns the lines that began something and were not followed by its end.
func unfinished(lines []LiveLine) []LiveLine {
	var open []LiveLine
	for _, l := range lines {
		e := l.Event
		switch start, ends := startCallback[e.Callback]; {
		case ends:
			open = slices.DeleteFunc(open, func(o LiveLine) bool { return o.Event.Callback == start && o.Event.ID == e.ID })
		case e.Callback == OnIdle:
			open = nil
		case e.Callback == OnStartReasoning, e.Callback == OnStartMessage, e.Callback == OnStartToolExecution, e.Callback == OnAgentStart:
			open = append(open, l)
		}
	}
	return open
}

// closeLive tells those who follow the session that nothing more comes.
func (s *Session) closeLive() {
	s.live.close()
	s.live.mu.Lock()
	q := s.responses
	s.live.mu.Unlock()
	if q != nil {
		q.close()
	}
}

// Next returns the oldest response, which stays where it is until
// [Responses.Remove]. It waits for one until ctx ends, and returns
// [ErrSessionEnded] when there will be none any more.
func (q *Responses) Next(ctx context.Context) (Response, error) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			r := q.items[0]
			q.mu.Unlock()
			return r, nil
		}
		if q.ended {
			q.mu.Unlock()
			return Response{}, ErrSessionEnded
		}
		if q.added == nil {
			q.added = make(chan struct{})
		}
		more := q.added
		q.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return Response{}, ctx.Err()
		}
	}
}

// Remove removes what Next returned. It may have given way meanwhile.
func (q *Responses) Remove(r Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 && q.items[0].seq == r.seq {
		q.bytes -= r.size()
		q.items[0] = Response{}
		q.items = q.items[1:]
	}
}

// Bytes is about how much memory the queue takes.
func (q *Responses) Bytes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

func (q *Responses) add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.Forwarded, e.Data, e.Requests = "", nil, nil // no callback has them
	q.items = append(q.items, q.response(e))
	if q.bytes > maxResponseBytes {
		q.shrink()
	}
	q.wake()
}

// response numbers and weighs an entry. Call with mu held.
func (q *Responses) response(e Event) Response {
	q.last++
	r := Response{e, q.last}
	q.bytes += r.size()
	return r
}

func (r Response) size() int { return responseCost + liveSize(LiveLine{Event: r.Event}) }

func (q *Responses) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake()
}

func (q *Responses) wake() {
	if q.added != nil {
		close(q.added)
		q.added = nil
	}
}

// shrink lets the oldest deltas go, many at once, since each time costs a walk
// through the queue. Where they are not enough it lets the oldest responses go,
// but the newest, and says so in their place. Call with mu held.
func (q *Responses) shrink() {
	newest := q.last
	drop := func(may func(Response) bool) {
		q.items = slices.DeleteFunc(q.items, func(r Response) bool {
			if q.bytes <= lowResponseBytes || !may(r) {
				return false
			}
			q.bytes -= r.size()
			return true
		})
	}
	drop(func(r Response) bool {
		c := r.Event.Callback
		return c == OnReasoning || c == OnMessage || c == OnToolExecution
	})
	if q.bytes <= maxResponseBytes {
		return
	}
	drop(func(r Response) bool { return r.seq != newest })
	q.items = slices.Insert(q.items, 0, q.response(Event{SessionError: "responses are missing here: more than 64 MiB of them waited to be read"}))
}
