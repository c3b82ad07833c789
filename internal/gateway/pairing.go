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

// pairingLife is how long a pairing code is valid.
const pairingLife = 2 * time.Minute

// maxPagePairings is how many pairings a minute the pages of all origins may try together. An
// attacker that guesses codes can use any number of origins, and a code has six digits.
const maxPagePairings = 2 * protocol.MaxPairingsAMinute

// pairing is a pairing code that waits for a person to type it. Guarded by Gateway.mu.
type pairing struct {
	code     string
	provider string // the name that people are shown
	name     string // of auth, or ""
	session  *Session
	expires  time.Time
	timer    *time.Timer
}

// Pairings lists the pairing codes that wait for a person to type them, oldest first, as
// GET /pairings of docs/admin-api.md shows them. A code leaves the list after two minutes
// or one try. See docs/protocol.md, "Pairing".
func (g *Gateway) Pairings() []adminapi.Pairing {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := []adminapi.Pairing{}
	for c := range g.conns {
		if p := c.pairing; p != nil {
			views = append(views, adminapi.Pairing{
				Provider: p.provider, Code: p.code, Session: p.session.id,
				ExpiresAt: p.expires.UTC(),
			})
		}
	}
	slices.SortFunc(views, func(a, b adminapi.Pairing) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.Provider, b.Provider))
	})
	return views
}

// pair handles auth with mode pair. It shows a code in the session's timeline and in
// Pairings; the provider can learn it only from the user. See docs/protocol.md, "Pairing".
func (c *Conn) pair(m *protocol.Auth) {
	g := c.g
	if !g.pairings.allow(c.opts.Origin) {
		scope := ""
		if c.opts.Origin != "" {
			scope = fmt.Sprintf(" of this origin, or %d of all pages", maxPagePairings)
		}
		c.reportError(errorf(protocol.CodeRateLimited,
			"more than %d pairings a minute%s; retry in a minute", protocol.MaxPairingsAMinute,
			scope))
		return
	}
	g.mu.Lock()
	s := g.foregroundSession()
	if m.Session != "" {
		s = g.sessions[m.Session]
	}
	if s == nil || s.isEnding() {
		g.mu.Unlock()
		err := errorf(protocol.CodeInvalidSession,
			"there is no session to pair with yet; retry when one has started")
		if m.Session != "" {
			err = noSession(m.Session)
		}
		c.reportError(err)
		return
	}
	p := &pairing{code: newPairingCode(), provider: "unnamed", session: s,
		expires: time.Now().Add(pairingLife)}
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
	c.peer.Send(
		&protocol.AuthPairing{Prompt: "Enter the pairing code shown in your Copilot session"})
	g.mu.Unlock()
	text := fmt.Sprintf("Provider '%s' requesting access. Pairing code: %s", p.provider, p.code)
	s.show(adminapi.LogWarning, sourcePairing, text)
	c.peer.Flush()
}

// newPairingCode makes a code of 6 random digits.
func newPairingCode() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		panic(err) // only without a source of randomness
	}
	return fmt.Sprintf("%06d", n)
}

// isPairingCode reports whether a code is the one that the connection waits for. Call with g.mu
// held.
func (c *Conn) isPairingCode(code string) bool {
	p := c.pairing
	return p != nil && !p.session.isEnding() && !time.Now().After(p.expires) &&
		subtle.ConstantTimeCompare([]byte(p.code), []byte(code)) == 1
}

// confirm handles auth.confirm with the code that the user typed. A connection has one try.
func (c *Conn) confirm(m *protocol.AuthConfirm) {
	g := c.g
	g.mu.Lock()
	isRight := c.isPairingCode(m.Code)
	g.mu.Unlock()
	if isRight { // a wrong code is no reason for a place
		if err := c.checkAdmission(); err != nil {
			c.reportError(err)
			return
		}
	}
	g.mu.Lock()
	p := c.pairing
	isRight = isRight && c.isPairingCode(m.Code)
	c.pairing = nil
	g.touch()
	if p != nil {
		p.timer.Stop()
	}
	if !isRight {
		g.mu.Unlock()
		g.stats.AuthFailures.Add(1)
		c.reportError(errorf(protocol.CodeAuthFailed,
			"the pairing code is wrong or has expired; connect again for a new one"))
		return
	}
	token := newSecret(prefixPaired)
	id := &identity{
		PassSpec:     PassSpec{Trust: TrustExternal, Session: p.session.id, Name: p.name},
		namedByHello: p.name == "", otherNameHint: "; pair again to use another",
	}
	switch {
	case c.opts.Origin != "" && c.opts.Origin != "null": // pages of any site may have origin null
		id.owner = "page of " + c.opts.Origin
	case p.name != "":
		id.owner = "pairing of " + p.name
	}
	g.addToken(token, id)
	c.admit(id, token)
	g.mu.Unlock()
	p.session.note(adminapi.LogInfo, sourceGateway,
		fmt.Sprintf("provider %s was paired", p.provider))
	c.peer.Flush()
}
