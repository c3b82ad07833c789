package mcpbridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/google/renameio/v2"
	"golang.org/x/oauth2"

	"tapgw/configs"
	"tapgw/internal/proc"
)

// Logins are the logins at the MCP servers of provider files, kept in a directory with one file for
// each provider. The bridges of one gateway share them; no other process writes the directory. The
// methods may be called from any goroutine.
type Logins struct {
	dir string

	mu  sync.Mutex // guards the field that follows
	all map[string]*login
}

// NewLogins returns the logins that a directory keeps. The directory need not exist; nothing is
// read before a server needs it.
func NewLogins(dir string) *Logins { return &Logins{dir: dir, all: map[string]*login{}} }

// login is the login of one provider.
type login struct {
	file string
	turn chan struct{} // holds an item while a goroutine uses the fields below

	isRead    bool
	kept      *keptLogin // nil without a login
	challenge *challenge // the server's latest request for a login; may be nil

	// unproven is the token that came after the server had refused one, until the server takes it.
	// It is nil otherwise.
	unproven atomic.Pointer[string]

	mu      sync.Mutex // guards the field that follows
	changed chan struct{}
}

// keptLogin is the content of a file. The token is for the server at URL alone, and is refreshed at
// TokenURL alone: that stands for the authorization server that gave it.
type keptLogin struct {
	URL      string `json:"url"`
	Issuer   string `json:"issuer,omitzero"` // that the provider file asked for
	ClientID string `json:"clientId"`
	// of a client that the gateway registered
	ClientSecret string           `json:"clientSecret,omitzero"`
	IsRegistered bool             `json:"registered,omitzero"` // by the gateway
	TokenURL     string           `json:"tokenUrl"`
	AuthStyle    oauth2.AuthStyle `json:"authStyle,omitzero"`
	Scopes       []string         `json:"scopes,omitzero"` // that the token has
	Token        *oauth2.Token    `json:"token"`
}

// challenge is a server's answer that asks for a login.
type challenge struct {
	url    string
	status int
	header []string // WWW-Authenticate
}

// ofProvider returns the login of a provider. Those of different projects are separate.
func (l *Logins) ofProvider(p configs.Provider) *login {
	name := p.Name
	if p.Project != "" {
		sum := sha256.Sum256([]byte(p.Project))
		name += "@" + hex.EncodeToString(sum[:8]) // no provider's name has an @
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[name] == nil {
		l.all[name] = &login{
			file: filepath.Join(l.dir, name+".json"), turn: make(chan struct{}, 1),
			changed: make(chan struct{}),
		}
	}
	return l.all[name]
}

// changes returns a channel that is closed when a person logs in or out. It is nil if there are no
// logins.
func (l *Logins) changes(p configs.Provider) <-chan struct{} {
	if l == nil || p.MCP.URL == "" {
		return nil
	}
	login := l.ofProvider(p)
	login.mu.Lock()
	defer login.mu.Unlock()
	return login.changed
}

// announce closes the channel of changes.
func (l *login) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// lock waits for the login's turn, which a refresh may have for a while.
func (l *login) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// keptFor returns the kept login if it is one for the server of a provider file as it is now, else
// nil. Call it locked.
func (l *login) keptFor(m configs.MCPUpstream) (*keptLogin, error) {
	if !l.isRead {
		kept, err := readLogin(l.file)
		if err != nil {
			return nil, err
		}
		l.kept, l.isRead = kept, true
	}
	k := l.kept
	if k == nil || k.URL != m.URL || k.Issuer != m.OAuth.Issuer ||
		k.IsRegistered != (m.OAuth.ClientID == "") || !k.IsRegistered &&
		k.ClientID != m.OAuth.ClientID {
		return nil, nil
	}
	return k, nil
}

func readLogin(file string) (*keptLogin, error) {
	data, err := os.ReadFile(file) //nolint:gosec // a file of the gateway's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var kept keptLogin
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && (kept.Token == nil || kept.Token.AccessToken == "") {
		err = errors.New("it has no token")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the login in %s: %w", file, err)
	}
	return &kept, nil
}

// token returns the token for the server of a provider file, refreshed if its time is over. It is
// nil if there is no login. Call it unlocked, as the methods below.
func (l *login) token(ctx context.Context, p configs.Provider) (*oauth2.Token, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k, err := l.keptFor(p.MCP)
	if err != nil {
		return nil, loginError{p.Name, err.Error()}
	}
	if k == nil {
		return nil, nil
	}
	if !k.Token.Valid() && k.Token.RefreshToken != "" {
		if err := l.refresh(p); err != nil {
			return nil, err
		}
	}
	return l.kept.Token, nil
}

// renew refreshes a token that the server refused, although its time is not over. The error says
// that this is in vain.
func (l *login) renew(
	ctx context.Context, p configs.Provider, refused string, with *challenge,
) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := l.keptFor(p.MCP)
	switch {
	case err != nil:
		return loginError{p.Name, err.Error()}
	case k != nil && k.Token.AccessToken != refused:
		return nil // another request was refused before, or a person has logged in
	case k == nil, k.Token.RefreshToken == "", l.isUnproven(refused):
		l.challenge = with
		return loginError{provider: p.Name}
	}
	if err := l.refresh(p); err != nil {
		l.challenge = with
		return err
	}
	l.unproven.Store(&l.kept.Token.AccessToken)
	return nil
}

