package providers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tapgw/internal/protocol"
)

// Level says how far an [Event] goes into a session (docs/protocol.md, "Pushes").
type Level string

// Levels of an event. Each has the effects of the level before it, and one more.
const (
	Keep    Level = "keep"    // stored in the stream
	Surface Level = "surface" // shown in the session's timeline
	Inject  Level = "inject"  // sent to the model as a prompt, in a turn of its own
)

// Event is a message of a provider to a session. Text, Prompt, or both must be there.
type Event struct {
	// Text describes the event.
	Text string
	// Level says how far the event goes. Empty: [Surface].
	Level Level
	// Stream is the name of the stream that stores it. Empty: the provider's name.
	Stream string
	// Metadata is stored with the event. encoding/json must be able to write it.
	Metadata map[string]any
	// Prompt starts a turn with this text, if it is not empty, whatever the Level.
	Prompt string
	// Session is the id of the session. Empty: the bound one. A provider of [AllSessions] must set
	// Session or Broadcast.
	Session string
	// Broadcast sends the event to every session that the provider is bound to. While there is no
	// session, the gateway keeps an event of level [Keep] without a Prompt of a provider of
	// [AllSessions] for the next session.
	Broadcast bool
}

// Fate is the gateway's treatment of an event (docs/protocol.md, "Receipts").
type Fate string

// Fates of an event.
const (
	Stored Fate = "stored" // the stream has it; the level was keep
	// the timeline shows it; a Reason says why the model does not get it
	Surfaced  Fate = "surfaced"
	Queued    Fate = "queued"    // the model gets it when the session is idle
	Delivered Fate = "delivered" // the model has got it
	Dropped   Fate = "dropped"   // the stream's filter dropped it, or the session has ended
)

// Receipt is the gateway's report about an event. The zero Receipt comes from a gateway that sends
// no receipts: the event was sent and not refused.
type Receipt struct {
	// the id of the session that got it; [AllSessions] if the gateway keeps it for the next session
	Session string
	Seq     uint64 // the event's number in the session
	Fate    Fate
	Reason  string // why it went less far than its level
	// Each has a receipt for each session that got a broadcast, in no particular order. The other
	// fields are then zero.
	Each []Receipt
}

// ackWait is how long to wait for an answer that may not come: gateways of the core profile answer
// only if they refuse.
const ackWait = 250 * time.Millisecond

// likelyWait is how long a push waits for the first receipt of a gateway that is likely to give
// them.
const likelyWait = 5 * time.Second

// PushOption is an option of [Provider.Push].
type PushOption func(*request)

// WaitDelivered makes [Provider.Push] wait until a [Queued] event has another fate: it was
// delivered, surfaced instead, or dropped (docs/protocol.md, "Receipts"). Push does not wait for a
// gateway that sends no receipts.
func WaitDelivered(r *request) { r.untilDelivered = true }

// Push sends an event to a session and returns the gateway's receipt (docs/protocol.md, "Pushes").
// The error wraps [ErrNotConnected], the context's error, or the [*Error] with which the gateway
// refused the event: RATE_LIMITED for more than ten a second, INVALID_JSON for an event without
// Text and Prompt. If only some sessions got a broadcast, Push returns their receipts with the
// error.
func (p *Provider) Push(ctx context.Context, e Event, opts ...PushOption) (Receipt, error) {
	m := &protocol.Push{
		Stream: e.Stream, SessionID: e.Session, Event: e.Text, Prompt: e.Prompt,
		Level:     protocol.Level(e.Level),
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
	c, err := p.connected()
	if err != nil {
		return Receipt{}, fmt.Errorf("pushing: %w", err)
	}
	r, err := c.push(ctx, m, opts)
	if err != nil {
		return r, fmt.Errorf("pushing: %w", err)
	}
	return r, nil
}

// Keep stores text in the provider's stream. It is [Provider.Push] with the level [Keep].
func (p *Provider) Keep(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Keep})
	return err
}

// Surface stores text and shows it in the session's timeline. It is [Provider.Push] with the level
// [Surface].
func (p *Provider) Surface(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Surface})
	return err
}

// Inject stores text, shows it and sends it to the model. It is [Provider.Push] with the level
// [Inject].
func (p *Provider) Inject(ctx context.Context, text string) error {
	_, err := p.Push(ctx, Event{Text: text, Level: Inject})
	return err
}

// errCutOff is the error of a request that the gateway may have got or not.
var errCutOff = fmt.Errorf("%w any more: the connection ended before the gateway answered",
	ErrNotConnected)

