// Package client is the typed client of the gateway's admin API. Commands use it and never build a
// URL themselves.
//
// Every call ends with its context. Every error is a [cli.Error], so that it has the exit code that
// scripts rely on, and one line with advice.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

const (
	maxAnswer        = 64 << 20 // the longest is a tool's file as base64
	maxLine          = 64 << 20 // a line of a recording has a frame of up to 16 MiB, with escapes
	codeUnauthorized = "UNAUTHORIZED"
)

// Client makes requests to the admin API of one gateway (docs/admin-api.md). Its methods may be
// called from any goroutine. Set Trace before the first request.
//
// Each request fails with a [cli.Error]. Its exit code follows from the HTTP status: 400 and 413
// are [cli.ExitUsage]; 401, 403, 421 and 429 [cli.ExitRefused]; 404 [cli.ExitNotFound]; 503 and a
// gateway that does not answer [cli.ExitUnreachable]; 504 and the end of the context's time
// [cli.ExitTimedOut]; all others [cli.ExitFailed]. If the gateway answered, the error has the
// gateway's code.
type Client struct {
	base, token string
	gateway     string // the path of another gateway in the API, "" for the gateway itself
	source      string // the flag, variable or file that named the gateway, for errors
	tokenSource string // where the token was found, for errors
	missing     error  // not nil: no gateway runs, and the user did not name one
	urlFlag     string // the flag that names a gateway, for errors
	urlGiven    bool   // by the user, in a flag or the environment
	tokenGiven  bool
	http        *http.Client
	// Trace, if it is not nil, gets a line for each request.
	Trace func(format string, args ...any)
}

// New returns a client of the gateway that the options, the environment or the gateway's own
// files name, in this order. It does not connect yet. The error is a [cli.Error]: wrong usage,
// or a file that another user could have written.
func New(o Options) (*Client, error) {
	c := &Client{urlFlag: o.flag()}
	if o.Gateway != "" {
		c.gateway = "/gateways/" + url.PathEscape(o.Gateway)
	}
	var err error
	c.base, c.source, err = discoverURL(o)
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable {
		// returned by the first request: wrong arguments are reported before it
		c.missing, err = e, nil
	}
	if err != nil {
		return nil, err
	}
	if c.token, c.tokenSource, err = discoverToken(o.Token); err != nil {
		return nil, err
	}
	c.urlGiven = o.URL != "" || os.Getenv(EnvURL) != ""
	c.tokenGiven = o.Token != "" || os.Getenv(EnvToken) != ""
	// The token goes to the gateway alone: neither through a proxy nor after a redirect.
	c.http = &http.Client{
		Transport: c.transport(o.Once),
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return c, nil
}

func (c *Client) transport(once bool) http.RoundTripper {
	if once {
		return onceTransport{c}
	}
	return &http.Transport{Proxy: nil, DialContext: c.dial, DialTLSContext: c.dialTLS,
		DisableCompression: true}
}

// URL returns the gateway's address with the scheme ws or wss, a host and a port, as providers
// write it. If no gateway was found, it is "ws".
func (c *Client) URL() string { return "ws" + strings.TrimPrefix(c.base, "http") }

// Close closes the connections that no request uses now. Requests under way go on, and the client
// can be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func sessionPath(id, rest string) string {
	p := "/sessions/" + url.PathEscape(id)
	if rest != "" {
		p += "/" + rest
	}
	return p
}

func providerPath(name, rest string) string {
	return "/providers/" + url.PathEscape(name) + "/" + rest
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var v T
	err := c.do(ctx, http.MethodGet, path, q, nil, &v)
	return v, err
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var v T
	err := c.do(ctx, http.MethodPost, path, nil, body, &v)
	return v, err
}

// do makes a request and reads its answer into out, if that is not nil.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, body, out any) error {
	r, err := c.send(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return c.broken(ctx, "reading its answer", err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return c.notGateway(
			fmt.Sprintf("the answer to %s %s is not what version 1 of its API gives", method, path))
	}
	return nil
}

