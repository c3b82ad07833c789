package providers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tapgw/internal/protocol"
)

// Level says how far an [Event] goes into a session.
type Level string

// Levels of an event. Each does what the one before does, and more.
const (
	Keep    Level = "keep"    // stored in the stream
	Surface Level = "surface" // shown in the session's timeline
	Inject  Level = "inject"  // given to the model, in a turn of its own
)

// Event is something that a provider tells a session.
type Event struct {
	// Text is what happened. It, Prompt, or both must be there.
	Text string
	// Level is how far it goes. Empty: [Surface].
	Level Level
	// Stream is where it is stored. Empty: the stream of the provider's name.
	Stream string
	// Metadata is stored with it.
	Metadata map[string]any
	// Prompt, when not empty, starts a turn with this text, whatever Level says.
	Prompt string
	// Session is the id of the session it is for. Empty: the bound one. A
	// provider of [AllSessions] has to name it, or to set Broadcast.
	Session string
	// Broadcast brings it into every session that the provider is bound to.
	Broadcast bool
}

// Fate is what became of an event.
type Fate string

// Fates of an event.
const (
	Stored    Fate = "stored"    // in its stream, and no more was asked
	Surfaced  Fate = "surfaced"  // shown; with a Reason: though it was for the model
	Queued    Fate = "queued"    // for the model, when the session is idle
	Delivered Fate = "delivered" // to the model
	Dropped   Fate = "dropped"   // by the stream's filter, or the session's end
)

// Receipt tells what the gateway did with an event. It is the zero Receipt
// where the gateway does not say; such an event was sent and not refused.
type Receipt struct {
	Session string // the id of the session that took it
	Seq     uint64 // the event's number in the session
	Fate    Fate
	Reason  string // why it went less far than asked
	// Each, for a broadcast, has the receipt of each session that took the
	// event, in no particular order; the rest of this one is then zero.
	Each []Receipt
}

// ackWait is how long something waits for an answer from a gateway that may
// give none: gateways of the core profile answer only when they refuse.
const ackWait = 250 * time.Millisecond

// PushOption is an option of [Provider.Push].
type PushOption func(*request)

// WaitDelivered makes [Provider.Push] wait until an event that is [Queued] has
// come to its turn, was surfaced instead, or dropped (docs/protocol.md,
// "Receipts"). A gateway that gives no receipts is not waited for.
func WaitDelivered(r *request) { r.settled = true }

// Push brings an event into the session. The error is [ErrNotConnected], the
// context's, or the [*Error] with which the gateway refused the event:
// RATE_LIMITED for more than ten a second. A broadcast that some sessions took
// returns their receipts beside the error.
func (p *Provider) Push(ctx context.Context, e Event, opts ...PushOption) (Receipt, error) {
	m := &protocol.Push{
		Stream: e.Stream, SessionID: e.Session, Event: e.Text, Prompt: e.Prompt, Level: protocol.Level(e.Level),
		Broadcast: e.Broadcast,
	}
	if e.Level == "" {
		m.Level = protocol.LevelSurface
	}
	if e.Metadata != nil {
		raw, err := marshal("Event.Metadata", e.Metadata)
		if err != nil {
			return Receipt{}, fmt.Errorf("pushing: %w", err)
		}
		m.Metadata = raw
	}
	if err := protocol.Validate(m); err != nil {
		return Receipt{}, fmt.Errorf("pushing: %w", fromGateway(err))
	}
	c, err := p.current()
	if err != nil {
		return Receipt{}, fmt.Errorf("pushing: %w", err)
	}
	r, err := c.push(ctx, m, opts)
	if err != nil {
		return r, fmt.Errorf("pushing: %w", err)
	}
	return r, nil
}

// Keep stores text in the provider's stream.
func (p *Provider) Keep(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Keep})
	return err
}

// Surface stores text and shows it in the session's timeline.
func (p *Provider) Surface(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Surface})
	return err
}

// Inject stores text, shows it and gives it to the model.
func (p *Provider) Inject(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Inject})
	return err
}

// errCutOff is the error of what the gateway may have taken or not.
var errCutOff = fmt.Errorf("%w any more: the connection ended before the gateway answered", ErrNotConnected)

// request is a push or a query that waits for its answers: one of each session
// that it is about. Its connection's mu guards it until done is closed.
type request struct {
	typ     protocol.Type
	due     map[string]bool // sessions that have not answered
	settled bool            // that it is queued is no answer yet
	got     []Receipt
	history *protocol.StreamHistory
	err     error
	done    chan struct{} // closed when all have answered
}

