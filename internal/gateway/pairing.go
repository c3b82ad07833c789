package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"math/big"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// pairingLife is how long a pairing code is good.
const pairingLife = 2 * time.Minute

// maxPagePairings is how many pairings a minute the pages of all origins may try
// together: who guesses codes names as many origins as he likes, and a code has six
// digits only.
const maxPagePairings = 2 * protocol.MaxPairingsAMinute

// pairing is a pairing code that was shown and not typed yet. Guarded by
// Gateway.mu.
type pairing struct {
	code     string
	provider string // as people see it
	name     string // what it calls itself, "" when it did not say
	session  *Session
	expires  time.Time
	timer    *time.Timer
}

// Pairings lists the codes that wait to be typed.
func (g *Gateway) Pairings() []adminapi.Pairing {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := []adminapi.Pairing{}
	for c := range g.conns {
		if p := c.pairing; p != nil {
			views = append(views, adminapi.Pairing{Provider: p.provider, Code: p.code, Session: p.session.id, ExpiresAt: p.expires.UTC()})
		}
	}
	slices.SortFunc(views, func(a, b adminapi.Pairing) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.Provider, b.Provider))
	})
	return views
}

// pair begins pairing: the code goes to the session's timeline and to whoever
// asks for the pending ones, and only through the user to the provider.
func (c *Conn) pair(m *protocol.Auth) {
	g := c.g
	if !g.pairings.allow(c.opts.Origin) {
		of := ""
		if c.opts.Origin != "" {
			of = fmt.Sprintf(" of this origin, or %d of all pages", maxPagePairings)
		}
		c.reportError(&protocol.Error{Code: protocol.CodeRateLimited, ReplyTo: protocol.TypeAuth,
			Message: fmt.Sprintf("more than %d pairings a minute%s; retry in a minute", protocol.MaxPairingsAMinute, of)})
		return
	}
	g.mu.Lock()
	s := g.foregroundSession()
	if m.Session != "" {
		s = g.sessions[m.Session]
	}
	if s == nil || s.isEnding() {
		g.mu.Unlock()
		e := errorf(protocol.CodeInvalidSession, "there is no session to pair with yet; retry when one has started")
		if m.Session != "" {
			e = noSession(m.Session)
		}
		e.ReplyTo = protocol.TypeAuth
		c.reportError(e)
		return
	}
	p := &pairing{code: newPairingCode(), provider: "unnamed", session: s, expires: time.Now().Add(pairingLife)}
	if protocol.ValidName(m.Name) {
		p.name = protocol.NormalName(m.Name)
		p.provider = p.name
	}
	p.timer = time.AfterFunc(pairingLife, func() {
		if c.is(awaitPairing) {
			c.close(protocol.ClosePolicy, "the pairing code has expired")
		}
	})
	c.pairing = p
	g.touch()
	c.authTimer.Stop()
	c.state.Store(int32(awaitPairing))
	c.peer.Send(&protocol.AuthPairing{Prompt: "Enter the pairing code shown in your Copilot session"})
	g.mu.Unlock()
	s.show(LogWarning, sourcePairing, fmt.Sprintf("Provider '%s' requesting access. Pairing code: %s", p.provider, p.code))
	c.peer.Flush()
}

// newPairingCode makes 6 random digits.
func newPairingCode() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		panic(err) // only without a source of randomness
	}
	return fmt.Sprintf("%06d", n)
}

// confirm takes the code that the user typed: one try a connection.
func (c *Conn) confirm(m *protocol.AuthConfirm) {
	g := c.g
	if full := c.checkAdmission(protocol.TypeAuthConfirm); full != nil {
		c.reportError(full)
		return
	}
	g.mu.Lock()
	p := c.pairing
	c.pairing = nil
	g.touch()
	if p != nil {
		p.timer.Stop()
	}
	if p == nil || p.session.isEnding() || time.Now().After(p.expires) || subtle.ConstantTimeCompare([]byte(p.code), []byte(m.Code)) != 1 {
		g.mu.Unlock()
		g.stats.AuthFailures.Add(1)
		c.reportError(&protocol.Error{Code: protocol.CodeAuthFailed, Message: "the pairing code is wrong or has expired; connect again for a new one", ReplyTo: protocol.TypeAuthConfirm})
		return
	}
	token := newSecret(prefixPaired)
	id := &identity{trust: TrustExternal, session: p.session.id, name: p.name, namedByHello: p.name == "", otherNameHint: "; pair again to use another"}
	switch {
	case c.opts.Origin != "" && c.opts.Origin != "null": // which pages of any site may have
		id.owner = "page of " + c.opts.Origin
	case p.name != "":
		id.owner = "pairing of " + p.name
	}
	g.addToken(token, id)
	c.admit(id, token)
	g.mu.Unlock()
	p.session.note(LogInfo, sourceGateway, fmt.Sprintf("provider %s was paired", p.provider))
	c.peer.Flush()
}
