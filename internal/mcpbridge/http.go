package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/weburl"
)

var stayOnHost = weburl.StayOnHost("the MCP server")

// overHTTP connects to the server at a URL. Its headers go to no other host.
func (u *upstream) overHTTP() (mcp.Transport, error) {
	server := u.b.o.Provider.MCP
	headers, err := configs.ExpandHeaders(server.Headers)
	if err != nil {
		return nil, fatalError{err}
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	ctx, cancel := context.WithCancel(context.Background())
	u.reason = func() error { return nil }
	u.stop = func() {
		cancel()
		base.CloseIdleConnections()
	}
	g := &guard{ctx: ctx, u: u, base: base, headers: headers}
	transport := &mcp.StreamableClientTransport{
		Endpoint:   server.URL,
		HTTPClient: &http.Client{Transport: g, CheckRedirect: stayOnHost},
		// at its own bound the SDK gives up the connection: guard has a lower one
		MaxEventSize: 2 * maxMessage,
	}
	if u.b.o.Logins != nil && !server.HasAuthorization() {
		g.login = u.b.o.Logins.ofProvider(u.b.o.Provider)
		transport.OAuthHandler = &authorizer{u, g.login}
	}
	return transport, nil
}

// guard adds the headers of the provider file to requests, and bounds the answers. The SDK reads an
// answer whole, and takes one that it can't read for the end of the connection.
type guard struct {
	ctx     context.Context // ends every request
	u       *upstream
	base    http.RoundTripper
	headers http.Header
	login   *login // may be nil
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	release := context.AfterFunc(g.ctx, cancel)
	end := func() {
		release()
		cancel()
	}
	req = req.Clone(ctx)
	maps.Copy(req.Header, g.headers)
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		end()
		return nil, err
	}
	if resp.StatusCode != http.StatusUnauthorized {
		g.login.taken(req)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream":
		stream := &eventStream{Reader: resp.Body}
		whole := body{stream, resp.Body, end}
		if uri, ok := ctx.Value(subscriptionKey{}).(string); ok {
			whole.end = func() {
				if ctx.Err() == nil { // the bridge has not ended it
					g.u.watch.ended(uri)
				}
				end()
			}
		} else if req.Header.Get("Mcp-Method") == "subscriptions/listen" {
			stream.ended = g.u.listenEnded
		}
		resp.Body = whole
	case kind == "application/json" && resp.StatusCode == http.StatusOK &&
		req.Method == http.MethodPost:
		defer end()
		if err := wholeAnswer(req, resp); err != nil {
			return nil, err
		}
	default:
		resp.Body = body{&limited{resp.Body, maxMessage}, resp.Body, end}
	}
	return resp, nil
}

// body is the body of an answer, read through a bound.
type body struct {
	io.Reader
	whole io.Closer
	end   func() // of the request
}

func (b body) Close() error {
	defer b.end()
	return b.whole.Close()
}

// listenEnded ends the connection when the server no longer tells of changes: the SDK does not ask
// it again.
func (u *upstream) listenEnded() {
	u.lose(errors.New("the MCP server ended the stream of its changes"))
}

// wholeAnswer reads an answer. If the answer is too long or no JSON, it puts an error in its place,
// so that only this call fails.
func wholeAnswer(req *http.Request, resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1))
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case len(data) > maxMessage:
		data, err = errorAnswer(req, fmt.Sprintf("the MCP server's answer has more than %d MiB",
			maxMessage>>20))
	case len(bytes.TrimSpace(data)) > 0 && !json.Valid(data):
		data, err = errorAnswer(req, "the MCP server's answer is not JSON")
	}
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	return nil
}

// errorAnswer is the answer to a request that says that it failed.
func errorAnswer(req *http.Request, message string) ([]byte, error) {
	body, err := req.GetBody()
	if err != nil {
		return nil, errors.New(message)
	}
	defer func() { _ = body.Close() }()
	var asked struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.NewDecoder(body).Decode(&asked); err != nil || asked.ID == nil {
		return nil, errors.New(message)
	}
	return json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": asked.ID,
		"error": map[string]any{"code": -32603, "message": message},
	})
}

// limited is a body that fails after a number of bytes.
type limited struct {
	io.Reader
	left int
}

var errTooLong = fmt.Errorf("the MCP server's answer has more than %d MiB", maxMessage>>20)

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.Reader.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// eventStream is a body of server-sent events that fails at an event that is too long. The SDK
// would read such a body to its end, which need not come.
type eventStream struct {
	io.Reader
	ended func() // may be nil

	size   int // of the event
	isLine bool
	failed bool
}

func (e *eventStream) Read(p []byte) (int, error) {
	if e.failed {
		return 0, errTooLong
	}
	n, err := e.Reader.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '\n' && !e.isLine: // an empty line ends an event
			e.size = 0
		case c == '\n':
			e.isLine = false
		case c != '\r':
			e.isLine = true
		}
		e.size++
	}
	if e.failed = e.size > maxMessage+1<<10; e.failed {
		n, err = 0, errTooLong
	}
	if err != nil && e.ended != nil {
		e.ended()
	}
	return n, err
}
