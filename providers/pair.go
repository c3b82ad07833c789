package providers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// This file is pairing: a person lets a provider without a token in.

// pairedPrefix is the beginning of the tokens of pairing.
const pairedPrefix = "ext-tok-"

// Pair gets a token for a provider without one (docs/protocol.md, "Pairing"). The gateway shows a
// code of six digits in the timeline of a session: [Options.Session], else the foreground one. ask
// asks the user for the code. [Provider.Run] then uses the token that the gateway sends for it.
//
// A paired provider has the trust external: in that session it may offer tools, push, append to
// sections and subscribe to tool executions. When the session ends, the token is void and Run
// returns [ErrNotPaired]; call Pair and Run again for another session. Pair returns the token, so
// that a program that restarts meanwhile can use it as [Options.Token].
//
// A code is valid for one try and two minutes; then ask's context ends. A wrong code is the
// [*Error] AUTH_FAILED. Calling Pair again shows another code, five times a minute.
func (p *Provider) Pair(ctx context.Context,
	ask func(ctx context.Context, prompt string) (code string, err error)) (token string,
	err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("pairing provider %q: %w", p.name, err)
	}
	if err := p.checkName(); err != nil {
		return fail(err)
	}
	if err := checkURL("Options.URL", p.opts.URL); err != nil {
		return fail(err)
	}
	url, _, err := gatewayURL(p.opts)
	if err != nil {
		return fail(err)
	}
	token, err = p.pair(ctx, url, ask)
	if err != nil {
		return fail(err)
	}
	p.mu.Lock()
	p.paired = endpoint{url: url, token: token, fixedToken: true, fromUser: p.opts.URL != "" ||
		os.Getenv(envURL) != ""}
	p.mu.Unlock()
	return token, nil
}

func (p *Provider) pair(ctx context.Context, url string, ask askFunc) (token string, err error) {
	ws, err := dial(ctx, p.opts.HTTPClient, endpoint{url: url})
	if err != nil {
		return "", err
	}
	defer func() { _ = ws.Close(websocket.StatusNormalClosure, "") }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	auth := &protocol.Auth{Mode: protocol.ModePair, Name: p.name, Instance: p.opts.Instance}
	if p.opts.Session != "" && !p.all() {
		auth.Session = p.opts.Session
	}
	s := &pairing{ws: ws}
	prompt, err := s.begin(ctx, auth)
	if err != nil {
		return "", err
	}
	return s.confirm(ctx, cancel, prompt, ask)
}

// confirm asks the user for the code, sends it and returns the token of the answer. It calls
// cancel when the gateway closes the connection, which ends the question to the user.
func (s *pairing) confirm(
	ctx context.Context, cancel context.CancelCauseFunc, prompt string, ask askFunc,
) (token string, err error) {
	// The gateway may close while the user looks for the code.
	type answer struct {
		m   protocol.Message
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		m, err := s.next(ctx)
		answers <- answer{m, err}
		if err != nil {
			cancel(err)
		}
	}()
	finish := func(err error) (string, error) {
		cancel(nil)
		<-answers
		return "", err
	}
	code, err := ask(ctx, prompt)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return finish(err)
	}
	if err := s.send(ctx, &protocol.AuthConfirm{Code: code}); err != nil {
		return finish(err)
	}
	var a answer
	select {
	case a = <-answers:
	case <-time.After(answerTimeout):
		return finish(fmt.Errorf("no answer within %v", answerTimeout))
	}
	if a.err != nil {
		return "", a.err
	}
	list, ok := a.m.(*protocol.Sessions)
	if !ok || list.Token == "" {
		return "", errors.New("the gateway gave no token")
	}
	return list.Token, nil
}

// askFunc asks the user for the code that the gateway shows.
type askFunc = func(ctx context.Context, prompt string) (code string, err error)

// pairing is a connection for pairing.
type pairing struct{ ws *websocket.Conn }

func (s *pairing) send(ctx context.Context, m protocol.Message) error {
	if err := protocol.Validate(m); err != nil {
		return fromGateway(err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, protocol.Append(nil, m))
}

// begin asks for pairing and returns the gateway's prompt for the user.
func (s *pairing) begin(ctx context.Context, auth *protocol.Auth) (prompt string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := s.send(ctx, auth); err != nil {
		return "", err
	}
	m, err := s.next(ctx)
	if err != nil {
		return "", err
	}
	question, ok := m.(*protocol.AuthPairing)
	if !ok {
		return "", fmt.Errorf("the gateway answered %s; does it know pairing?", m.MessageType())
	}
	return question.Prompt, nil
}

// next reads the next auth.pairing or sessions. An error message of the gateway is returned as an
// [*Error].
func (s *pairing) next(ctx context.Context) (protocol.Message, error) {
	for {
		_, data, err := s.ws.Read(ctx)
		if err != nil {
			return nil, plainRead(err)
		}
		frame, bad := protocol.Open(data)
		if bad != nil || !frame.Type.FromGateway() {
			continue
		}
		m, bad := frame.Decode()
		if bad != nil {
			continue
		}
		switch m := m.(type) {
		case *protocol.Error:
			return nil, fromGateway(m)
		case *protocol.AuthPairing, *protocol.Sessions:
			return m, nil
		}
	}
}
