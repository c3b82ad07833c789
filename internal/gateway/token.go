package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// Trust is a provider's trust level, which its token gives it. It decides which rights a provider
// has beside giving tools and pushing events. See docs/protocol.md, "Trust".
type Trust string

// Trust levels, the highest first: of the admin token; of the instance token and of
// processes that the gateway started; of paired providers and of provider files with kind
// connect.
const (
	TrustInternal Trust = "internal"
	TrustProject  Trust = "project"
	TrustExternal Trust = "external"
)

// identity holds the rights that a connection's token gives. Fields without a guard are fixed.
type identity struct {
	// PassSpec without Token and Replaces. Name is a normal name; see namedByHello.
	PassSpec

	owner         string // of provider names in sessions; several tokens may share one
	namedByHello  bool   // its first hello sets Name; both are guarded by Gateway.mu then
	otherNameHint string // how to get another name approved, for errors

	// Guarded by Gateway.mu.
	ended      bool            // the token is void
	wasBound   bool            // a provider had it
	replaces   []*identity     // replaced when this one is bound
	replacedIn map[string]bool // sessions where another pass replaced it, "" for all
}

// mayBind reports whether the identity may bind a session now. Call with Gateway.mu held.
func (id *identity) mayBind(s *Session) bool {
	return !id.ended && !id.replacedIn[s.id] && (id.Session == "" || id.Session == s.id) &&
		id.includes(s)
}

// includes reports whether the provider file of the token is for a session. Call with
// Gateway.mu held.
func (id *identity) includes(s *Session) bool {
	return id.At == "" && (id.Match == nil || id.Match(s.view()))
}

// tokenKey is the hash by which tokens are looked up, so that the time of a look-up tells
// nothing about a token.
type tokenKey [sha256.Size]byte

func keyOf(token string) tokenKey { return sha256.Sum256([]byte(token)) }

// newSecret makes a token: the prefix of its kind and 128 random bits in hexadecimal.
func newSecret(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return prefix + hex.EncodeToString(b[:])
}

// Prefixes of tokens. See docs/protocol.md, "Tokens".
const (
	prefixProvider  = "ptk-"
	prefixAdmin     = "adm-"
	prefixReconnect = "tok-"
	prefixPaired    = "ext-tok-"
	prefixMCP       = "mcp-"
)

// reconnectMemory is the state that a reconnect token restores. It is kept while its connection is
// up and [protocol.ReconnectWindow] longer. Guarded by Gateway.mu. See docs/protocol.md,
// "Reconnecting".
type reconnectMemory struct {
	identity *identity
	provider *Provider
	session  string // that it was bound to: an id or "all"
	conn     *Conn  // nil when it has ended
	key      tokenKey
}

// InstanceToken is the token for providers that start themselves, of trust project, for any
// one session. Each running gateway, an instance of the program, has its own. See
// docs/protocol.md, "Tokens".
func (g *Gateway) InstanceToken() string { return g.instanceToken }

// AdminToken is the token of the admin API, of session hosts and of internal providers. It
// opens everything, and changes with each start. See docs/protocol.md, "Tokens".
func (g *Gateway) AdminToken() string { return g.adminToken }

// IsAdmin reports whether a token is the admin token of this gateway. It compares hashes,
// so its time tells nothing about the token.
func (g *Gateway) IsAdmin(token string) bool {
	return keyOf(token) == keyOf(g.adminToken)
}

// MCPToken is the token with which an MCP client may use the session at /mcp, and nothing else: it
// is no provider's token and does not open the admin API. A session has one, made when it is first
// asked for, and void when the session ends. The error is INVALID_SESSION if it is ending.
func (s *Session) MCPToken() (string, error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.id] != s || s.isEnding() {
		return "", noSession(s.id)
	}
	if s.mcpToken == "" {
		s.mcpToken = newSecret(prefixMCP)
		g.mcpTokens[keyOf(s.mcpToken)] = s
	}
	return s.mcpToken, nil
}

// ProviderToken makes a token of trust project with which a provider binds the session, and no
// other one. It is void when the session ends. The error is INVALID_SESSION if it is ending.
func (s *Session) ProviderToken() (string, error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.id] != s || s.isEnding() {
		return "", noSession(s.id)
	}
	return g.sessionToken(s.id), nil
}

