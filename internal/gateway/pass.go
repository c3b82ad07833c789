package gateway

import (
	"context"
	"path"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// PassSpec describes a [Pass]: the rights of the provider that holds its token, by trust, grants,
// sessions, names and tools. The zero value of a field other than Trust restricts nothing and
// grants nothing. See docs/protocol.md, "Trust".
type PassSpec struct {
	// Trust is [TrustProject] or [TrustExternal].
	Trust Trust
	// Session is the only session that it may bind; "" for any one that Match allows.
	Session string
	// At is the gateway of a cluster that has Session; "" for this one.
	At string
	// All allows it to bind all sessions at once, too.
	All bool
	// Match reports whether it may bind a session; nil: any. It must not block. With MatchLabels it
	// needs only the id and the label, so that it judges sessions of other gateways, too.
	Match       func(adminapi.Session) bool
	MatchLabels bool
	// Grants widen the trust: "transforms", "gates", "context", "questions".
	Grants []string
	// Tools restricts its tools.
	Tools ToolPolicy
	// Token is the token that the provider has already; "" for a new one. When another
	// pass has the same token now, this one gets a new one.
	Token string
	// Name is the only provider name that it may use; "" for any.
	Name string
	// Owner says whose passes share the name and its streams: the author of the provider
	// files, or another gateway.
	Owner string
	// Gateway is the gateway that the provider is connected to, of a cluster; "" for this one. Such
	// a provider has no directory and names no files here.
	Gateway string
	// Own says that the provider is a part of the gateway, for [adminapi.Provider].
	Own bool
	// Model says that the session's model decides when the provider injects. All such providers of
	// a session count as one for the guard against loops, however often they are started.
	Model bool
	// Budgeted says that something else bounds how often the provider injects: the guard against
	// loops does not count it. Its injects are not the user's word.
	Budgeted bool
	// Refused is called with the error of each hello that is refused. It may be nil.
	Refused func(error)
	// Bound is called when a provider with the pass is first bound. It may be nil, and must not
	// block or call the gateway.
	Bound func()
	// Replaces are passes that this one replaces in the step in which it is first bound, in
	// Session only if that is set, so that no session is without the tools. Their running
	// calls stay where they are.
	Replaces []*Pass
}

// ToolPolicy restricts a provider's tools, as its provider file says: which tools sessions
// get, under which names, and how many calls run for how long. The zero value changes
// nothing.
type ToolPolicy struct {
	Allow, Deny []string      // globs of the provider's own tool names; no Allow: all
	Prefix      string        // of the names in sessions
	Concurrency int           // calls at once on all its connections; 0: as its hello says
	Timeout     time.Duration // the longest of a call; 0: as the tool says
}

// Allows reports whether sessions may have a tool, by the provider's own name for it.
func (p *ToolPolicy) Allows(name string) bool {
	matches := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, err := path.Match(glob, name)
			return ok && err == nil
		})
	}
	return (len(p.Allow) == 0 || matches(p.Allow)) && !matches(p.Deny)
}

// prefixed returns the names that tools have in sessions.
func (p *ToolPolicy) prefixed(names []string) []string {
	if p.Prefix == "" || names == nil {
		return names
	}
	prefixed := make([]string, len(names))
	for i, name := range names {
		prefixed[i] = p.Prefix + name
	}
	return prefixed
}

// Pass is a token that was made for one provider, with its identity; several connections
// may use it. Its methods may be called from any goroutine, under no lock of the gateway.
type Pass struct {
	g        *Gateway
	token    string
	identity *identity
}

