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

// pairedPrefix begins the tokens that pairing gives.
const pairedPrefix = "ext-tok-"

// Pair lets a provider in that has no token: the gateway shows a code of six
// digits in a session's timeline, ask asks the user for it, and the token that
// comes of it is what [Provider.Run] uses from then on. The session is the one
// that [Options.Session] names, else the gateway's foreground one.
//
// The provider is an external one then: it may offer tools, push, append to
// sections and hear of tool executions, in that session. The token dies with
// the session, and Run returns [ErrNotPaired]; whoever wants to pair once more
// calls Pair and Run again. Pair returns the token for those that restart while
// the session lives, and give it as [Options.Token].
//
// There is one try for each code, which is good for two minutes; then ask's
// context ends (v2, "External providers"). A wrong code is the [*Error]
// AUTH_FAILED: calling Pair again shows another, five times a minute.
func (p *Provider) Pair(ctx context.Context, ask func(ctx context.Context, prompt string) (code string, err error)) (
	token string, err error) {
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
	p.paired = endpoint{url: url, token: token, given: true, named: p.opts.URL != "" || os.Getenv(envURL) != ""}
	p.mu.Unlock()
	return token, nil
}

func (p *Provider) pair(ctx context.Context, url string, ask func(context.Context, string) (string, error)) (string,
	error) {
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
	m, err := s.exchange(ctx, auth)
	if err != nil {
		return "", err
	}
	shown, ok := m.(*protocol.AuthPairing)
	if !ok {
		return "", fmt.Errorf("the gateway answered %s; does it know pairing?", m.MessageType())
	}

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
	code, err := ask(ctx, shown.Prompt)
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

// pairing is a connection that pairs.
type pairing struct{ ws *websocket.Conn }

func (s *pairing) send(ctx context.Context, m protocol.Message) error {
	if err := protocol.Validate(m); err != nil {
		return fromGateway(err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, protocol.Append(nil, m))
}

// exchange sends a message and waits for what answers it.
func (s *pairing) exchange(ctx context.Context, m protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := s.send(ctx, m); err != nil {
		return nil, err
	}
	return s.next(ctx)
}

// next reads the next message that matters here. An error of the gateway's is
// returned as one.
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
