package gateway

import (
	"fmt"
	"slices"

	"tapgw/internal/protocol"
)

// offerChange makes a new offer from an old one, which it leaves as it is.
type offerChange func(old *offer) (*offer, *protocol.Error)

// update applies a change in all sessions that a message is for, or in no session if one refuses
// it. No call is dispatched by the old offer after the ack. See docs/protocol.md, "Updates".
func (c *Conn) update(t protocol.Type, session, requestID string, change offerChange) {
	g := c.g
	var err *protocol.Error
	targets := func() []*Session { return c.sessionsForUpdate(t, session, change) }
	if failed := g.lockWithHooks(targets); len(failed) > 0 {
		err = failed[0].refusal()
	} else {
		err = c.applyUpdate(t, session, requestID, change)
		g.mu.Unlock()
	}
	if err != nil {
		c.reportError(err)
		return
	}
	c.peer.Flush()
}

// applyUpdate is update after hooks were enabled. Call with Gateway.mu held.
func (c *Conn) applyUpdate(
	t protocol.Type, session, requestID string, change offerChange,
) *protocol.Error {
	bindings, err := c.bindingsOf(session, t)
	if err != nil {
		return err
	}
	p := c.provider
	offers := []*offer{}
	for _, b := range bindings {
		o, err := change(b.offer)
		if err != nil {
			return err
		}
		if err := b.session.checkTools(p, o.tools); err != nil {
			return err
		}
		offers = append(offers, o)
	}
	if session == "" || !p.all {
		// Sessions that begin later get it, and a reconnect restores it.
		base, err := change(p.base)
		if err != nil {
			return err
		}
		p.base = base
		c.g.rememberOffer(p)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range bindings {
		b.offer = offers[i]
		b.record.revision++
		b.session.rebuildRoutes()
		c.ack(b, requestID, "")
		if t == protocol.TypeHooksUpdate {
			b.session.warnUnmatchedRules(p, b.offer.rules)
		}
	}
	if len(bindings) == 0 {
		c.ackNone(requestID, "")
	}
	return nil
}

// ackNone queues the ack of an update while a provider of all sessions has no binding.
func (c *Conn) ackNone(requestID, stream string) {
	if requestID != "" {
		c.peer.Send(&protocol.Ack{RequestID: requestID, SessionID: protocol.AllSessions,
			Stream: stream})
	}
}

// ack queues the ack of an update in one session, if the update has a requestId. stream is
// the name of a filter's stream if the provider spelled it otherwise. Call with Gateway.mu
// held.
func (c *Conn) ack(b *binding, requestID, stream string) {
	if requestID != "" {
		c.peer.Send(&protocol.Ack{
			RequestID: requestID, SessionID: b.session.id, Revision: b.record.revision,
			Stream: stream,
		})
	}
}

// toolsUpdate handles tools.update.
func (c *Conn) toolsUpdate(m *protocol.ToolsUpdate) {
	p := c.provider
	changed := p.newTools(m.Tools)
	c.update(protocol.TypeToolsUpdate, m.SessionID, m.RequestID,
		func(old *offer) (*offer, *protocol.Error) {
			for _, t := range changed {
				t.slots = c.g.limits.slotsFor(p, t.Name)
			}
			o := *old
			o.tools = changed
			if m.Remove != nil {
				o.tools = mergeTools(old.tools, changed, p.policy.prefixed(m.Remove))
			}
			if n := len(o.tools); n > protocol.MaxTools {
				return nil, errorf(protocol.CodePayloadTooLarge,
					"tools.update.tools: %d tools are over the limit of %d", n, protocol.MaxTools)
			}
			return &o, nil
		})
}

// hooksUpdate handles hooks.update.
func (c *Conn) hooksUpdate(m *protocol.HooksUpdate) {
	p := c.provider
	rules, err := p.compileRules("hooks.update.", m.OnPreToolUse)
	if denied := c.identity.check(m); denied != nil {
		err = denied
	}
	if err != nil {
		c.reportError(err)
		return
	}
	c.update(protocol.TypeHooksUpdate, m.SessionID, m.RequestID,
		func(old *offer) (*offer, *protocol.Error) {
			o := *old
			if m.OnPreToolUse != nil {
				o.rules = rules
			}
			o.transforms = p.mergeTransforms(old.transforms, m.Transforms)
			if n := len(o.transforms); n > protocol.MaxTransforms {
				return nil, errorf(protocol.CodePayloadTooLarge,
					"hooks.update.transforms: %d sections are over the limit of %d", n,
					protocol.MaxTransforms)
			}
			return &o, nil
		})
}

// contextUpdate handles context.update.
func (c *Conn) contextUpdate(m *protocol.ContextUpdate) {
	if err := c.identity.check(m); err != nil {
		c.reportError(err)
		return
	}
	c.update(protocol.TypeContextUpdate, m.SessionID, m.RequestID,
		func(old *offer) (*offer, *protocol.Error) {
			o := *old
			o.context = *m.Context
			return &o, nil
		})
}

// filterSet handles filter.set. See docs/protocol.md, "Filters".
func (c *Conn) filterSet(m *protocol.FilterSet) {
	g, p := c.g, c.provider
	f, fault := compileFilter(m)
	key, spelling := parseStream(m.Stream, p.name)
	if key.provider != p.name {
		fault = errorf(protocol.CodeUnauthorized,
			"filter.set.stream: a provider may set filters of its own streams only")
	}
	g.mu.Lock()
	var bindings []*binding
	if fault == nil {
		bindings, fault = c.bindingsOf(m.SessionID, protocol.TypeFilterSet)
	}
	for _, b := range bindings {
		if fault == nil {
			fault = b.session.streams.checkFilter("filter.set.stream", key, spelling, len(f) == 0)
		}
	}
	if fault == nil {
		p.mu.Lock()
		for _, b := range bindings {
			b.session.streams.setFilter(key, spelling, f)
			b.record.revision++
			c.ack(b, m.RequestID, changedName(spelling))
		}
		if len(bindings) == 0 {
			c.ackNone(m.RequestID, changedName(spelling))
		}
		p.mu.Unlock()
	}
	g.mu.Unlock()
	if fault != nil {
		c.reportError(fault)
		return
	}
	c.peer.Flush()
}

// streamQuery handles stream.query. See docs/protocol.md, "Queries".
func (c *Conn) streamQuery(m *protocol.StreamQuery) {
	g, p := c.g, c.provider
	g.mu.Lock()
	bindings, err := c.bindingsOf(m.SessionID, protocol.TypeStreamQuery)
	if err == nil && p.all && m.SessionID == "" {
		err = errorf(protocol.CodeInvalidSession,
			"stream.query.sessionId: is required of a provider that is bound to all sessions")
	}
	g.mu.Unlock()
	if err != nil {
		c.reportError(err)
		return
	}
	keys, err := c.queryKeys(m.Streams)
	if err != nil {
		c.reportError(err)
		return
	}
	last := protocol.DefaultQueryLast
	if m.Last != nil {
		last = min(*m.Last, protocol.MaxQueryLast)
	}
	answer := &protocol.StreamHistory{QueryID: m.QueryID,
		Streams: map[string][]protocol.StreamEntry{}}
	budget := maxHistoryBytes
	for _, b := range bindings {
		if m.Streams == nil {
			keys = b.session.streams.names(p.name)
		}
		for _, key := range keys {
			answer.Streams[key.String()] = b.session.streams.entries(key, last, &budget)
		}
	}
	c.peer.Send(answer)
	c.peer.Flush()
}

// queryKeys parses the streams of a query. The error is UNAUTHORIZED for streams of another
// provider, unless the identity may read them.
func (c *Conn) queryKeys(streams []string) ([]streamKey, *protocol.Error) {
	keys := make([]streamKey, len(streams))
	for i, s := range streams {
		key, _ := parseStream(s, c.provider.name)
		if key.provider != c.provider.name && !c.identity.may(mayReadOthers) {
			field := fmt.Sprintf("stream.query.streams[%d]", i)
			return nil, c.identity.unauthorized(field, "read streams of other providers")
		}
		keys[i] = key
	}
	return slices.Compact(keys), nil
}
