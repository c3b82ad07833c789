// Package client is the typed client of the gateway's admin API. Commands use
// it and never build a URL themselves.
//
// Every call ends with its context. Every error is a [cli.Error], so that it
// has the exit code that scripts rely on and one line that says what to do.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/cli"
)

const (
	apiPath          = "/api/v1"
	maxAnswer        = 64 << 20 // a file result at most, as base64
	maxLine          = 16 << 20
	codeUnauthorized = "UNAUTHORIZED"
)

// Client talks to one gateway.
type Client struct {
	base, token string
	source      string // who named the gateway, for errors
	tokenSource string // where the token was found, for errors
	missing     error  // no gateway runs and none was named
	urlGiven    bool   // by the user, in a flag or the environment
	tokenGiven  bool
	http        *http.Client
	// Trace, where set, is told of each request.
	Trace func(format string, args ...any)
}

// New returns a client of the gateway that the options, the environment or the
// gateway's own files name. It does not connect yet.
func New(o Options) (*Client, error) {
	c := &Client{}
	var err error
	c.base, c.source, err = discoverURL(o)
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable {
		c.missing, err = e, nil // said when it is asked, after what is wrong with the request
	}
	if err != nil {
		return nil, err
	}
	if c.token, c.tokenSource, err = discoverToken(o.Token); err != nil {
		return nil, err
	}
	c.urlGiven = o.URL != "" || os.Getenv(EnvURL) != ""
	c.tokenGiven = o.Token != "" || os.Getenv(EnvToken) != ""
	c.http = &http.Client{
		// The token goes to the gateway alone: neither through a proxy nor
		// after a redirect.
		Transport: &http.Transport{
			Proxy:              nil,
			DialContext:        c.dial,
			DialTLSContext:     c.dialTLS,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// URL is the gateway's address, as providers write it.
func (c *Client) URL() string { return "ws" + strings.TrimPrefix(c.base, "http") }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the gateway's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/status", nil)
}

// Sessions lists the sessions.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	return get[[]Session](ctx, c, "/sessions", nil)
}

// Session returns one session.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	return get[Session](ctx, c, sessionPath(id, ""), nil)
}

// Start starts a session and returns its id.
func (c *Client) Start(ctx context.Context, r StartRequest) (id string, err error) {
	var started struct {
		ID string `json:"id"`
	}
	err = c.do(ctx, http.MethodPost, "/sessions", nil, r, &started)
	return started.ID, err
}

// Persisted lists the sessions on disk, the last used first.
func (c *Client) Persisted(ctx context.Context, f PersistedFilter) ([]Persisted, error) {
	q := url.Values{}
	for name, value := range map[string]string{"cwd": f.CWD, "repository": f.Repository, "branch": f.Branch} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Last > 0 {
		q.Set("last", strconv.Itoa(f.Last))
	}
	return get[[]Persisted](ctx, c, "/persisted", q)
}

// Resume brings a session on disk back.
func (c *Client) Resume(ctx context.Context, id string, r ResumeRequest) error {
	return c.do(ctx, http.MethodPost, "/persisted/"+url.PathEscape(id)+"/resume", nil, r, nil)
}

// Delete removes a session from the disk.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/persisted/"+url.PathEscape(id), nil, nil, nil)
}

// SetModel changes the model of a session that runs.
func (c *Client) SetModel(ctx context.Context, id, model, effort string) error {
	return c.do(ctx, http.MethodPost, sessionPath(id, "model"), nil, map[string]string{"model": model, "effort": effort}, nil)
}

// Stop ends a session.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, sessionPath(id, ""), nil, nil, nil)
}

// Modes of a prompt.
const (
	ModeEnqueue   = "enqueue"
	ModeImmediate = "immediate"
)

// Send gives a session a prompt and does not wait for the turn.
func (c *Client) Send(ctx context.Context, id, prompt, mode string) error {
	return c.SendPrompt(ctx, id, Prompt{Prompt: prompt, Mode: mode})
}