// send makes a request; an answer other than 2xx is an error.
func (c *Client) send(
	ctx context.Context, method, path string, q url.Values, body any,
) (*http.Response, error) {
	if c.missing != nil {
		return nil, c.missing
	}
	target := c.base + adminapi.Prefix + c.gateway + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, cli.Usage("encoding the request: %v", err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, payload)
	if err != nil {
		return nil, cli.Failed("making a request to %s: %v", c.base, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	begin := time.Now()
	r, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, "asking it", err)
	}
	if c.Trace != nil {
		c.Trace("%s %s: %s in %v", method, target, r.Status,
			time.Since(begin).Round(time.Millisecond))
	}
	if r.StatusCode/100 == 2 {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	return nil, c.refused(r)
}

// broken makes a [cli.Error] of an error of the connection, for people: doing names the step.
func (c *Client) broken(ctx context.Context, doing string, err error) error {
	if e := context.Cause(ctx); e != nil {
		err = e
	}
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e // made by proven
	}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled",
			Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout, Err: err,
			Message: fmt.Sprintf(
				"the gateway at %s did not answer in time; allow it longer with --timeout",
				c.URL())}
	case errors.Is(err, syscall.ECONNREFUSED):
		if c.urlGiven {
			err = ErrNone
		}
		return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Err: err,
			Message: fmt.Sprintf(
				"no gateway at %s (from %s); start one with: tapgw serve, or tapgw ensure",
				c.URL(), c.source)}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Err: err,
		Message: fmt.Sprintf("gateway at %s (from %s): %s: %v; is it running? "+
			"start one with: tapgw serve, or tapgw ensure", c.URL(), c.source, doing, err)}
}

// refused makes a [cli.Error] of an answer that is an error.
func (c *Client) refused(r *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(r.Body, maxFile))
	var body adminapi.Error
	if json.Unmarshal(data, &body) != nil || body.Error.Message == "" {
		if r.StatusCode != http.StatusTooManyRequests &&
			r.StatusCode != http.StatusServiceUnavailable {
			return c.notGateway("it answered " + r.Status)
		}
		body.Error.Message = "the gateway takes no requests now (" + r.Status + "); try again later"
	}
	e := &cli.Error{Exit: cli.ExitFailed, Code: body.Error.Code, Message: body.Error.Message}
	switch r.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		e.Exit = cli.ExitUsage
	case http.StatusUnauthorized:
		e.Exit = cli.ExitRefused
		e.Message += fmt.Sprintf("; is %s the gateway that the token is for?", c.URL())
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusMisdirectedRequest:
		e.Exit = cli.ExitRefused
	case http.StatusNotFound:
		e.Exit = cli.ExitNotFound
	case http.StatusServiceUnavailable:
		e.Exit = cli.ExitUnreachable
	case http.StatusGatewayTimeout:
		e.Exit = cli.ExitTimedOut
	}
	if e.Code == "" {
		e.Code = cli.CodeFailed
	}
	return e
}

func (c *Client) notGateway(why string) error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: fmt.Sprintf(
			"no gateway at %s (from %s): %s; name the gateway with %s",
			c.URL(),
			c.source,
			why,
			c.urlFlag,
		)}
}

// stream makes a request and returns the lines of its answer as they come. The
// sequence ends with an error, or with the answer.
func stream(
	ctx context.Context, c *Client, method, path string, q url.Values, body any,
) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r, err := c.send(ctx, method, path, q, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = r.Body.Close() }()
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 && !yield(line, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, c.broken(ctx, "reading its answer", err))
		}
	}
}

func decoded[T any](lines iter.Seq2[[]byte, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for line, err := range lines {
			var v T
			if err == nil && json.Unmarshal(line, &v) != nil {
				err = cli.Failed(
					"reading the gateway's answer: a line is not what version 1 of its "+
						"API gives: %s",
					cli.Shorten(string(line), 80))
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}