// request is a push, a query or an answer to a question that waits for the gateway's answer, for
// each session once. The connection's mu guards it until done is closed.
type request struct {
	typ            protocol.Type
	due            map[string]bool // sessions that have not answered
	untilDelivered bool            // the fate queued is not an answer
	receipts       []Receipt
	history        *protocol.StreamHistory
	err            error
	done           chan struct{} // closed when due is empty
}

// push sends m and waits for the answers.
func (c *conn) push(ctx context.Context, m *protocol.Push, opts []PushOption) (Receipt, error) {
	due := c.sessionsFor(m.SessionID)
	switch {
	case m.Broadcast && len(due) > 0, len(due) == 1:
	case m.Broadcast && (m.Level != protocol.LevelKeep || m.Prompt != ""):
		return Receipt{}, ErrNotConnected
	default:
		// One answer comes: that the gateway keeps the broadcast for the next session, or which
		// field is missing.
		due = map[string]bool{"": true}
	}
	r := &request{typ: protocol.TypePush, due: due}
	for _, opt := range opts {
		opt(r)
	}
	var wait time.Duration
	m.RequestID, wait = c.addRequest("push-", r)
	defer c.removeRequest(m.RequestID)

	if err := c.write(ctx, m); err != nil {
		return Receipt{}, err
	}
	var silent <-chan time.Time
	if wait > 0 {
		silent = time.After(wait)
	}
	var err error
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-r.done:
		case <-silent:
			c.mu.Lock()
			// another answer may have shown that this one comes
			silent, waiting = nil, c.givesReceipts
			c.receiptWait = ackWait // after a silence the next ones are silent, too
			c.mu.Unlock()
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.ctx.Done():
			err = errCutOff
		}
	}
	return c.outcome(r, m.Broadcast, err)
}

// addRequest registers a request. It returns its id, and how long a push waits for a receipt; 0 if
// the gateway is known to give them.
func (c *conn) addRequest(prefix string, r *request) (id string, receiptWait time.Duration) {
	r.done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestCount++
	id = prefix + strconv.FormatUint(c.requestCount, 10)
	c.requests[id] = r
	if !c.givesReceipts {
		receiptWait = c.receiptWait
	}
	return id, receiptWait
}

func (c *conn) removeRequest(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}

// outcome returns the result of a push: the receipts that came, and the error unless all came.
func (c *conn) outcome(r *request, broadcast bool, err error) (Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(r.due) == 0 {
		err = nil // all answers came before the end
	}
	if r.err != nil {
		err = errors.Join(r.err, err)
	}
	switch {
	case broadcast:
		return Receipt{Each: r.receipts}, err
	case len(r.receipts) > 0 && err == nil:
		return r.receipts[0], nil
	}
	return Receipt{}, err
}

// handleReceipt gives a receipt to the push or the answer that it is about.
func (c *conn) handleReceipt(m *protocol.Ack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.givesReceipts = true
	r := c.requests[m.RequestID]
	if r == nil || r.typ == protocol.TypeStreamQuery {
		return
	}
	if r.typ == protocol.TypeQuestionAnswer {
		r.noteAnswer(m.SessionID)
		return
	}
	receipt := Receipt{Session: m.SessionID, Seq: m.Seq, Fate: Fate(m.Fate), Reason: m.Reason}
	if r.untilDelivered && receipt.Fate == Queued {
		return
	}
	r.receipts = append(r.receipts, receipt)
	r.noteAnswer(m.SessionID)
}

// noteAnswer notes that a session has answered; "" stands for all. The caller holds the
// connection's mu.
func (r *request) noteAnswer(session string) {
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

// failRequest gives an error to the request that it is about, and reports whether there is one. An
// error without a request id is about the only request of its type, if there is only one.
func (c *conn) failRequest(m *protocol.Error, err error) bool {
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
	r.noteAnswer(session)
	return true
}

// handleHistory gives an answer to the query that it is about.
func (c *conn) handleHistory(m *protocol.StreamHistory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.requests[m.QueryID]; r != nil && r.typ == protocol.TypeStreamQuery && len(r.due) > 0 {
		r.history = m
		r.noteAnswer("")
	}
}

// endSession ends the requests and changes that wait for the answer of a session that has ended.
func (c *conn) endSession(session string) {
	c.mu.Lock()
	delete(c.sessions, session)
	for _, r := range c.requests {
		if r.due[session] {
			r.err = errors.Join(r.err,
				&Error{Code: CodeInvalidSession, Message: fmt.Sprintf("session %q has ended",
					session)})
			if len(r.due) > 1 {
				r.noteAnswer(session)
			} else {
				r.noteAnswer("")
			}
		}
	}
	c.mu.Unlock()
	if t := c.sent; t != nil && t.due[session] {
		if delete(t.due, session); len(t.due) == 0 {
			c.finishChange(nil, t.change)
		}
	}
}
