package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// Trust is how far a provider is trusted (v2, "Trust levels").
type Trust string

// Trust levels.
const (
	TrustInternal Trust = "internal"
	TrustProject  Trust = "project"
	TrustExternal Trust = "external"
)

// identity is what a secret proves: who holds it and which sessions it opens.
// It is fixed once made, but for its end and what says so.
type identity struct {
	ended         bool   // its only session has; guarded by Gateway.mu
	owner         string // of the names that it uses, in sessions; the same for all tokens of one owner
	name          string // the only one that it may use, "" for any; guarded by Gateway.mu until it is set
	namedByHello  bool   // its first hello says the name; guarded by Gateway.mu
	otherNameHint string // where another name can be approved, for the error
	trust         Trust
	session       string   // the only session it may bind; "" for any
	grants        []string // what a provider file widens, see grantable

	// Of a [Pass].
	match      func(adminapi.Session) bool // nil: any session
	policy     ToolPolicy
	bound      chan struct{}   // closed when it is first bound; nil: nobody waits
	onRefused  func(error)     // of PassSpec; nil: nobody asks
	replaces   []*identity     // until this one is bound; guarded by Gateway.mu
	replacedIn map[string]bool // the sessions that are another's now, "" for all; guarded by Gateway.mu
}

// mayBind needs Gateway.mu held.
func (id *identity) mayBind(s *Session) bool {
	return !id.ended && !id.replacedIn[s.id] && (id.session == "" || id.session == s.id) && id.includes(s)
}

// includes reports whether a session is one of those that the token was made for, as its
// file says. It needs Gateway.mu held.
func (id *identity) includes(s *Session) bool { return id.match == nil || id.match(s.view()) }

// tokenKey is what tokens are looked up by. The map compares hashes, so how
// long a look-up takes says nothing about a secret.
type tokenKey [sha256.Size]byte

func keyOf(token string) tokenKey { return sha256.Sum256([]byte(token)) }

// newSecret makes a token of 128 random bits behind a prefix that says its kind.
func newSecret(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return prefix + hex.EncodeToString(b[:])
}

// Prefixes of the tokens (design/protocol.md, "Tokens and trust").
const (
	prefixProvider  = "ptk-"
	prefixAdmin     = "adm-"
	prefixReconnect = "tok-"
	prefixPaired    = "ext-tok-"
)

// memory is what a reconnect token restores: the identity of a binding that
// ended less than [protocol.ReconnectWindow] ago, or still stands. Guarded by
// Gateway.mu.
type memory struct {
	identity *identity
	provider *Provider
	session  string // what it was bound to: an id or "all"
	conn     *Conn  // still up, or nil
	key      tokenKey
}

// InstanceToken is the token of this gateway's life, for providers that start
// themselves.
func (g *Gateway) InstanceToken() string { return g.instanceToken }

// AdminToken opens the admin API, session hosts and internal providers.
func (g *Gateway) AdminToken() string { return g.adminToken }

// IsAdmin reports whether a token is the admin token.
func (g *Gateway) IsAdmin(token string) bool {
	return keyOf(token) == keyOf(g.adminToken)
}

// Prove answers a client's question whether this gateway knows the token that id
// names: the value of [proof.AnswerHeader] for a connection that
// reached it at address, a [proof.Address].
// It is "" when no token of the gateway's has that id. The answer helps nobody who
// does not have the token: it is an HMAC with the token's hash over an address of
// this gateway, which clients take from nobody else.
func (g *Gateway) Prove(id, nonce string, address string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.tokens { // there are few
		if proof.ID(key) == id {
			return proof.Answer(key, nonce, address)
		}
	}
	return ""
}

// IssueSpawnToken makes a provider token that binds one session and dies with it.
func (g *Gateway) IssueSpawnToken(session string) string {
	return g.issue(&identity{trust: TrustProject, session: session})
}

func (g *Gateway) issue(id *identity) string {
	token := newSecret(prefixProvider)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addToken(token, id)
	return token
}

// addToken makes a token valid for an identity. Call with g.mu held.
func (g *Gateway) addToken(token string, id *identity) {
	key := keyOf(token)
	if id.owner == "" {
		id.owner = fmt.Sprintf("token %x", key[:8])
	}
	g.tokens[key] = id
}

// identify finds what a token proves; nil when it proves nothing.
func (g *Gateway) identify(token string) *identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens[keyOf(token)]
}

// newReconnectToken makes the reconnect token of a new binding. Call with g.mu held.
func (g *Gateway) newReconnectToken(m *memory) string {
	token := newSecret(prefixReconnect)
	m.key = keyOf(token)
	g.memories[m.key] = m
	return token
}

// useReconnectToken takes a reconnect token: it works once. It returns nil for one that is
// unknown, used or expired. Call with g.mu held.
func (g *Gateway) useReconnectToken(token string) *memory {
	if token == "" {
		return nil
	}
	key := keyOf(token)
	m := g.memories[key]
	delete(g.memories, key)
	if m != nil && m.identity.ended {
		return nil
	}
	return m
}

// forget voids the reconnect token of a binding. Call with g.mu held.
func (g *Gateway) dropMemory(m *memory) { delete(g.memories, m.key) }

// expireMemory voids it when nobody came back for [protocol.ReconnectWindow]. Call with
// g.mu held, when the connection is gone.
func (g *Gateway) expireMemory(m *memory) {
	m.conn = nil
	time.AfterFunc(protocol.ReconnectWindow, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.dropMemory(m)
	})
}

// endSessionTokens voids the tokens that die with a session, also for those who have
// authenticated with them: another session may have its id later. Call with g.mu
// held.
func (g *Gateway) endSessionTokens(session string) {
	for key, id := range g.tokens {
		if id.session == session {
			id.ended = true
			delete(g.tokens, key)
		}
	}
}

// refusedToken says what to do about a token that was refused, by its kind. It
// repeats nothing of the token.
func refusedToken(token string, foreignOrigin bool) string {
	kind, _, _ := strings.Cut(token, "-")
	if strings.HasPrefix(token, prefixPaired) {
		kind = strings.TrimSuffix(prefixPaired, "-")
	}
	switch kind += "-"; {
	case token == "":
		return "the reconnect token is used, expired or unknown; authenticate with a token"
	case kind == prefixPaired:
		return "the paired token has ended, with its session or its gateway; pair again: auth with \"mode\": \"pair\""
	case kind == prefixReconnect:
		return "a reconnect token is no token; send it as auth.reconnectToken, within 30 s of its connection's end"
	case foreignOrigin:
		return "a web page of another origin may not use the gateway's own tokens; pair instead: auth with \"mode\": \"pair\""
	case kind == prefixAdmin:
		return "the admin token is not this gateway's; read the .admin-token file again, each gateway has a new one"
	case kind == prefixProvider:
		return "the provider token is not this gateway's, or has ended; read its file again (.provider-token, " +
			"or providers/NAME.token for kind = \"connect\"); one from TAP_PROVIDER_TOKEN ends with its session"
	}
	return "that is no token of a gateway; providers take theirs from TAP_PROVIDER_TOKEN or the .provider-token file"
}

// errorf makes the error that answers a message.
func errorf(code protocol.Code, format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