// MCPSession returns the session that a token of [Session.MCPToken] is for. It compares hashes, so
// its time tells nothing about the token.
func (g *Gateway) MCPSession(token string) (*Session, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mcpTokens[keyOf(token)]
	return s, s != nil
}

// Prove makes the proof that this gateway knows the token with the id: the value of
// [proof.AnswerHeader] for a connection that reached it at address, a [proof.Address]. It is
// "" when no token has the id. See docs/protocol.md, "Is it your gateway?".
func (g *Gateway) Prove(id, nonce, address string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.tokens { // there are few
		if proof.ID(key) == id {
			return proof.Answer(key, nonce, address)
		}
	}
	return ""
}

// IssueSpawnToken makes a provider token of trust project for one session, which need not
// exist yet. It is void when the session ends. See docs/protocol.md, "Tokens".
func (g *Gateway) IssueSpawnToken(session string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessionToken(session)
}

// sessionToken is IssueSpawnToken for callers with g.mu held.
func (g *Gateway) sessionToken(session string) string {
	token := newSecret(prefixProvider)
	g.addToken(token, &identity{PassSpec: PassSpec{Trust: TrustProject, Session: session}})
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

// identify returns the identity of a token; nil when the token is unknown.
func (g *Gateway) identify(token string) *identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens[keyOf(token)]
}

// newReconnectToken makes the reconnect token of a reconnect memory. Call with g.mu held.
func (g *Gateway) newReconnectToken(m *reconnectMemory) string {
	token := newSecret(prefixReconnect)
	m.key = keyOf(token)
	g.memories[m.key] = m
	return token
}

// useReconnectToken returns the memory of a reconnect token and voids the token. It returns
// nil when the token is unknown, used or expired. Call with g.mu held.
func (g *Gateway) useReconnectToken(token string) *reconnectMemory {
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

// dropMemory voids a reconnect token. Call with g.mu held.
func (g *Gateway) dropMemory(m *reconnectMemory) { delete(g.memories, m.key) }

// expireMemory voids a reconnect token after [protocol.ReconnectWindow]. Call with g.mu held,
// when the connection has ended.
func (g *Gateway) expireMemory(m *reconnectMemory) {
	m.conn = nil
	time.AfterFunc(protocol.ReconnectWindow, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.dropMemory(m)
	})
}

// endSessionTokens voids the tokens of a session that ended, also for connections that have
// authenticated with them: a later session may have the same id. Call with g.mu held.
func (g *Gateway) endSessionTokens(session string) {
	for key, s := range g.mcpTokens {
		if s.id == session {
			delete(g.mcpTokens, key)
		}
	}
	for key, id := range g.tokens {
		if id.Session == session && id.At == "" {
			id.ended = true
			delete(g.tokens, key)
		}
	}
}

// refusedToken is the text of the error for a wrong token. It tells the user the next step, by the
// token's kind. It repeats nothing of the token.
func refusedToken(token string, foreignOrigin bool) string {
	kind, _, _ := strings.Cut(token, "-")
	if strings.HasPrefix(token, prefixPaired) {
		kind = strings.TrimSuffix(prefixPaired, "-")
	}
	switch kind += "-"; {
	case token == "":
		return "the reconnect token is used, expired or unknown; authenticate with a token"
	case kind == prefixPaired:
		return "the paired token has ended, with its session or its gateway; pair again: auth " +
			"with \"mode\": \"pair\""
	case kind == prefixReconnect:
		return "a reconnect token is no token; send it as auth.reconnectToken, within 30 s of " +
			"its connection's end"
	case foreignOrigin:
		return "a web page of another origin may not use the gateway's own tokens; " +
			"pair instead: auth with \"mode\": \"pair\""
	case kind == prefixAdmin:
		return "the admin token is not this gateway's; read the .admin-token file again, each " +
			"gateway has a new one"
	case kind == prefixMCP:
		return "that token is for MCP clients of one session, at /mcp; providers take theirs " +
			"from TAP_PROVIDER_TOKEN " +
			"or the .provider-token file"
	case kind == prefixProvider:
		return "the provider token is not this gateway's, or has ended; read its file again " +
			"(.provider-token, " +
			"or providers/NAME.token for kind = \"connect\"); one from TAP_PROVIDER_TOKEN ends " +
			"with its session"
	}
	return "that is no token of a gateway; providers take theirs from TAP_PROVIDER_TOKEN or the " +
		".provider-token file"
}

// errorf makes the error that answers a message.
func errorf(code protocol.Code, format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
