package providers

import (
	"context"

	"tapgw/internal/protocol"
)

// joining is a session that a provider of all sessions is about to join: it is
// prepared, the gateway is asked with session.ready, and says so with started.
// The sessions of the hello need no asking.
type joining struct {
	session string
	cancel  context.CancelFunc // ends PrepareSession
	ready   bool               // it has returned
	asked   bool               // the gateway was asked
	binding *binding           // since the gateway has joined them
}

// prepare begins what is to be done before sessions are joined, and reports
// whether nothing of it is left to do.
func (c *conn) prepare() (done bool) {
	for id, j := range c.joining {
		if !c.isActive(id) {
			j.cancel()
			delete(c.joining, id)
		}
	}
	done = true
	for _, s := range c.active {
		if c.bindings[s.ID] != nil && c.joining[s.ID] == nil || c.ended[s.ID] {
			continue
		}
		j := c.joining[s.ID]
		if j == nil {
			j = c.prepareOne(s)
		}
		done = done && j.ready
	}
	return done
}

func (c *conn) prepareOne(s Session) *joining {
	ctx, cancel := context.WithCancel(c.ctx)
	j := &joining{session: s.ID, cancel: cancel}
	c.joining[s.ID] = j
	f := c.run.p.opts.PrepareSession
	if f == nil || c.run.prepared[s.ID] {
		j.ready = true
		cancel()
		return j
	}
	c.run.wg.Go(func() {
		defer cancel()
		guard(c.log, func() { f(ctx, s) })
		select {
		case c.prepared <- j:
		case <-c.ctx.Done():
		}
	})
	return j
}

// ready goes on with a session that is prepared.
func (c *conn) ready(j *joining) error {
	if c.joining[j.session] != j {
		return nil // it ended meanwhile
	}
	j.ready = true
	c.run.prepared[j.session] = true
	if c.state == isBound {
		c.join()
		c.proceed()
	}
	return c.bind()
}

// join asks to join the sessions that are prepared, and opens those that are
// joined.
func (c *conn) join() {
	c.prepare()
	for _, s := range c.active { // in their order
		j := c.joining[s.ID]
		switch {
		case j == nil || !j.ready:
		case j.binding != nil:
			delete(c.joining, s.ID)
			c.open(j.binding)
		case !j.asked:
			j.asked = true
			_ = c.send(&protocol.SessionReady{SessionID: s.ID}) // the reader notices
		}
	}
}

// joined makes the binding to a session that the gateway has joined.
func (c *conn) joined(session string) *binding {
	s, ok := c.find(session)
	if !ok {
		return nil
	}
	j := c.joining[session]
	if j == nil {
		j = c.prepareOne(s) // it came while the hello was on its way
	}
	j.asked = true
	j.binding = c.enter(session)
	c.join()
	c.proceed()
	return j.binding
}

// notReady lets a session be asked for again, when the offer or the list of
// sessions has changed.
func (c *conn) notReady(m *protocol.Error) {
	for id, j := range c.joining {
		if j.binding == nil && (id == m.SessionID || m.SessionID == "") {
			j.asked = false
		}
	}
}
