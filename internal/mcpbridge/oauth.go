package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"tapgw/configs"
	"tapgw/internal/visible"
)

// This file sends an MCP server's token with the requests to it, and turns a refusal into a fault
// that says how to log in.

// refreshTime bounds a request to an authorization server. A call waits for it, and so does the
// gateway's end.
const refreshTime = 10 * time.Second

// loginError says that a server wants a login, and how to log in.
type loginError struct{ provider, why string }

func (e loginError) Error() string {
	why := e.why
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Sprintf("needs a login%s: run tapctl providers login %s", why, e.provider)
}

// errLoginChanged ends a connection whose login is another one now.
var errLoginChanged = errors.New("the login has changed")

// authorizer gives the requests of a connection the token of the provider's login. It never asks a
// person: where the login does not do, it says so.
type authorizer struct {
	u     *upstream
	login *login
}

// TokenSource implements auth.OAuthHandler.
func (a *authorizer) TokenSource(ctx context.Context) (oauth2.TokenSource, error) {
	return tokenSource(func() (*oauth2.Token, error) {
		if why, needsLogin := errors.AsType[loginError](a.u.cause(nil)); needsLogin {
			return nil, why // nothing of this connection can succeed
		}
		token, err := a.login.token(ctx, a.u.b.o.Provider)
		return token, a.check(err)
	}), nil
}

// tokenSource is a function as oauth2.TokenSource. It may return no token and no error.
type tokenSource func() (*oauth2.Token, error)

func (s tokenSource) Token() (*oauth2.Token, error) { return s() }

// Authorize implements auth.OAuthHandler. After nil, the SDK sends the request once more.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request, resp *http.Response) error {
	_ = resp.Body.Close()
	p := a.u.b.o.Provider
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	if err != nil {
		challenges = nil // as from a server that sends no challenge
	}
	refused := &challenge{p.MCP.URL, resp.StatusCode, resp.Header.Values("WWW-Authenticate")}
	if resp.StatusCode == http.StatusUnauthorized {
		return a.check(a.login.renew(ctx, p, bearer(req), refused))
	}
	i := slices.IndexFunc(challenges, func(c oauthex.Challenge) bool {
		return c.Scheme == "bearer" && c.Params["error"] == "insufficient_scope"
	})
	if i < 0 {
		return nil
	}
	if err := a.login.setChallenge(ctx, refused); err != nil {
		return err
	}
	why := "the server wants more rights"
	if scope := visible.Line(shorten(challenges[i].Params["scope"], maxScope)); scope != "" {
		why += ": scope " + scope
		if len(p.MCP.OAuth.Scopes) > 0 {
			why += ", which must stand in oauth.scopes"
		}
	}
	err = loginError{p.Name, why}
	a.u.b.setFaults(&a.u.b.rights, err.Error()) // requests that need fewer rights go on
	return err
}

const maxScope = 200 // bytes of a scope that is shown

// check ends the connection if err says that it needs a login, so that the fault shows. It returns
// err.
func (a *authorizer) check(err error) error {
	if _, needsLogin := errors.AsType[loginError](err); needsLogin {
		a.u.lose(err)
	}
	return err
}

// newOAuthClient returns the client for requests to the authorization server of an MCP server.
// Close its idle connections after use. The SDK checks addresses only if the client has a transport
// with no dialer of its own.
func newOAuthClient(server string) *http.Client {
	return &http.Client{
		Timeout:       refreshTime,
		CheckRedirect: stayOnHost,
		Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			Proxy: func(req *http.Request) (*url.URL, error) {
				if err := checkReach(server, req.URL); err != nil {
					return nil, err
				}
				return http.ProxyFromEnvironment(req)
			},
		},
	}
}

// checkReach refuses to follow a server elsewhere to this machine, which the SDK permits to all.
func checkReach(server string, target *url.URL) error {
	from, err := url.Parse(server)
	if err == nil && isLoopback(target.Hostname()) && !isLoopback(from.Hostname()) {
		err = fmt.Errorf("the MCP server leads to a program on this machine, %s",
			visible.Line(target.Host))
	}
	return err
}

func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// clientSecret returns the secret of a client that the provider file names, or "".
func clientSecret(o configs.OAuth) (string, error) {
	secret, missing := configs.ExpandVariables(o.ClientSecret)
	if missing != "" {
		return "", fmt.Errorf(
			"oauth.client_secret needs the variable %s, which the gateway's environment "+
				"does not have", missing)
	}
	return secret, nil
}

// tokenFailure words an error of a token endpoint. It leaves out the endpoint's answer, which may
// hold secrets.
func tokenFailure(doing string, err error) error {
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		why := refusal.Response.Status
		if slices.Contains(tokenErrors, refusal.ErrorCode) {
			why = refusal.ErrorCode
		}
		return fmt.Errorf("%s: the authorization server answered %s", doing,
			visible.Line(shorten(why, maxScope)))
	}
	return fmt.Errorf("%s: %s", doing, visible.Line(shorten(err.Error(), maxReason)))
}

// tokenErrors are the errors that a token endpoint may answer (RFC 6749, 5.2; RFC 8707).
var tokenErrors = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
	"unsupported_grant_type", "invalid_scope", "invalid_target",
}
