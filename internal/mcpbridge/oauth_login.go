package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"tapgw/configs"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// This file is the login of a person at a server's authorization server, in a browser.

// loginTime is how long a person has to log in.
const loginTime = 5 * time.Minute

// Login logs in at the server of a provider file, and keeps the token. It calls show with the URL
// that a person has to open in a browser, and waits up to five minutes for the browser's return.
// The bridges connect again. Errors that a user can mend are [protocol.Error]: INVALID_STATE,
// DENIED by the person or the server, TIMEOUT.
func (l *Logins) Login(
	ctx context.Context, p configs.Provider, show func(link string) error,
) error {
	switch {
	case p.Kind != configs.KindMCP || p.MCP.URL == "":
		return refusedLogin(
			"provider %q has no MCP server at a URL, so there is nothing to log in at", p.Name)
	case p.MCP.HasAuthorization():
		return refusedLogin(
			"the file of provider %q has the header Authorization: remove it to log in", p.Name)
	}
	ctx, cancel := withLoginTime(ctx)
	defer cancel()
	back, err := listenForReturn(p)
	if err != nil {
		return err
	}
	got, err := l.authorize(ctx, p, back, show)
	if err == nil {
		err = l.keep(ctx, p, got)
	}
	switch _, isWorded := errors.AsType[*protocol.Error](err); {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil && !isWorded:
		err = refusedLogin("%v", tokenFailure("logging in at "+p.MCP.URL, err))
	}
	back.close(err)
	return err
}

func withLoginTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, loginTime, &protocol.Error{
		Code: protocol.CodeTimeout, Message: fmt.Sprintf("nobody logged in within %s", loginTime),
	})
}

func refusedLogin(format string, args ...any) error {
	return &protocol.Error{Code: protocol.CodeInvalidState, Message: fmt.Sprintf(format, args...)}
}

// keep makes a login that a person made the present one.
func (l *Logins) keep(ctx context.Context, p configs.Provider, got *keptLogin) error {
	login := l.ofProvider(p)
	unlock, err := login.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := login.keep(got); err != nil {
		return err
	}
	login.unproven.Store(nil)
	login.challenge = nil
	login.announce()
	return nil
}

// authorization is a login that runs.
type authorization struct {
	p     configs.Provider
	back  *loginReturn
	show  func(link string) error
	asked *challenge
	had   []string // the scopes of the present login
	got   keptLogin
}

// authorize runs the flow of the SDK.
func (l *Logins) authorize(
	ctx context.Context, p configs.Provider, back *loginReturn, show func(link string) error,
) (*keptLogin, error) {
	asked, had, err := l.challenge(ctx, p)
	if err != nil {
		return nil, err
	}
	a := &authorization{p: p, back: back, show: show, asked: asked, had: had}
	a.got = keptLogin{URL: p.MCP.URL, Issuer: p.MCP.OAuth.Issuer,
		IsRegistered: p.MCP.OAuth.ClientID == ""}
	client := newOAuthClient(p.MCP.URL)
	defer client.CloseIdleConnections()
	config := &auth.AuthorizationCodeHandlerConfig{
		Client: client, RedirectURL: back.url, RequestRefreshToken: true,
		AcceptUnadvertisedIss:    true, // one that is wrong is refused in any case
		AuthorizationCodeFetcher: a.fetch, ScopeFilter: a.scopes, NewTokenSource: a.setToken,
	}
	if err := setClient(config, p.MCP.OAuth); err != nil {
		return nil, refusedLogin("%v", err)
	}
	handler, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.MCP.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	return &a.got, handler.Authorize(ctx, req, &http.Response{
		StatusCode: asked.status, Header: http.Header{"Www-Authenticate": asked.header},
		Body: http.NoBody,
	})
}

// fetch shows the link and waits for the browser.
func (a *authorization) fetch(
	ctx context.Context, args *auth.AuthorizationArgs,
) (*auth.AuthorizationResult, error) {
	link, err := url.Parse(args.URL)
	if err == nil {
		err = checkReach(a.p.MCP.URL, link)
	}
	if err != nil {
		return nil, err
	}
	a.back.expect(link.Query().Get("state"))
	if err := a.show(args.URL); err != nil {
		return nil, err
	}
	return a.back.wait(ctx)
}

// scopes returns the scopes to ask for.
func (a *authorization) scopes(found []string) []string {
	if len(a.p.MCP.OAuth.Scopes) > 0 {
		return slices.Clone(a.p.MCP.OAuth.Scopes)
	}
	if a.asked.status == http.StatusForbidden { // it wants more than there was, not something else
		found = slices.Concat(a.had, found)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// setToken stores the token that the authorization server gave.
func (a *authorization) setToken(
	_ context.Context, o *oauth2.Config, token *oauth2.Token,
) (oauth2.TokenSource, error) {
	a.got.ClientID, a.got.TokenURL, a.got.AuthStyle = o.ClientID, o.Endpoint.TokenURL,
		o.Endpoint.AuthStyle
	if a.got.IsRegistered {
		a.got.ClientSecret = o.ClientSecret
	}
	a.got.Token, a.got.Scopes = token, o.Scopes
	if scope, ok := token.Extra("scope").(string); ok {
		a.got.Scopes = strings.Fields(scope)
	}
	return oauth2.StaticTokenSource(token), nil
}

// setClient sets who the gateway is for the authorization server.
func setClient(config *auth.AuthorizationCodeHandlerConfig, o configs.OAuth) error {
	if o.ClientID == "" {
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: "tapgw", RedirectURIs: []string{config.RedirectURL},
				TokenEndpointAuthMethod: "none",
				GrantTypes:              []string{"authorization_code", "refresh_token"},
				ResponseTypes:           []string{"code"},
			},
		}
		return nil
	}
	config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.ClientID, Issuer: o.Issuer}
	secret, err := clientSecret(o)
	if secret != "" {
		config.PreregisteredClient.ClientSecretAuth =
			&oauthex.ClientSecretAuth{ClientSecret: secret}
	}
	return err
}

// challenge returns the server's request for a login: the answer that a bridge got, or one to a
// request without a token. It also returns the scopes that the present login has.
func (l *Logins) challenge(ctx context.Context, p configs.Provider) (*challenge, []string, error) {
	login := l.ofProvider(p)
	unlock, err := login.lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, had := login.challenge, login.grantedScopes(p.MCP)
	unlock()
	if known != nil && known.url == p.MCP.URL {
		return known, had, nil
	}
	headers, err := configs.ExpandHeaders(p.MCP.Headers)
	if err != nil {
		return nil, nil, refusedLogin("%v", err)
	}
	body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.MCP.URL, body)
	if err != nil {
		return nil, nil, err
	}
	req.Header = headers
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	resp, err := (&http.Client{Transport: base, CheckRedirect: stayOnHost,
		Timeout: refreshTime}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return nil, nil, refusedLogin("the MCP server at %s asks for no login: it answered %s",
			p.MCP.URL, visible.Line(shorten(resp.Status, maxScope)))
	}
	return &challenge{p.MCP.URL, resp.StatusCode, resp.Header.Values("WWW-Authenticate")}, had, nil
}