// Issue makes a pass. Its token is valid until [Pass.Retire] or [Pass.Revoke] is called,
// another pass replaces it, or the session of spec.Session ends. No session sees a
// difference before a provider binds with it.
func (g *Gateway) Issue(spec PassSpec) *Pass {
	id := &identity{PassSpec: spec}
	id.Token, id.Replaces, id.Grants = "", nil, slices.Clone(spec.Grants)
	if spec.Owner != "" || spec.Name != "" {
		id.owner = fileOwner(spec.Owner)
	}
	if spec.Name != "" {
		id.Name = protocol.NormalName(spec.Name)
		id.otherNameHint = "; another one is set by name in the provider's file"
	}
	if spec.All {
		id.Grants = append(id.Grants, grantAll)
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

// Token is the pass's token, a secret with the prefix "ptk-" unless [PassSpec].Token gave
// it. It must not be logged.
func (p *Pass) Token() string { return p.token }

// IsBound reports whether a provider with the pass was ever bound.
func (p *Pass) IsBound() bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.identity.wasBound
}

// Name is the normal name of a provider that is connected with the pass and has said hello; ""
// while no such provider is connected.
func (p *Pass) Name() string {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if conns := p.conns(); len(conns) > 0 {
		return conns[0].provider.name
	}
	return ""
}

// conns are the connections with the pass whose providers have said hello. Call with Gateway.mu
// held.
func (p *Pass) conns() []*Conn {
	return p.g.connsWhere(func(c *Conn) bool { return c.identity == p.identity })
}

// Providers returns the ids, as in [Gateway.Providers], of the providers that are connected with
// the pass and have said hello.
func (p *Pass) Providers() (ids []string) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	for _, c := range p.conns() {
		ids = append(ids, c.provider.id)
	}
	return ids
}

// IsReplaced reports whether another pass, whose [PassSpec].Replaces names this one, has
// replaced it in one session at least. It stays true.
func (p *Pass) IsReplaced() bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.identity.replacedIn != nil
}

// Retire removes the provider's bindings and voids the token. Its connections stay open for
// the results of its calls: wait returns when these have ended, or when its context ends.
func (p *Pass) Retire() (wait func(context.Context)) {
	g := p.g
	var idle []chan struct{}
	g.mu.Lock()
	g.endIdentity(p.identity, p.token)
	for _, c := range p.conns() {
		c.removeBindings()
		if ch := c.provider.idleChannel(); ch != nil {
			idle = append(idle, ch)
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

// Revoke voids the token and closes the connections of the pass with close code 1000; their
// calls end with DISCONNECTED. Calling it again does nothing. [Pass.Retire] lets calls
// finish first.
func (p *Pass) Revoke() {
	g := p.g
	g.mu.Lock()
	g.endIdentity(p.identity, p.token)
	var conns []*Conn
	for c := range g.conns {
		if c.identity == p.identity {
			conns = append(conns, c)
		}
	}
	g.mu.Unlock()
	closeAll(conns, protocol.CloseNormal, "stopped by the gateway")
}

// Replace adds a pass to those that this one replaces, as [PassSpec].Replaces does. It has no
// effect once a provider is bound with this pass.
func (p *Pass) Replace(old *Pass) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.identity.replaces = append(p.identity.replaces, old.identity)
}

// endIdentity voids an identity and its token. Call with Gateway.mu held.
func (g *Gateway) endIdentity(id *identity, token string) {
	id.ended = true
	if key := keyOf(token); g.tokens[key] == id { // else another pass has the token by now
		delete(g.tokens, key)
	}
}

// connsReplacedBy returns the connections of the passes that an identity replaces. Call with
// Gateway.mu held.
func (g *Gateway) connsReplacedBy(id *identity) []*Conn {
	return g.connsWhere(func(c *Conn) bool { return slices.Contains(id.replaces, c.identity) })
}

// unbindReplaced removes the bindings of the passes that an identity replaces. In the
// sessions of rebound it leaves the routes as they are, because the caller's next binding
// rebuilds them. Call with Gateway.mu held.
func (g *Gateway) unbindReplaced(id *identity, conns []*Conn, rebound []*Session) {
	for _, c := range conns {
		for _, b := range slices.Clone(c.provider.bindings) {
			switch {
			case slices.Contains(rebound, b.session):
				b.session.removeBinding(b)
			case id.Session == "" || id.Session == b.session.id:
				b.session.unbind(b)
			}
		}
	}
	for _, old := range id.replaces {
		if old.replacedIn == nil {
			old.replacedIn = map[string]bool{}
		}
		old.replacedIn[id.Session] = true
		old.ended = old.ended || id.Session == "" || id.Session == old.Session
	}
	id.replaces = nil
}

// notifyBound notes that a provider is bound, and calls Bound of the [PassSpec] the first time.
// Call with Gateway.mu held.
func (id *identity) notifyBound() {
	if !id.wasBound && id.Bound != nil {
		id.Bound()
	}
	id.wasBound = true
}
