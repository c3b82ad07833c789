package gateway

import (
	"context"
	"slices"
	"sync"
)

// Limits of a response queue, in bytes.
const (
	maxResponseBytes = 64 << 20
	// the queue shrinks to this when it is over the limit
	lowResponseBytes = maxResponseBytes * 3 / 4
	responseCost     = 350 // about what a response takes beside its texts
)

// Responses is a session's response queue (docs/admin-api.md, "Responses"): all
// responses since the queue began, for one reader that removes them. Unlike the
// feed it drops nothing up to 64 MiB. Then it drops the oldest deltas, whose text comes
// again with the complete content. Its lock is a leaf below the feed's.
type Responses struct {
	added counter         // of the responses that were added
	ended <-chan struct{} // closed with the session

	mu    sync.Mutex // guards the fields below
	items []Response // oldest first
	last  uint64     // number of the newest
	bytes int
}

// Response is one entry of a response queue: a callback or an error of the session.
// [Responses.Remove] takes it to tell which entry was read.
type Response struct {
	Event Event
	seq   uint64
}

// Responses returns the session's response queue, which begins at the first call: with
// all callbacks that the feed still has, or only with those whose end has not come
// yet, so that the queue holds no end without its beginning.
func (s *Session) Responses(fromStart bool) *Responses {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.responses == nil {
		f.responses = &Responses{ended: f.ended}
		var lines []LiveLine
		for _, e := range f.entries {
			if l, ok := e.Value.(LiveLine); ok {
				lines = append(lines, l)
			}
		}
		if !fromStart {
			lines = unfinished(lines)
		}
		for _, l := range lines {
			f.responses.add(l.Event)
		}
	}
	return f.responses
}

// startCallback maps the callback that ends something to the one that begins it.
var startCallback = map[string]string{
	OnEndReasoning: OnStartReasoning, OnEndMessage: OnStartMessage,
	OnEndToolExecution: OnStartToolExecution, OnAgentEnd: OnAgentStart,
}

// unfinished returns the lines that begin something whose end is not among the lines.
func unfinished(lines []LiveLine) []LiveLine {
	var open []LiveLine
	for _, l := range lines {
		e := l.Event
		switch start, isEnd := startCallback[e.Callback]; {
		case isEnd:
			isStart := func(o LiveLine) bool {
				return o.Event.Callback == start && o.Event.ID == e.ID
			}
			open = slices.DeleteFunc(open, isStart)
		case e.Callback == OnIdle:
			open = nil
		case e.Callback == OnStartReasoning, e.Callback == OnStartMessage,
			e.Callback == OnStartToolExecution, e.Callback == OnAgentStart:
			open = append(open, l)
		}
	}
	return open
}

// Next waits for a response and returns the oldest one, without removing it: see
// [Responses.Remove]. The error is [ErrSessionEnded] if the session ends first, or that of ctx.
func (q *Responses) Next(ctx context.Context) (Response, error) {
	for {
		n := q.added.value()
		if r, ok := q.oldest(); ok {
			return r, nil
		}
		if err := q.added.wait(ctx, n, q.ended); err != nil {
			return Response{}, err
		}
	}
}

func (q *Responses) oldest() (r Response, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return r, false
	}
	return q.items[0], true
}

// Remove removes the response that [Responses.Next] returned, once its reader has it for
// certain. It does nothing if the full queue has dropped the response meanwhile.
func (q *Responses) Remove(r Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 && q.items[0].seq == r.seq {
		q.bytes -= r.size()
		q.items[0] = Response{}
		q.items = q.items[1:]
	}
}

// Bytes is about how many bytes of memory the queue takes; at most about 64 MiB.
func (q *Responses) Bytes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

func (q *Responses) add(e Event) {
	if e.isMeasure() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// callbacks of the session API don't have them
	e.Forwarded, e.Data, e.Requests, e.Duration = "", nil, nil, 0
	q.items = append(q.items, q.number(e))
	if q.bytes > maxResponseBytes {
		q.shrink()
	}
	q.added.increment()
}

// number makes the next response of the queue and adds its size. Call with mu held.
func (q *Responses) number(e Event) Response {
	q.last++
	r := Response{e, q.last}
	q.bytes += r.size()
	return r
}

func (r Response) size() int { return responseCost + liveSize(&LiveLine{Event: r.Event}) }

// shrink drops the oldest deltas, many at once, since each time takes a walk through
// the queue. If that is not enough it drops all responses but the newest, oldest first,
// and puts an error in their place. Call with mu held.
func (q *Responses) shrink() {
	newest := q.last
	dropOldest := func(isDroppable func(Response) bool) {
		q.items = slices.DeleteFunc(q.items, func(r Response) bool {
			if q.bytes <= lowResponseBytes || !isDroppable(r) {
				return false
			}
			q.bytes -= r.size()
			return true
		})
	}
	dropOldest(func(r Response) bool { return r.Event.isDelta() })
	if q.bytes <= maxResponseBytes {
		return
	}
	dropOldest(func(r Response) bool { return r.seq != newest })
	missing :=
		Event{SessionError: "responses are missing here: more than 64 MiB of them waited to " +
			"be read"}
	q.items = slices.Insert(q.items, 0, q.number(missing))
}
