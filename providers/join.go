package providers

import (
	"context"

	"tapgw/internal/protocol"
)

// joining is a session that a provider of all sessions is about to join: PrepareSession runs, the
// provider sends session.ready, and the gateway answers with the state started. The hello asks for
// the sessions that exist then.
type joining struct {
	session string
	cancel  context.CancelFunc // ends PrepareSession
	ready   bool               // PrepareSession has returned
	asked   bool               // session.ready, or hello, was sent
	binding *binding           // set once the gateway has answered
}

// prepare starts PrepareSession for the sessions that need it, and reports whether it has returned
// for all of them.
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
		_ = guard(c.log, "callback", func() { f(ctx, s) })
		select {
		case c.prepared <- j:
		case <-c.ctx.Done():
		}
	})
	return j
}

// handlePrepared joins a session after PrepareSession has returned.
func (c *conn) handlePrepared(j *joining) error {
	if c.joining[j.session] != j {
		return nil // the session has ended
	}
	j.ready = true
	c.run.prepared[j.session] = true
	if c.state == isBound {
		c.join()
		c.sendChanges()
	}
	return c.bind()
}

// join sends session.ready for the sessions that are prepared, and opens the bindings that the
// gateway has confirmed.
func (c *conn) join() {
	c.prepare()
	for _, s := range c.active { // in the order of the list
		j := c.joining[s.ID]
		switch {
		case j == nil || !j.ready:
		case j.binding != nil:
			delete(c.joining, s.ID)
			c.openBinding(j.binding)
		case !j.asked:
			j.asked = true
			_ = c.send(&protocol.SessionReady{SessionID: s.ID}) // the reader notices an error
		}
	}
}

// joined makes the binding to a session after the gateway has joined both.
func (c *conn) joined(session string) *binding {
	s, ok := c.find(session)
	if !ok {
		return nil
	}
	j := c.joining[session]
	if j == nil {
		j = c.prepareOne(s) // it started after the hello was sent
	}
	j.asked = true
	j.binding = c.newBinding(session)
	c.join()
	c.sendChanges()
	return j.binding
}

// notReady notes a refused session.ready. It is sent again when the offer or the list of sessions
// has changed.
func (c *conn) notReady(m *protocol.Error) {
	for id, j := range c.joining {
		if j.binding == nil && (id == m.SessionID || m.SessionID == "") {
			j.asked = false
		}
	}
}