// SendPrompt is Send for a prompt that brings more than text.
func (c *Client) SendPrompt(ctx context.Context, id string, p Prompt) error {
	p.Detach = true
	return c.do(ctx, http.MethodPost, sessionPath(id, "query"), nil, p, nil)
}

// Query gives a session a prompt and follows its turn. The last line is Done,
// with the turn's error if there was one.
func (c *Client) Query(ctx context.Context, id, prompt, mode string) iter.Seq2[LiveLine, error] {
	return c.QueryPrompt(ctx, id, Prompt{Prompt: prompt, Mode: mode})
}

// QueryPrompt is Query for a prompt that brings more than text.
func (c *Client) QueryPrompt(ctx context.Context, id string, p Prompt) iter.Seq2[LiveLine, error] {
	p.Detach = false
	return live(stream(ctx, c, http.MethodPost, sessionPath(id, "query"), nil, p))
}

// Questions lists what waits for a person in all sessions, oldest first.
func (c *Client) Questions(ctx context.Context) ([]Question, error) {
	return get[[]Question](ctx, c, "/questions", nil)
}

// Answer answers a question of a session.
func (c *Client) Answer(ctx context.Context, id string, a Answer) error {
	return c.do(ctx, http.MethodPost, sessionPath(id, "answer"), nil, a, nil)
}

// Live follows a session's callbacks until it ends.
func (c *Client) Live(ctx context.Context, id string) iter.Seq2[LiveLine, error] {
	return live(stream(ctx, c, http.MethodGet, sessionPath(id, "live"), nil, nil))
}

// Interrupt stops a session's turn, and returns the beginnings of the prompts that
// waited and are dropped with it.
func (c *Client) Interrupt(ctx context.Context, id, reason string) (dropped []string, err error) {
	var answer struct {
		Dropped []string `json:"dropped"`
	}
	err = c.do(ctx, http.MethodPost, sessionPath(id, "interrupt"), nil, map[string]string{"reason": reason}, &answer)
	return answer.Dropped, err
}

// Foreground makes a session the foreground one.
func (c *Client) Foreground(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, sessionPath(id, "foreground"), nil, struct{}{}, nil)
}

// Rename gives a session another label.
func (c *Client) Rename(ctx context.Context, id, label string) error {
	return c.do(ctx, http.MethodPost, sessionPath(id, "rename"), nil, map[string]string{"label": label}, nil)
}

// Timeline returns a session's timeline, and follows it until the session ends
// where asked.
func (c *Client) Timeline(ctx context.Context, id string, q LogQuery) iter.Seq2[TimelineLine, error] {
	return decoded[TimelineLine](stream(ctx, c, http.MethodGet, sessionPath(id, "log"), q.values(), nil))
}

// RuntimeEvents returns the events of a session's runtime that are kept, as they
// came, and follows them until the session ends where asked.
func (c *Client) RuntimeEvents(ctx context.Context, id string, q LogQuery) iter.Seq2[json.RawMessage, error] {
	v := q.values()
	v.Set("events", "1")
	return decoded[json.RawMessage](stream(ctx, c, http.MethodGet, sessionPath(id, "log"), v, nil))
}

