package gateway

import (
	"strings"

	"tapgw/internal/protocol"
)

// checkAdmission asks for a place for the provider. The error is RATE_LIMITED.
func (c *Conn) checkAdmission() *protocol.Error {
	if c.opts.Admit == nil {
		return nil
	}
	if ok, full := c.opts.Admit(); !ok {
		return errorf(protocol.CodeRateLimited, "%s", full)
	}
	return nil
}

// auth handles auth with a token or a reconnect token. See docs/protocol.md, "Tokens".
func (c *Conn) auth(m *protocol.Auth) {
	g := c.g
	if m.Mode == protocol.ModePair {
		c.pair(m)
		return
	}
	id := g.identify(m.Token)
	if c.opts.ForeignOrigin && !strings.HasPrefix(m.Token, prefixPaired) {
		id = nil
	}
	g.mu.Lock()
	restore := g.useReconnectToken(m.ReconnectToken)
	g.mu.Unlock()
	if id == nil && restore != nil && m.Token == "" {
		id = restore.identity
	}
	if id == nil {
		g.mu.Lock()
		g.keepMemory(restore)
		g.mu.Unlock()
		c.refuseToken(m.Token)
		return
	}
	err := c.checkAdmission()
	g.mu.Lock()
	if err != nil {
		g.keepMemory(restore)
		g.mu.Unlock()
		c.reportError(err)
		return
	}
	if c.is(closed) { // meanwhile, by another goroutine
		g.mu.Unlock()
		return
	}
	c.authTimer.Stop()
	c.restore = restore
	c.admit(id, "")
	g.mu.Unlock()
	c.peer.Flush()
}

// keepMemory lets a reconnect token be used again, if there was one. Call with Gateway.mu
// held.
func (g *Gateway) keepMemory(m *reconnectMemory) {
	if m != nil {
		g.memories[m.key] = m
	}
}

// admit lets the provider in with an identity and queues the sessions list, with the
// token that it was paired with, if any. Call with Gateway.mu held.
func (c *Conn) admit(id *identity, pairedToken string) {
	c.identity = id
	c.state.Store(int32(awaitHello))
	list := c.g.sessionsFor(id)
	c.sessionsSent = len(list) > 0
	c.peer.Send(&protocol.Sessions{Token: pairedToken, Active: list})
}

// refuseToken answers a wrong token with AUTH_FAILED and counts it. Reconnect tokens and paired
// tokens are not counted: clients try them after their end, which is no guessing.
func (c *Conn) refuseToken(token string) {
	c.g.stats.AuthFailures.Add(1)
	text := refusedToken(token, c.opts.ForeignOrigin)
	counts := c.opts.BadSecret != nil && token != "" && !strings.HasPrefix(token, prefixPaired)
	if counts && c.opts.BadSecret() {
		text = "too many wrong tokens came from this address, and this is one; " +
			"retry in a minute, with the right one at once"
	}
	c.reportError(errorf(protocol.CodeAuthFailed, "%s", text))
}

// announce queues the sessions list if the connection is to get it after a change, and
// reports whether it did. Call with Gateway.mu held.
func (c *Conn) announce() bool {
	now := state(c.state.Load())
	if now == awaitAuth || now == awaitPairing || now == closed {
		return false
	}
	list := c.g.sessionsFor(c.identity)
	if now == awaitHello && !c.sessionsSent {
		// A client that has not said hello yet waits for `sessions`, not for an update.
		if len(list) == 0 {
			return false
		}
		c.sessionsSent = true
		c.peer.Send(&protocol.Sessions{Active: list})
		return true
	}
	c.peer.Send(&protocol.SessionsUpdated{Active: list})
	if now == unbound && c.needsSessionList && len(list) > 0 &&
		c.identity.mayBind(c.g.sessions[list[0].ID]) {
		// Some clients say hello again only at this message.
		c.needsSessionList = false
		c.peer.Send(&protocol.Sessions{Active: list})
	}
	return true
}
