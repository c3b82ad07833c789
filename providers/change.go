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

// change is a change of the offer on its way to the gateway. They go one after
// the other: a gateway takes one at a time of each kind (v2, "Update
// acknowledgments"), and one order for all is easier to reason about.
type change struct {
	what    string // for errors: "adding tool greet"
	session string // "" for all that are bound
	// apply changes a clone of the offer; nil: it stays as it is.
	apply func(*offer) error
	// message says so to the gateway; nil: there is nothing to say.
	message func(o *offer, session, id string) protocol.Message
	// then runs on the loop when its turn has come; such a change is no more.
	then func()
	done chan changed // holds one; nil: nobody waits, so errors are reported
}

// changed is what came of a change.
type changed struct {
	revision uint64
	err      error
}

// finish tells whoever waits, and returns the error if that is nobody.
func (ch *change) finish(revision uint64, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", ch.what, err)
	}
	if ch.done != nil {
		ch.done <- changed{revision, err}
		return nil
	}
	return err
}

// change makes a change and waits for the gateway to confirm it.
func (p *Provider) change(ctx context.Context, ch *change) (uint64, error) {
	ch.done = make(chan changed, 1)
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

// changeEach makes a change for each of some sessions, or for all.
func (p *Provider) changeEach(ctx context.Context, sessions []string, make func(session string) *change) (
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

// submit begins a change. It is over when it returns while there is no
// connection to tell; the error is then its own, if nobody waits for that.
func (p *Provider) submit(ch *change) error {
	defer p.poke()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		p.queue = append(p.queue, ch)
		return nil
	}
	return p.settle(ch)
}

// settle makes a change without telling anyone. Call with mu held.
func (p *Provider) settle(ch *change) error {
	if ch.then != nil {
		return nil
	}
	o, _, err := p.try(ch, "")
	if err == nil {
		p.offer = o
	}
	return ch.finish(0, err)
}

// try makes the offer that a change leads to, and the message that says it.
// Call with mu held.
func (p *Provider) try(ch *change, id string) (*offer, protocol.Message, error) {
	o := p.offer.clone()
	if ch.apply != nil {
		if err := ch.apply(o); err != nil {
			return nil, nil, err
		}
	}
	m := ch.message(o, ch.session, id)
	if _, ok := m.(*protocol.ToolsUpdate); ok {
		return o, m, nil // each tool was checked when it came
	}
	if err := protocol.Validate(m); err != nil {
		return nil, nil, fromGateway(err)
	}
	return o, m, nil
}

// telling is the change that the gateway was told of and has not answered yet.
type telling struct {
	change   *change
	id       string
	typ      protocol.Type
	due      map[string]bool // the sessions that it has not confirmed it for
	revision uint64
}

// proceed tells the gateway of the changes that wait, one at a time.
func (c *conn) proceed() {
	for c.state == isBound && c.telling == nil && !c.paused {
		ch, m, err := c.next()
		switch {
		case ch == nil:
			return
		case ch.then != nil:
			ch.then()
			continue
		case err != nil:
			c.told(err, ch)
			continue
		}
		if err, tooLarge := errors.AsType[*Error](c.send(m)); tooLarge {
			c.told(err, ch)
			continue
		}
		// A lost connection shows in the reader.
		switch {
		case len(c.telling.due) == 0:
			c.told(nil, ch) // no session is bound, so nobody confirms it
		case c.confirms:
			c.await.Reset(answerTimeout)
		default:
			c.silent.Reset(ackWait)
		}
	}
}

// next takes the next change and its message.
func (c *conn) next() (*change, protocol.Message, error) {
	p := c.run.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var ch *change
	for ch == nil || c.overtaken(ch) {
		if len(p.queue) == 0 {
			return nil, nil, nil
		}
		ch = p.queue[0]
		p.queue = p.queue[1:]
	}
	if ch.then != nil {
		return ch, nil, nil
	}
	c.updates++
	id := "update-" + strconv.FormatUint(c.updates, 10)
	o, m, err := p.try(ch, id)
	if err != nil {
		return ch, nil, err
	}
	p.trial = o
	c.telling = &telling{change: ch, id: id, typ: m.MessageType(), due: c.dueFor(ch.session)}
	return ch, m, nil
}

// overtaken reports whether a change restores something for a session that has
// ended.
func (c *conn) overtaken(ch *change) bool {
	if ch.done != nil || ch.session == "" {
		return false
	}
	b := c.bindings[ch.session]
	return b == nil || b.ending
}

// dueFor are the sessions that answer what is about one session, or all.
func (c *conn) dueFor(session string) map[string]bool {
	if session != "" {
		return map[string]bool{session: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sessions)
}

// confirmed takes the gateway's word about the change that it was told of.
func (c *conn) confirmed(m *protocol.Ack) {
	t := c.telling
	p := c.run.p
	p.mu.Lock()
	if p.trial != nil {
		// What comes after this message goes by it already.
		p.offer, p.trial = p.trial, nil
	}
	p.mu.Unlock()
	t.revision = max(t.revision, m.Revision)
	delete(t.due, m.SessionID)
	if m.SessionID == "" || len(t.due) == 0 {
		c.told(nil, t.change)
		c.proceed()
	}
}

// told ends a change: the gateway took it, or err says why not.
func (c *conn) told(err error, ch *change) {
	c.await.Stop()
	c.silent.Stop()
	var revision uint64
	if t := c.telling; t != nil {
		revision = t.revision
	}
	c.telling = nil
	p := c.run.p
	p.mu.Lock()
	if p.trial != nil && err == nil {
		p.offer = p.trial
	}
	p.trial = nil
	if coded, ok := errors.AsType[*Error](err); ok && coded.Code == CodeRateLimited {
		// A second later it is taken; a caller whose context ends sooner takes
		// it out of the queue.
		p.queue = slices.Insert(p.queue, 0, ch)
		p.mu.Unlock()
		c.paused = true
		c.retry.Reset(firstRetry)
		return
	}
	p.mu.Unlock()
	if err := ch.finish(revision, err); err != nil && !c.overtaken(ch) {
		c.complain(err)
	}
}

// answersTelling reports whether an error is about the change that the gateway
// was told of: a gateway of the core profile knows no request ids.
func (c *conn) answersTelling(m *protocol.Error) bool {
	t := c.telling
	return t != nil && (m.RequestID == t.id || (m.RequestID == "" && m.ReplyTo == t.typ))
}

// unlink ends the connection's part in changes. Those that wait, and the one
// that the gateway has not answered, are in the next hello.
func (c *conn) unlink() {
	p := c.run.p
	c.paused = false
	t := c.telling
	c.telling = nil
	p.mu.Lock()
	if p.link != c {
		p.mu.Unlock()
		return
	}
	p.link = nil
	if p.trial != nil {
		p.offer, p.trial = p.trial, nil
	}
	if t != nil {
		c.await.Stop()
		c.silent.Stop()
		_ = t.change.finish(t.revision, nil)
	}
	var errs []error
	for _, ch := range p.queue {
		errs = append(errs, p.settle(ch))
	}
	p.queue = nil
	p.mu.Unlock()
	for _, err := range errs {
		if err != nil {
			c.complain(err)
		}
	}
}