func (q LogQuery) values() url.Values {
	v := url.Values{}
	if q.Follow {
		v.Set("follow", "1")
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	return v
}

// Usage says what a session's models read, wrote and cost.
func (c *Client) Usage(ctx context.Context, id string) (Usage, error) {
	return get[Usage](ctx, c, sessionPath(id, "usage"), nil)
}

// Push pushes an event or a prompt; with p.Wait it returns when the turn that
// it started has ended.
func (c *Client) Push(ctx context.Context, id string, p Push) (Receipt, error) {
	var r Receipt
	err := c.do(ctx, http.MethodPost, sessionPath(id, "push"), nil, p, &r)
	return r, err
}

// Keep keeps an event of level keep for the next session, while there is none.
func (c *Client) Keep(ctx context.Context, p Push) (Receipt, error) {
	var r Receipt
	err := c.do(ctx, http.MethodPost, "/push", nil, struct {
		Provider string `json:"provider,omitempty"`
		Stream   string `json:"stream,omitempty"`
		Event    string `json:"event"`
	}{p.Provider, p.Stream, p.Event}, &r)
	return r, err
}

// History returns entries of streams, newest first.
func (c *Client) History(ctx context.Context, id string, q HistoryQuery) ([]Event, error) {
	return get[[]Event](ctx, c, sessionPath(id, "history"), q.values())
}

// FollowHistory returns the same entries, oldest first, and those to come.
func (c *Client) FollowHistory(ctx context.Context, id string, q HistoryQuery) iter.Seq2[Event, error] {
	values := q.values()
	values.Set("follow", "1")
	return decoded[Event](stream(ctx, c, http.MethodGet, sessionPath(id, "history"), values, nil))
}

func (q HistoryQuery) values() url.Values {
	v := url.Values{}
	for _, s := range q.Streams {
		v.Add("stream", s)
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	return v
}

// Call calls a tool as the session's model would. A call that failed is a
// result too.
func (c *Client) Call(ctx context.Context, id, tool string, args json.RawMessage, timeout time.Duration) (CallResult, error) {
	body := struct {
		Args      json.RawMessage `json:"args,omitempty"`
		TimeoutMs int64           `json:"timeoutMs,omitempty"`
	}{args, timeout.Milliseconds()}
	var r CallResult
	err := c.do(ctx, http.MethodPost, sessionPath(id, "tools/"+url.PathEscape(tool)+"/call"), nil, body, &r)
	return r, err
}

// Providers lists the providers' connections.
func (c *Client) Providers(ctx context.Context) ([]Provider, error) {
	return get[[]Provider](ctx, c, "/providers", nil)
}

// StopProvider stops what runs of a provider that a file names, or closes all
// connections of that name, and returns their number.
func (c *Client) StopProvider(ctx context.Context, name string) (int, error) {
	return c.steer(ctx, name, "stop")
}

// StartProvider starts a provider that a file names and that was stopped or has
// failed, and returns for how many sessions it runs.
func (c *Client) StartProvider(ctx context.Context, name string) (int, error) {
	return c.steer(ctx, name, "start")
}

// RestartProvider ends what runs of a provider that a file names and starts it
// again, for as many sessions as it returns.
func (c *Client) RestartProvider(ctx context.Context, name string) (int, error) {
	return c.steer(ctx, name, "restart")
}

func (c *Client) steer(ctx context.Context, name, what string) (n int, err error) {
	var done map[string]int
	err = c.do(ctx, http.MethodPost, "/providers/"+url.PathEscape(name)+"/"+what, nil, struct{}{}, &done)
	for _, count := range done { // its one member says what was done
		n += count
	}
	return n, err
}

// Configured lists the providers that files name, connected or not.
func (c *Client) Configured(ctx context.Context) ([]Configured, error) {
	return get[[]Configured](ctx, c, "/providers/configured", nil)
}

// ProviderLog returns the last lines of a provider that a file names, oldest
// first.
func (c *Client) ProviderLog(ctx context.Context, name string, q LogQuery) ([]string, error) {
	return get[[]string](ctx, c, "/providers/"+url.PathEscape(name)+"/log", q.values())
}

// FollowProviderLog returns the same lines, and those to come.
func (c *Client) FollowProviderLog(ctx context.Context, name string, q LogQuery) iter.Seq2[TimelineLine, error] {
	q.Follow = true
	return decoded[TimelineLine](stream(ctx, c, http.MethodGet, "/providers/"+url.PathEscape(name)+"/log", q.values(), nil))
}

// Reload makes the gateway read its files now, and returns what is wrong
// in them.
func (c *Client) Reload(ctx context.Context) ([]Fault, error) {
	var r struct {
		Faults []Fault `json:"faults"`
	}
	err := c.do(ctx, http.MethodPost, "/reload", nil, struct{}{}, &r)
	return r.Faults, err
}

// Tools lists the tools of one session, or of all ("").
func (c *Client) Tools(ctx context.Context, session string) ([]Tool, error) {
	return get[[]Tool](ctx, c, "/tools", optional("session", session))
}

// Pairings lists the pairing codes that wait to be typed.
func (c *Client) Pairings(ctx context.Context) ([]Pairing, error) {
	return get[[]Pairing](ctx, c, "/pairings", nil)
}

// Models lists the models of a kind of session, "" for the default kind.
func (c *Client) Models(ctx context.Context, host string) ([]Model, error) {
	return get[[]Model](ctx, c, "/models", optional("host", host))
}

func optional(name, value string) url.Values {
	if value == "" {
		return nil
	}
	return url.Values{name: {value}}
}

func sessionPath(id, rest string) string {
	p := "/sessions/" + url.PathEscape(id)
	if rest != "" {
		p += "/" + rest
	}
	return p
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var v T
	err := c.do(ctx, http.MethodGet, path, q, nil, &v)
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
		return c.notGateway(fmt.Sprintf("the answer to %s %s is not what version 1 of its API gives", method, path))
	}
	return nil
}

// send makes a request; an answer other than 2xx is an error.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, body any) (*http.Response, error) {
	if c.missing != nil {
		return nil, c.missing
	}
	target := c.base + apiPath + path
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
		c.Trace("%s %s: %s in %v", method, target, r.Status, time.Since(begin).Round(time.Millisecond))
	}
	if r.StatusCode/100 == 2 {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	return nil, c.refused(r)
}