// isUnproven reports whether a token came after the server had refused one, and was never taken.
func (l *login) isUnproven(token string) bool {
	unproven := l.unproven.Load()
	return unproven != nil && *unproven == token
}

// taken records that the server takes the token of a request. Call it unlocked or locked.
func (l *login) taken(req *http.Request) {
	if l != nil && l.unproven.Load() != nil && l.isUnproven(bearer(req)) {
		l.unproven.Store(nil)
	}
}

func bearer(req *http.Request) string {
	_, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	return token
}

// refresh gets another token and keeps it. The authorization server may make the old refresh token
// void, so nothing interrupts this. Call it locked, with a kept login.
func (l *login) refresh(p configs.Provider) error {
	k := *l.kept
	config := oauth2.Config{
		ClientID: k.ClientID, ClientSecret: k.ClientSecret,
		Endpoint: oauth2.Endpoint{TokenURL: k.TokenURL, AuthStyle: k.AuthStyle},
	}
	if !k.IsRegistered {
		var err error
		if config.ClientSecret, err = clientSecret(p.MCP.OAuth); err != nil {
			return err
		}
	}
	if config.ClientSecret == "" {
		// a client without a secret only says its id
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	client := newOAuthClient(p.MCP.URL)
	defer client.CloseIdleConnections()
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, client)
	token, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: k.Token.RefreshToken}).Token()
	if err != nil {
		code := ""
		if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			code = refusal.ErrorCode
		}
		switch code {
		case "invalid_grant":
			_ = l.keep(nil) // if the file stays, it ends the same way next time
			return loginError{p.Name, "the last one has ended"}
		case "invalid_client", "unauthorized_client":
			return loginError{p.Name, "the authorization server does not know the client: " + code}
		}
		return tokenFailure("refreshing the login", err)
	}
	k.Token = token
	return l.keep(&k)
}

// keep makes a login the present one and writes its file; nil removes the login. After an error the
// login holds until the gateway ends. Call it locked.
func (l *login) keep(k *keptLogin) error {
	if k != nil && strings.ContainsFunc(k.Token.AccessToken, unicode.IsControl) {
		return errors.New("the authorization server gave a token that no request can carry")
	}
	l.kept, l.isRead = k, true
	if k == nil {
		if err := os.Remove(l.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a login: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(k) //nolint:gosec // the file is for that
	if err == nil {
		err = proc.PrivateDir(filepath.Dir(l.file))
	}
	if err == nil {
		err = renameio.WriteFile(l.file, data, 0o600, renameio.IgnoreUmask())
	}
	if err != nil {
		return fmt.Errorf("keeping a login: %w", err)
	}
	return nil
}

// setChallenge remembers the server's request for more rights.
func (l *login) setChallenge(ctx context.Context, c *challenge) error {
	unlock, err := l.lock(ctx)
	if err == nil {
		l.challenge = c
		unlock()
	}
	return err
}

// grantedScopes returns the scopes that the present token has. Call it locked.
func (l *login) grantedScopes(m configs.MCPUpstream) []string {
	if k, err := l.keptFor(m); err == nil && k != nil {
		return slices.Clone(k.Scopes)
	}
	return nil
}

// Logout forgets the login of a provider, and reports whether there was one. The connections that
// use it end. The server is not told: its own pages say how to withdraw the grant.
func (l *Logins) Logout(ctx context.Context, p configs.Provider) (bool, error) {
	login := l.ofProvider(p)
	unlock, err := login.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	_, err = os.Lstat(login.file)
	had := err == nil || login.kept != nil
	if err := login.keep(nil); err != nil {
		return false, err
	}
	if had {
		login.announce()
	}
	return had, nil
}
