package sources

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// This file queues a source's events and sends them as pushes, at the rate that the gateway takes.

const (
	// pushRate is how many pushes a source makes in a second: fewer than the gateway takes.
	pushRate = protocol.PushRate - 2
	// maxWaiting and maxWaitingBytes bound the events that wait to be pushed.
	maxWaiting      = 1000
	maxWaitingBytes = 1 << 20
	// maxJoined bounds the text of one push that several events of one level make, in bytes.
	maxJoined   = 32 << 10
	refusedWait = time.Second
	// maxSent is how many pushes without an answer are kept: those of some seconds.
	maxSent = 4 * pushRate
)

// push is an event that waits to be pushed, or for the gateway's answer.
type push struct {
	event, prompt string
	level         protocol.Level
	metadata      protocol.Raw
	session       string   // "" for all
	joined        int      // events that the text has, if they may be joined
	more          []string // events that follow the first, to be joined
	moreBytes     int      // of them, with the ends of lines
	done          chan<- protocol.Message
	traceparent   string // of the run that noticed it
}

// outbox has the pushes of a source. If events come faster than the gateway takes them, it joins
// them, and at last drops the oldest.
type outbox struct {
	waiting []push
	bytes   int
	dropped int
	limit   *rate.Limiter
	paused  time.Time // nothing is pushed before
	sent    map[string]push
	last    uint64 // request
}

func (p *push) size() int { return len(p.event) + len(p.prompt) + p.moreBytes }

// join adds the event of q, if both are lines of one run for the same readers.
func (p *push) join(q push) bool {
	if p.joined == 0 || q.joined == 0 || q.level != p.level || q.session != p.session ||
		q.traceparent != p.traceparent ||
		p.size()+1+len(q.event) > maxJoined {
		return false
	}
	p.more = append(p.more, q.event)
	p.moreBytes += 1 + len(q.event)
	p.joined += q.joined
	return true
}

func (o *outbox) add(p push) {
	n := len(o.waiting)
	o.bytes += p.size()
	if n > 0 && o.waiting[n-1].join(p) {
		o.bytes++ // the end of a line
	} else {
		o.waiting = append(o.waiting, p)
	}
	for len(o.waiting) > maxWaiting || o.bytes > maxWaitingBytes && len(o.waiting) > 1 {
		o.bytes -= o.waiting[0].size()
		o.dropped += o.waiting[0].joined
		o.waiting = o.waiting[1:]
	}
}

// flush pushes as much as it may, and returns when it can go on.
func (o *outbox) flush(s *source, now time.Time) time.Duration {
	if !s.binding.isBound {
		return never
	}
	if o.limit == nil && len(o.waiting) > 0 {
		o.limit = rate.NewLimiter(pushRate, pushRate)
	}
	for len(o.waiting) > 0 {
		if wait := o.paused.Sub(now); wait > 0 {
			return wait
		}
		if !o.limit.AllowN(now, 1) {
			return time.Second / pushRate
		}
		o.push(s, o.next())
	}
	return never
}

// next takes the first push.
func (o *outbox) next() push {
	p := o.waiting[0]
	o.bytes -= p.size()
	if o.waiting = o.waiting[1:]; len(o.waiting) == 0 {
		o.waiting = nil
	}
	p.event = strings.Join(append([]string{p.event}, p.more...), "\n")
	p.more, p.moreBytes = nil, 0
	if o.dropped > 0 && p.joined > 0 {
		p.event = strconv.Itoa(o.dropped) +
			" events before this one came too fast and were dropped\n" + p.event
		o.dropped = 0
	}
	return p
}

// remember keeps the last push until it is answered. Of broadcasts, whose answers are not counted,
// it keeps the latest.
func (o *outbox) remember(p push) {
	if o.sent == nil {
		o.sent = map[string]push{}
	}
	o.sent[strconv.FormatUint(o.last, 10)] = p
	if o.last > maxSent {
		old := strconv.FormatUint(o.last-maxSent, 10)
		if o.sent[old].done == nil {
			delete(o.sent, old)
		}
	}
}

func (o *outbox) push(s *source, p push) {
	o.last++
	id := strconv.FormatUint(o.last, 10)
	o.remember(p)
	m := &protocol.Push{
		Stream: s.config.Stream, Event: p.event, Prompt: p.prompt, Level: p.level,
		Metadata: p.metadata, RequestID: id, SessionID: p.session, Traceparent: p.traceparent,
	}
	if s.o.Session == protocol.AllSessions && p.session == "" {
		m.Broadcast = true
		if !s.hasSession() { // an event of another level would be refused
			m.Level = protocol.LevelKeep
		}
	}
	s.conn.send(m)
}

// answered handles the gateway's answer to a push.
func (o *outbox) answered(s *source, m protocol.Message) {
	switch m := m.(type) {
	case *protocol.Error:
		p, ok := o.sent[m.RequestID]
		if !ok {
			s.o.Line(fromGateway, m.Message)
			return
		}
		if p.session == "" && s.o.Session == protocol.AllSessions {
			p.session = m.SessionID // the others have it
		} else {
			delete(o.sent, m.RequestID)
		}
		if m.Code == protocol.CodeRateLimited && p.event != "" {
			o.paused = time.Now().Add(refusedWait)
			o.waiting = append([]push{p}, o.waiting...)
			o.bytes += len(p.event)
			return
		}
		s.o.Line(fromGateway, "an event was refused: "+m.Message)
		p.tell(m)
	case *protocol.Ack:
		p, ok := o.sent[m.RequestID]
		if !ok || m.Fate == string(adminapi.FateQueued) {
			return
		}
		if p.session != "" || s.o.Session != protocol.AllSessions {
			delete(o.sent, m.RequestID)
		}
		if m.Reason != "" {
			s.o.Line(fromGateway, "an event was "+m.Fate+": "+visible.Line(m.Reason))
		}
		p.tell(m)
	}
}

func (p push) tell(m protocol.Message) {
	if p.done != nil {
		select {
		case p.done <- m:
		default:
		}
	}
}