// broken words an error of the connection.
func (c *Client) broken(ctx context.Context, doing string, err error) error {
	if e := context.Cause(ctx); e != nil {
		err = e
	}
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e // of proven
	}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout, Err: err,
			Message: fmt.Sprintf("the gateway at %s did not answer in time; allow it longer with --timeout", c.URL())}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Err: err,
			Message: fmt.Sprintf("no gateway at %s (from %s); start one with: tapgw serve, or tapgw ensure", c.URL(), c.source)}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Err: err,
		Message: fmt.Sprintf("gateway at %s (from %s): %s: %v; is it running? start one with: tapgw serve, or tapgw ensure", c.URL(), c.source, doing, err)}
}

// refused words an answer that is an error.
func (c *Client) refused(r *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(r.Body, maxFile))
	var body struct {
		Error *Fail `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || body.Error == nil || body.Error.Message == "" {
		if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
			body.Error = &Fail{Message: "the gateway takes no requests now (" + r.Status + "); try again later"}
		} else {
			return c.notGateway("it answered " + r.Status)
		}
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
		Message: fmt.Sprintf("no gateway at %s (from %s): %s; name the gateway with --url", c.URL(), c.source, why)}
}

// stream makes a request and returns the lines of its answer as they come. The
// sequence ends with an error, or with the answer.
func stream(ctx context.Context, c *Client, method, path string, q url.Values, body any) iter.Seq2[[]byte, error] {
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
				err = cli.Failed("reading the gateway's answer: a line is not what version 1 of its API gives: %s", cli.Shorten(string(line), 80))
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

func live(lines iter.Seq2[[]byte, error]) iter.Seq2[LiveLine, error] {
	return func(yield func(LiveLine, error) bool) {
		var raw []byte
		kept := func(yield func([]byte, error) bool) {
			for line, err := range lines {
				raw = bytes.Clone(line)
				if !yield(line, err) {
					return
				}
			}
		}
		for l, err := range decoded[LiveLine](kept) {
			l.Raw = raw
			if !yield(l, err) {
				return
			}
		}
	}
}