// push sends m and waits for the answers.
func (c *conn) push(ctx context.Context, m *protocol.Push, opts []PushOption) (Receipt, error) {
	due := c.dueFor(m.SessionID)
	if m.Broadcast && len(due) == 0 {
		return Receipt{}, ErrNotConnected
	}
	if !m.Broadcast && len(due) != 1 {
		due = map[string]bool{"": true} // the gateway says what is missing
	}
	r := &request{typ: protocol.TypePush, due: due}
	for _, opt := range opts {
		opt(r)
	}
	var acks bool
	m.RequestID, acks = c.begin("push-", r)
	defer c.forget(m.RequestID)

	if err := c.write(ctx, m); err != nil {
		return Receipt{}, err
	}
	var silent <-chan time.Time
	if !acks {
		silent = time.After(ackWait)
	}
	var err error
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-r.done:
		case <-silent:
			c.mu.Lock()
			silent, waiting = nil, c.acks // one that it may be waiting for
			c.mu.Unlock()
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.ctx.Done():
			err = errCutOff
		}
	}
	return c.outcome(r, m.Broadcast, err)
}

// begin lets a request wait for its answers under an id that it returns. It also
// says whether this gateway gives receipts.
func (c *conn) begin(prefix string, r *request) (id string, acks bool) {
	r.done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested++
	id = prefix + strconv.FormatUint(c.requested, 10)
	c.requests[id] = r
	return id, c.acks
}

func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}

// outcome is what the caller of a push gets: what came, and the first error if
// not all did.
func (c *conn) outcome(r *request, broadcast bool, err error) (Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(r.due) == 0 {
		err = nil // it came with the end
	}
	if r.err != nil {
		err = errors.Join(r.err, err)
	}
	switch {
	case broadcast:
		return Receipt{Each: r.got}, err
	case len(r.got) > 0 && err == nil:
		return r.got[0], nil
	}
	return Receipt{}, err
}

// acknowledged takes a receipt.
func (c *conn) acknowledged(m *protocol.Ack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks = true
	r := c.requests[m.RequestID]
	if r == nil || r.typ != protocol.TypePush {
		return
	}
	receipt := Receipt{Session: m.SessionID, Seq: m.Seq, Fate: Fate(m.Fate), Reason: m.Reason}
	if r.settled && receipt.Fate == Queued {
		return
	}
	r.got = append(r.got, receipt)
	r.answered(m.SessionID)
}

// answered notes that a session has answered. Call with the connection's mu held.
func (r *request) answered(session string) {
	if len(r.due) == 0 {
		return
	}
	if len(r.due) == 1 || session == "" {
		clear(r.due)
	}
	delete(r.due, session)
	if len(r.due) == 0 {
		close(r.done)
	}
}

// refusedRequest gives an error to the push or query that it is about, and
// reports whether there is one. Without a request id it is the only one of its
// kind, if there is only one.
func (c *conn) refusedRequest(m *protocol.Error, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[m.RequestID]
	if r == nil {
		for _, other := range c.requests {
			if other.typ != m.ReplyTo || m.RequestID != "" {
				continue
			}
			if r != nil {
				return false
			}
			r = other
		}
	}
	if r == nil || len(r.due) == 0 {
		return false
	}
	r.err = errors.Join(r.err, err)
	session := m.SessionID
	if !r.due[session] {
		session = ""
	}
	r.answered(session)
	return true
}

// queried gives a query its answer.
func (c *conn) queried(m *protocol.StreamHistory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.requests[m.QueryID]; r != nil && r.typ == protocol.TypeStreamQuery && len(r.due) > 0 {
		r.history = m
		r.answered("")
	}
}

// gone ends what waits for the answer of a session that has ended.
func (c *conn) gone(session string) {
	c.mu.Lock()
	delete(c.sessions, session)
	for _, r := range c.requests {
		if r.due[session] {
			r.err = errors.Join(r.err, &Error{Code: CodeInvalidSession, Message: fmt.Sprintf("session %q has ended",
				session)})
			if len(r.due) > 1 {
				r.answered(session)
			} else {
				r.answered("")
			}
		}
	}
	c.mu.Unlock()
	if t := c.telling; t != nil && t.due[session] {
		if delete(t.due, session); len(t.due) == 0 {
			c.told(nil, t.change)
		}
	}
}
