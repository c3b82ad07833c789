package mcpserver_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"tapgw/internal/gateway"
	"tapgw/internal/mcpserver"
	"tapgw/internal/server"
	"tapgw/providers"
)

// patience bounds every wait, against hangs.
const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a gateway that runs, with MCP.
type world struct {
	*testing.T
	gateway *gateway.Gateway
	mcp     *mcpserver.Handler
	url     string // http, without a path
	ws      string
	elicit  elicitHandler // of the clients that connect; nil: they can't ask their user
}

type elicitHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)

func newWorld(t *testing.T, threshold int, change ...func(*gateway.Options)) *world {
	t.Helper()
	persist := server.Persist{Dir: t.TempDir()}
	options := gateway.Options{PersistDir: persist.Make, ReadFile: persist.Read,
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}}
	for _, c := range change {
		c(&options)
	}
	w := &world{T: t, gateway: gateway.New(options)}
	w.mcp = mcpserver.New(mcpserver.Options{Gateway: w.gateway, Version: "test",
		ToolThreshold: threshold})
	s := server.New(server.Options{Gateway: w.gateway, Version: "test", MCP: w.mcp})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.ws = s.URL()
	w.url = "http" + strings.TrimPrefix(w.ws, "ws")
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: got %v, want no error", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: got %v, want no error", err)
		}
		w.mcp.Close()
	})
	return w
}

// session starts a session without a model.
func (w *world) session() *gateway.Session {
	w.Helper()
	s, err := w.gateway.Start(w.Context(), gateway.StartRequest{Host: gateway.HostLocal,
		CWD: w.TempDir()})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// provider is a provider whose tools tell the test of their calls.
type provider struct {
	*providers.Provider
	begun, cancelled chan struct{}
	stop             func()
}

// provide runs a provider with the tools echo, shape, fails and hang in a session, until the test
// ends.
func (w *world) provide(s *gateway.Session, more ...providers.Tool) *provider {
	w.Helper()
	p := &provider{begun: make(chan struct{}, 16), cancelled: make(chan struct{}, 16)}
	bound := make(chan struct{}, 16)
	p.Provider = providers.New("ci", &providers.Options{URL: w.ws, Token: w.gateway.InstanceToken(),
		Session: s.ID(), OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} }})
	type text struct {
		Text string `json:"text"`
	}
	providers.AddTool(p.Provider, "echo", "Says it again",
		func(ctx context.Context, in text) (string, error) {
			providers.Progress(ctx, "half")
			return in.Text, nil
		})
	providers.AddTool(p.Provider, "shape", "Gives an object",
		func(context.Context, struct{}) (map[string]int, error) {
			return map[string]int{"sides": 3}, nil
		})
	providers.AddTool(p.Provider, "fails", "Fails", func(context.Context, struct{}) (string,
		error) {
		return "", &providers.Error{Code: providers.CodeNotFound, Message: "no such city"}
	})
	providers.AddTool(p.Provider, "hang", "Hangs", func(ctx context.Context, _ struct{}) (string,
		error) {
		p.begun <- struct{}{}
		<-ctx.Done()
		p.cancelled <- struct{}{}
		return "", context.Cause(ctx)
	})
	for _, t := range more {
		if _, err := p.AddTool(w.Context(), t); err != nil {
			w.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() { cancel(); <-done })
	w.Cleanup(p.stop)
	w.receive("the provider's binding", bound)
	return p
}

func (w *world) receive(what string, from <-chan struct{}) {
	w.Helper()
	select {
	case <-from:
	case <-time.After(patience):
		w.Fatalf("waited for %s in vain, want it in time", what)
	}
}

// client is an MCP client with the notifications that it got.
type client struct {
	*mcp.ClientSession
	w        *world
	tools    chan struct{}
	updated  chan string
	progress chan string
}

// eras are the revisions that the tests speak: one of each kind.
var eras = map[string]string{"modern": "2026-07-28", "handshake": "2025-11-25"}

// connect connects the SDK's client to a path, with a token.
func (w *world) connect(version, path, token string) *client {
	w.Helper()
	c, err := w.tryConnect(version, path, token)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) tryConnect(version, path, token string) (*client, error) {
	c := &client{w: w, tools: make(chan struct{}, 64), updated: make(chan string, 64),
		progress: make(chan string, 64)}
	own := &http.Transport{}
	w.Cleanup(own.CloseIdleConnections)
	mine := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: w.elicit,
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.tools <- struct{}{}
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.updated <- r.Params.URI
		},
		ProgressNotificationHandler: func(
			_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.progress <- r.Params.Message
		},
	})
	var err error
	c.ClientSession, err = mine.Connect(
		w.Context(),
		&mcp.StreamableClientTransport{Endpoint: w.url + path, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: bearer{token, own}}},
		&mcp.ClientSessionOptions{ProtocolVersion: version},
	)
	if err == nil {
		w.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// names lists the tools, sorted.
func (c *client) names() (names []string) {
	c.w.Helper()
	for t, err := range c.Tools(c.w.Context(), nil) {
		if err != nil {
			c.w.Fatal(err)
		}
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// call calls a tool and returns its result.
func (c *client) call(name string, args map[string]any) *mcp.CallToolResult {
	c.w.Helper()
	r, err := c.CallTool(c.w.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		c.w.Fatalf("calling %s: got %v, want no error", name, err)
	}
	return r
}

// text is the text of a result.
func text(r *mcp.CallToolResult) string {
	var texts []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// hasTools waits until the client has a list of tools.
func (c *client) hasTools(want ...string) {
	c.w.Helper()
	slices.Sort(want)
	for got := c.names(); !slices.Equal(got, want); got = c.names() {
		select {
		case <-c.tools:
		case <-time.After(patience):
			c.w.Fatalf("tools: got %v, want %v", got, want)
		}
	}
}

// authorized is a client of HTTP with the admin token.
func (w *world) authorized() *http.Client {
	own := &http.Transport{}
	w.Cleanup(own.CloseIdleConnections)
	return &http.Client{Transport: bearer{w.gateway.AdminToken(), own}}
}
