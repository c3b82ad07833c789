package gateway

import (
	"context"
	"path"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// PassSpec says what the holder of a [Pass] may do.
type PassSpec struct {
	// Trust is [TrustProject] or [TrustExternal].
	Trust Trust
	// Session is the only session; "" for any one that Match takes.
	Session string
	// All allows all sessions at once, too.
	All bool
	// Match says which sessions are open; nil: any. It only looks.
	Match func(adminapi.Session) bool
	// Grants widen the trust: "transforms", "gates", "context".
	Grants []string
	Tools  ToolPolicy
	// Token is to be the token, which the holder has from before; "" for a new one. One
	// that is good already is not taken.
	Token string
	// Name is what the holder may call itself, as a provider file says; "" for
	// anything.
	Name string
	// Owner tells who shares the name's streams: the passes of the files that one
	// author wrote. Only with Name.
	Owner string
	// Refused is called with what is wrong with a hello of the holder; nil: nobody
	// asks.
	Refused func(error)
	// Replaces are passes whose bindings end in the step in which this one is first
	// bound, those in Session only where it is set, so that a session has the tools
	// of the one or of the other. Calls that are running stay with the one that they
	// were sent to.
	Replaces []*Pass
}

// ToolPolicy is what a user says about a provider's tools, whatever the provider
// says. The zero value says nothing.
type ToolPolicy struct {
	Allow, Deny []string      // globs of names as the provider has them; no Allow: all
	Prefix      string        // before each name, in sessions
	Concurrency int           // calls at once, of all its connections; 0: as the provider says
	Timeout     time.Duration // at most, of a call; 0: as the tool says
}

// takes reports whether sessions may have a tool.
func (p *ToolPolicy) allows(name string) bool {
	among := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, err := path.Match(glob, name)
			return ok && err == nil
		})
	}
	return (len(p.Allow) == 0 || among(p.Allow)) && !among(p.Deny)
}

// names are the names that sessions know tools by.
func (p *ToolPolicy) prefixed(list []string) []string {
	if p.Prefix == "" || list == nil {
		return list
	}
	known := make([]string, len(list))
	for i, name := range list {
		known[i] = p.Prefix + name
	}
	return known
}

// Pass is a token that was made for one holder, and what became of it.
type Pass struct {
	g        *Gateway
	token    string
	identity *identity
}

// Issue makes a pass. Its token also ends with its only session.
func (g *Gateway) Issue(spec PassSpec) *Pass {
	id := &identity{trust: spec.Trust, session: spec.Session, match: spec.Match, grants: slices.Clone(spec.Grants),
		policy: spec.Tools, bound: make(chan struct{}), onRefused: spec.Refused}
	if spec.Name != "" {
		id.name, id.owner = protocol.NormalName(spec.Name), fileOwner(spec.Owner)
		id.otherNameHint = "; another one is set by name in the provider's file"
	}
	if spec.All {
		id.grants = append(id.grants, grantAll)
	}
	for _, p := range spec.Replaces {
		if id.owner == "" {
			id.owner = p.identity.owner
		}
		id.replaces = append(id.replaces, p.identity)
	}
	p := &Pass{g: g, token: spec.Token, identity: id}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.token == "" || g.tokens[keyOf(p.token)] != nil {
		p.token = newSecret(prefixProvider)
	}
	g.addToken(p.token, id)
	return p
}

// Token is the secret.
func (p *Pass) Token() string { return p.token }

// Bound is closed when a provider with the pass is bound for the first time.
func (p *Pass) Bound() <-chan struct{} { return p.identity.bound }

// Name is what its holder calls itself; "" while none is connected.
func (p *Pass) Name() string {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	for c := range p.g.conns {
		if c.identity == p.identity && c.provider != nil {
			return c.provider.name
		}
	}
	return ""
}

// IsReplaced reports whether another pass has taken the place of this one, in a
// session at least.
func (p *Pass) IsReplaced() bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.identity.replacedIn != nil
}

// Retire takes the holder's tools, rules and texts out of its sessions; it binds
// no more. Its connections stay, for what it has to say still: done returns when
// the calls that were sent to it have ended, or ctx has.
func (p *Pass) Retire() (done func(context.Context)) {
	g := p.g
	var idle []chan struct{}
	g.mu.Lock()
	g.end(p.identity, p.token)
	for c := range g.conns {
		if c.identity == p.identity {
			c.removeBindings()
			if ch := c.provider.idleChannel(); ch != nil {
				idle = append(idle, ch)
			}
		}
	}
	g.mu.Unlock()
	return func(ctx context.Context) {
		for _, ch := range idle {
			select {
			case <-ch:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Revoke ends the pass with all its connections. More than once does no harm.
func (p *Pass) Revoke() {
	g := p.g
	g.mu.Lock()
	g.end(p.identity, p.token)
	var conns []*Conn
	for c := range g.conns {
		if c.identity == p.identity {
			conns = append(conns, c)
		}
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.close(protocol.CloseNormal, "stopped by the gateway")
	}
}

// end voids an identity and its token. Call with Gateway.mu held.
func (g *Gateway) end(id *identity, token string) {
	id.ended = true
	if key := keyOf(token); g.tokens[key] == id { // else the token is another pass's by now
		delete(g.tokens, key)
	}
}

// replaced are the connections whose place an identity takes when it is bound.
// Call with Gateway.mu held.
func (g *Gateway) connsReplacedBy(id *identity) (conns []*Conn) {
	if id.replaces == nil {
		return nil
	}
	for c := range g.conns {
		if c.provider != nil && slices.Contains(id.replaces, c.identity) {
			conns = append(conns, c)
		}
	}
	return conns
}

// replace ends the bindings of those whose place an identity takes. In the sessions
// that it is bound to next, that step swaps the routes: nobody sees what lies
// between. Call with Gateway.mu held.
func (g *Gateway) unbindReplaced(id *identity, conns []*Conn, next []*Session) {
	for _, c := range conns {
		for _, b := range slices.Clone(c.provider.bindings) {
			switch {
			case slices.Contains(next, b.session):
				b.session.removeBinding(b)
			case id.session == "" || id.session == b.session.id:
				b.session.unbind(b)
			}
		}
	}
	for _, old := range id.replaces {
		if old.replacedIn == nil {
			old.replacedIn = map[string]bool{}
		}
		old.replacedIn[id.session] = true
		old.ended = old.ended || id.session == "" || id.session == old.session
	}
	id.replaces = nil
}

// notifyBound says that an identity is bound. Call with Gateway.mu held.
func (id *identity) notifyBound() {
	if id.bound != nil {
		select {
		case <-id.bound:
		default:
			close(id.bound)
		}
	}
}
