package providers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"tapgw/internal/protocol"
)

// This file sends changes of the offer, one after the other, and waits for their confirmation.

// change is a change of the offer on its way to the gateway. Changes are sent one after the other:
// a gateway accepts one at a time of each kind (docs/protocol.md, "Updates"), and one order for all
// kinds is simpler.
type change struct {
	what    string // for errors: "adding tool greet"
	session string // "": all bound sessions
	// apply changes a clone of the offer. Nil: the offer stays as it is.
	apply func(*offer) error
	// message makes the message to the gateway.
	message func(o *offer, session, id string) protocol.Message
	// then runs on the loop when the turn of this change has come. Such a change has neither apply
	// nor message.
	then func()
	// has room for one; nil: no caller waits, so errors are reported to OnError
	done chan changeResult
}

// changeResult is the end of a change.
type changeResult struct {
	revision uint64
	err      error
}

// finish ends a change: it gives the result to the caller that waits, or returns the error if no
// caller waits.
func (ch *change) finish(revision uint64, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", ch.what, err)
	}
	if ch.done != nil {
		ch.done <- changeResult{revision, err}
		return nil
	}
	return err
}

// change makes a change and waits until the gateway has confirmed it.
func (p *Provider) change(ctx context.Context, ch *change) (uint64, error) {
	ch.done = make(chan changeResult, 1)
	_ = p.submit(ch)
	select {
	case r := <-ch.done:
		return r.revision, r.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.queue = slices.DeleteFunc(p.queue, func(q *change) bool { return q == ch })
	p.mu.Unlock()
	select {
	case r := <-ch.done:
		return r.revision, r.err
	default:
		return 0, fmt.Errorf("%s: %w", ch.what, ctx.Err())
	}
}

// changeEach makes a change in each of some sessions, or one change for all sessions if the list is
// empty.
func (p *Provider) changeEach(ctx context.Context, sessions []string,
	make func(session string) *change) (
	revision uint64, err error) {
	if len(sessions) == 0 {
		return p.change(ctx, make(""))
	}
	for _, s := range sessions {
		r, e := p.change(ctx, make(s))
		revision, err = max(revision, r), errors.Join(err, e)
	}
	return revision, err
}

// submit queues a change. Without a connection the change happens at once, and the error is that of
// [change.finish].
func (p *Provider) submit(ch *change) error {
	defer p.wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changeConn != nil {
		p.queue = append(p.queue, ch)
		return nil
	}
	return p.applyOffline(ch)
}

// applyOffline makes a change while there is no connection. The caller holds mu.
func (p *Provider) applyOffline(ch *change) error {
	if ch.then != nil {
		return nil
	}
	o, _, err := p.tryChange(ch, "")
	if err == nil {
		p.offer = o
	}
	return ch.finish(0, err)
}

// tryChange returns the offer after a change, and the message about it. The caller holds mu.
func (p *Provider) tryChange(ch *change, id string) (*offer, protocol.Message, error) {
	o := p.offer.clone()
	if ch.apply != nil {
		if err := ch.apply(o); err != nil {
			return nil, nil, err
		}
	}
	m := ch.message(o, ch.session, id)
	if _, ok := m.(*protocol.ToolsUpdate); ok {
		return o, m, nil // the tools were checked before
	}
	if err := protocol.Validate(m); err != nil {
		return nil, nil, fromGateway(err)
	}
	return o, m, nil
}

// sentChange is the change that the gateway has got and not answered yet.
type sentChange struct {
	change   *change
	id       string
	typ      protocol.Type
	due      map[string]bool // the sessions whose confirmation is missing
	revision uint64
}

// sendChanges sends the queued changes, one at a time.
func (c *conn) sendChanges() {
	for c.state == isBound && c.sent == nil && !c.paused {
		ch, m, err := c.nextChange()
		switch {
		case ch == nil:
			return
		case ch.then != nil:
			ch.then()
			continue
		case err != nil:
			c.finishChange(err, ch)
			continue
		}
		if err, tooLarge := errors.AsType[*Error](c.send(m)); tooLarge {
			c.finishChange(err, ch)
			continue
		}
		// The reader notices a lost connection.
		switch {
		case len(c.sent.due) == 0:
			c.finishChange(nil, ch) // no session is bound, so there is no answer
		case c.confirmsUpdates:
			c.answerTimer.Reset(answerTimeout)
		default:
			c.silenceTimer.Reset(ackWait)
		}
	}
}

// nextChange removes the next change from the queue and returns it with its message.
func (c *conn) nextChange() (*change, protocol.Message, error) {
	p := c.run.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var ch *change
	for ch == nil || c.isObsolete(ch) {
		if len(p.queue) == 0 {
			return nil, nil, nil
		}
		ch = p.queue[0]
		p.queue = p.queue[1:]
	}
	if ch.then != nil {
		return ch, nil, nil
	}
	c.updateCount++
	id := "update-" + strconv.FormatUint(c.updateCount, 10)
	o, m, err := p.tryChange(ch, id)
	if err != nil {
		return ch, nil, err
	}
	p.sent = o
	c.sent = &sentChange{change: ch, id: id, typ: m.MessageType(), due: c.sessionsFor(ch.session)}
	return ch, m, nil
}

// isObsolete reports whether a change restores something in a session that has ended.
func (c *conn) isObsolete(ch *change) bool {
	if ch.done != nil || ch.session == "" {
		return false
	}
	b := c.bindings[ch.session]
	return b == nil || b.ending
}

// sessionsFor returns the sessions that answer a message about one session, or about all ("").
func (c *conn) sessionsFor(session string) map[string]bool {
	if session != "" {
		return map[string]bool{session: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sessions)
}

// handleConfirmation notes that the gateway has confirmed the sent change in a session.
func (c *conn) handleConfirmation(m *protocol.Ack) {
	t := c.sent
	p := c.run.p
	p.mu.Lock()
	if p.sent != nil {
		// Later messages of the gateway are based on it.
		p.offer, p.sent = p.sent, nil
	}
	p.mu.Unlock()
	t.revision = max(t.revision, m.Revision)
	delete(t.due, m.SessionID)
	if m.SessionID == "" || len(t.due) == 0 {
		c.finishChange(nil, t.change)
		c.sendChanges()
	}
}

// finishChange ends a change: the gateway has confirmed it, or err says why it was refused.
func (c *conn) finishChange(err error, ch *change) {
	c.answerTimer.Stop()
	c.silenceTimer.Stop()
	var revision uint64
	if t := c.sent; t != nil {
		revision = t.revision
	}
	c.sent = nil
	p := c.run.p
	p.mu.Lock()
	if p.sent != nil && err == nil {
		p.offer = p.sent
	}
	p.sent = nil
	if coded, ok := errors.AsType[*Error](err); ok && coded.Code == CodeRateLimited {
		// The gateway accepts it a second later. A caller whose context ends before removes it from
		// the queue.
		p.queue = slices.Insert(p.queue, 0, ch)
		p.mu.Unlock()
		c.paused = true
		c.retryTimer.Reset(firstRetry)
		return
	}
	p.mu.Unlock()
	if err := ch.finish(revision, err); err != nil && !c.isObsolete(ch) {
		c.reportRefusal(err)
	}
}

// isAboutSent reports whether an error is about the sent change. A gateway of the core profile
// sends no request ids, so there the type decides.
func (c *conn) isAboutSent(m *protocol.Error) bool {
	t := c.sent
	return t != nil && (m.RequestID == t.id || (m.RequestID == "" && m.ReplyTo == t.typ))
}

// unlink stops sending changes on this connection. The queued changes, and the one that the gateway
// has not answered, are part of the next hello.
func (c *conn) unlink() {
	p := c.run.p
	c.paused = false
	t := c.sent
	c.sent = nil
	p.mu.Lock()
	if p.changeConn != c {
		p.mu.Unlock()
		return
	}
	p.changeConn = nil
	if p.sent != nil {
		p.offer, p.sent = p.sent, nil
	}
	if t != nil {
		c.answerTimer.Stop()
		c.silenceTimer.Stop()
		_ = t.change.finish(t.revision, nil)
	}
	var errs []error
	for _, ch := range p.queue {
		errs = append(errs, p.applyOffline(ch))
	}
	p.queue = nil
	p.mu.Unlock()
	for _, err := range errs {
		if err != nil {
			c.reportRefusal(err)
		}
	}
}
