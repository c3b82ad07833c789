package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/cli"
	"tapgw/internal/proof"
)

const (
	dialTimeout = 10 * time.Second
	// proofTimeout is for the proof, which a gateway answers at once.
	proofTimeout = 5 * time.Second
)

var dialer = net.Dialer{Timeout: dialTimeout}

// Dial opens a WebSocket at a path of the gateway: "/" for a provider, "/host" for a session host.
// Before it, the gateway has proved that it knows the token; nothing else was sent. The error is a
// [cli.Error]; if the gateway refused the upgrade, the response says how.
func (c *Client) Dial(
	ctx context.Context, path string, header http.Header,
) (*websocket.Conn, *http.Response, error) {
	if c.missing != nil {
		return nil, nil, c.missing
	}
	options := websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	}
	ws, answer, err := websocket.Dial(ctx, c.URL()+path, &options)
	switch {
	case err == nil:
		return ws, answer, nil
	case answer != nil && answer.StatusCode/100 > 3:
		return nil, answer, c.refused(answer)
	}
	return nil, answer, c.broken(ctx, "connecting", err)
}

// Token returns the admin token that the client sends: the token of [Options], or the one that was
// found; "" without a token. Send it only over a connection of [Client.Dial].
func (c *Client) Token() string { return c.token }

// dial connects to the gateway. It sends only the question for a proof until the gateway has proved
// that it knows the token (docs/protocol.md has the proof).
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c.proven(ctx, conn, address)
}

// dialTLS is dial for https. It checks the certificate too, because the proof of the token does not
// exclude a man in the middle who reads the messages.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	secure := tls.Dialer{NetDialer: &dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
	conn, err := secure.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c.proven(ctx, conn, address)
}

// proven returns the connection if its other end proves that it is the gateway, else it closes the
// connection.
func (c *Client) proven(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := c.prove(conn, host)
	if !stop() { // the deadline is set, or about to be
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = c.silent()
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// prove asks the other end of a connection for a proof.
func (c *Client) prove(conn net.Conn, host string) error {
	if c.token == "" {
		return &cli.Error{Exit: cli.ExitRefused, Code: codeUnauthorized,
			Message: fmt.Sprintf("no admin token: give --token or %s (there is no %s)", EnvToken,
				c.tokenSource)}
	}
	q := proof.NewQuestion(c.token)
	r, err := http.NewRequest(http.MethodGet, "http://"+host+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", host, err)
	}
	r.Header.Set(proof.AskHeader, q.Header())
	if err := r.Write(conn); err != nil {
		return c.stranger("it closed the connection")
	}
	in := bufio.NewReader(io.LimitReader(conn, maxFile))
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return c.stranger("it does not answer as a gateway does")
	}
	defer func() { _ = answer.Body.Close() }()
	err = q.Check(answer.Header.Get(proof.AnswerHeader), conn.RemoteAddr())
	if _, relayed := errors.AsType[*proof.RelayedError](err); relayed {
		if !c.urlGiven || !c.tokenGiven {
			return c.stranger(err.Error() + "; if that is a tunnel of yours, give both " +
				c.urlFlag + " and --token")
		}
	} else if err != nil {
		if c.tokenGiven && answer.StatusCode >= http.StatusBadRequest {
			return c.refused(answer)
		}
		return c.stranger(fmt.Sprintf("%v (%s)", err, c.tokenSource))
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || in.Buffered() > 0 {
		return c.stranger("it does not answer as a gateway does")
	}
	return nil
}

// silent is the error for a program at the URL that does not answer, such as a gateway that hangs.
// It does not advise to start another gateway, which would not help.
func (c *Client) silent() error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: fmt.Sprintf(
			"the program at %s (from %s) did not answer within %v: your gateway hangs, "+
				"or another program has its port; tapgw doctor says what to do", c.URL(), c.source,
			proofTimeout)}
}

// stranger is the error when the program at the URL is not the gateway that the token is for.
func (c *Client) stranger(why string) error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: fmt.Sprintf("the program at %s (from %s) is not your gateway: %s; "+
			"start yours with: tapgw ensure, or name it with %s", c.URL(), c.source, why,
			c.urlFlag)}
}
