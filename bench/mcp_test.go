package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/mcpbridge"
	"tapgw/internal/mcpserver"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// revisions are the newest of MCP, and the newest with a handshake.
var revisions = []string{"2026-07-28", "2025-11-25"}

type text struct {
	Text string `json:"text"`
}

// mcpServer is a server whose tool echo answers at once. Its tool grow adds a tool of the name in
// its argument.
func mcpServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "grow"},
		func(ctx context.Context, r *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any,
			error) {
			mcp.AddTool(s, &mcp.Tool{Name: in.Text}, echo)
			return echo(ctx, r, in)
		})
	return s
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
}

// runMCPServer is an MCP server on stdin and stdout, or on streamable HTTP. Then it prints its URL.
func runMCPServer(ctx context.Context, p part) error {
	if !p.HTTP {
		return mcpServer().Run(ctx, &mcp.StdioTransport{})
	}
	web := httptest.NewServer(mcpHandler())
	defer web.Close()
	fmt.Println(web.URL)
	<-untilOrphaned(ctx).Done()
	web.CloseClientConnections()
	return nil
}

// mcpHandler serves the server to clients of both kinds of revisions.
func mcpHandler() http.Handler {
	s := mcpServer()
	get := func(*http.Request) *mcp.Server { return s }
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true,
		PropagateRequestCancellation: true})
	legacy := mcp.NewStreamableHTTPHandler(get, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("MCP-Protocol-Version") >= "2026-07-28" {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	})
}

// mcpClient is a client of the SDK.
type mcpClient struct {
	*mcp.ClientSession
	b       *testing.B
	changed chan struct{} // one token: the list of tools may have changed
}

// connect connects a client of a revision. close ends it before the benchmark's end.
func connect(b *testing.B, t mcp.Transport, revision string) (c *mcpClient, close func()) {
	b.Helper()
	c = &mcpClient{b: b, changed: make(chan struct{}, 1)}
	own := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case c.changed <- struct{}{}:
			default:
			}
		}})
	var err error
	if c.ClientSession, err = own.Connect(context.Background(), t,
		&mcp.ClientSessionOptions{ProtocolVersion: revision}); err != nil {
		b.Fatal(err)
	}
	if got := c.InitializeResult().ProtocolVersion; got != revision {
		b.Fatalf("the client speaks %s, want %s", got, revision)
	}
	close = sync.OnceFunc(func() { _ = c.Close() })
	b.Cleanup(close)
	return c, close
}

// overHTTP connects over streamable HTTP.
func overHTTP(b *testing.B, url, token, revision string) (c *mcpClient, close func()) {
	b.Helper()
	web := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(web.CloseIdleConnections) // after the client's end
	return connect(b, &mcp.StreamableClientTransport{Endpoint: url,
		HTTPClient: &http.Client{Transport: bearer{web, token}}}, revision)
}

// bearer sends a token with each request.
type bearer struct {
	http.RoundTripper
	token string
}

// RoundTrip implements [http.RoundTripper].
func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.RoundTripper.RoundTrip(r)
}

func (c *mcpClient) call(tool, say string) error {
	params := &mcp.CallToolParams{Name: tool, Arguments: text{say}}
	r, err := c.CallTool(context.Background(), params)
	if err != nil {
		return err
	}
	if got, ok := r.Content[0].(*mcp.TextContent); !ok || r.IsError || got.Text != say {
		return fmt.Errorf("calling %s: got %.200q, want what was sent", tool, marshal(r))
	}
	return nil
}

func (c *mcpClient) calls(workers, n int, say string) load {
	c.b.Helper()
	l := makeCalls(workers, n, func(int) error { return c.call("echo", say) })
	if l.Error != "" {
		c.b.Fatal(l.Error)
	}
	return l
}

// await lists the tools until one is there: at once, when the server says that they have changed,
// and each time that again is received from. again may be nil.
func (c *mcpClient) await(tool string, again <-chan time.Time) {
	c.b.Helper()
	for deadline := time.After(20 * time.Second); ; {
		list, err := c.ListTools(context.Background(), nil)
		if err != nil {
			c.b.Fatal(err)
		}
		for _, t := range list.Tools {
			if t.Name == tool {
				return
			}
		}
		select {
		case <-c.changed:
		case <-again:
		case <-deadline:
			c.b.Fatalf("the list of tools has no %s after 20 s", tool)
		}
	}
}

// mcpGateway starts a real gateway with a provider file for the server on pipes, and a session.
func (r rig) mcpGateway() (m *middle, url string) {
	r.Helper()
	dir, env := home(r.B, "")
	name, value, _ := strings.Cut(part{Role: "mcp"}.variable(), "=")
	put(r.B, dir+"/tapgw/providers/bench.toml",
		fmt.Sprintf("kind = \"mcp\"\ncommand = [%q]\nenv = { %s = %q }\n",
			self(r.B), name, value))
	m = r.gatewayIn(dir, env)
	session, err := m.client().Start(r.Context(), adminapi.StartRequest{Host: gateway.HostLocal,
		CWD: "/"})
	if err != nil {
		r.Fatal(err)
	}
	return m, "http" + strings.TrimPrefix(m.url, "ws") + "/mcp/s/" + session
}

// BenchmarkMCP is the way of an MCP client through a real gateway to an MCP server: streamable HTTP
// in front, pipes behind. The floor is the same client on the same server's own streamable HTTP.
// Processor time and memory, right after the calls, are those of the gateway, and those of the
// server on the floor's side.
func BenchmarkMCP(b *testing.B) {
	large := strings.Repeat("0123456789", 10_000)
	for _, revision := range revisions {
		b.Run(revision, func(b *testing.B) {
			r := rig{B: b}
			side := func(p *process, url, token string) func() metrics {
				c, _ := overHTTP(b, url, token, revision)
				c.await("echo", time.Tick(5*time.Millisecond))
				c.calls(8, 1000, "hello")
				return func() metrics {
					before := p.cpu()
					one := c.calls(1, 200, "hello")
					cpu := us(p.cpu()-before) / 200
					got := metrics{"p50-us": us(one.P50), "p99-us": us(one.P99), "cpu-us": cpu,
						"calls/s":       c.calls(32, 640, "hello").rate(),
						"100-kB-p50-us": us(c.calls(1, 20, large).P50)}
					got["resident-MiB"], got["anonymous-MiB"] = p.memory()
					return got
				}
			}
			server := r.part(part{Role: "mcp", HTTP: true})
			m, url := r.mcpGateway()
			compare(b, side(server, server.line(), ""), side(m.process, url, m.admin))
		})
	}
}

// BenchmarkMCPList is the time from the start of server or gateway to a client's first list of
// tools, and from the answer of a call that adds a tool to the list with it.
func BenchmarkMCPList(b *testing.B) {
	for _, revision := range revisions {
		b.Run(revision, func(b *testing.B) {
			r := rig{B: b}
			round := func(began time.Time, url, token string) metrics {
				c, end := overHTTP(b, url, token, revision)
				defer end()
				c.await("echo", time.Tick(5*time.Millisecond))
				first := time.Since(began)
				pause(b, 700*time.Millisecond) // lists change at most twice a second
				if err := c.call("grow", "grown"); err != nil {
					b.Fatal(err)
				}
				began = time.Now()
				c.await("grown", nil)
				return metrics{"first-ms": ms(first), "changed-ms": ms(time.Since(began))}
			}
			compare(b, func() metrics {
				began := time.Now()
				server := r.part(part{Role: "mcp", HTTP: true})
				defer server.stop()
				return round(began, server.line(), "")
			}, func() metrics {
				began := time.Now()
				m, url := r.mcpGateway()
				defer m.stop()
				return round(began, url, m.admin)
			})
		})
	}
}

// BenchmarkMCPServer is a call into /mcp that a provider on a WebSocket answers, beside a call to a
// bare server of the SDK. All of them are in this process.
func BenchmarkMCPServer(b *testing.B) {
	l := newLocalIn(b, gateway.Options{})
	h := mcpserver.New(mcpserver.Options{Gateway: l.g,
		ToolThreshold: mcpserver.DefaultToolThreshold})
	b.Cleanup(h.Close)
	l.serveIn(b, server.Options{MCP: h})
	l.provide(b, func(o *providers.Options) run {
		p := providers.New("bench", o)
		say := func(_ context.Context, in text) (string, error) { return in.Text, nil }
		providers.AddTool(p, "echo", "Says it", say)
		return p.Run
	})
	for _, revision := range revisions {
		b.Run(revision, func(b *testing.B) {
			bare := httptest.NewServer(mcpHandler())
			b.Cleanup(func() { bare.CloseClientConnections(); bare.Close() })
			side := func(url, token string) func() metrics {
				c, _ := overHTTP(b, url, token, revision)
				c.await("echo", nil)
				return func() metrics {
					one := c.calls(1, 100, "hello")
					return metrics{"p50-us": us(one.P50), "p99-us": us(one.P99)}
				}
			}
			compare(b, side(bare.URL, ""), side(l.web()+"/mcp", l.g.AdminToken()))
		})
	}
}

type run = func(context.Context) error

// provide runs a provider of the session, and waits until it is bound.
func (l *local) provide(b *testing.B, provider func(*providers.Options) run) {
	b.Helper()
	bound := make(chan struct{}, 8)
	do := provider(&providers.Options{URL: l.srv.URL(), Token: l.g.AdminToken(),
		Session: providers.AllSessions,
		Logger:  slog.New(slog.DiscardHandler),
		OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} }})
	ctx, cancel := context.WithCancel(link.WithDial(b.Context(), l.srv.Dial))
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	select {
	case <-bound:
	case err := <-ended:
		ended <- nil
		b.Fatalf("the provider has ended: %v", err)
	}
}

// BenchmarkMCPBridge is a call of an MCP server's tool in a session of this process, beside the
// same call on the SDK's client in this process.
func BenchmarkMCPBridge(b *testing.B) {
	for _, transport := range []string{"HTTP", "pipes"} {
		b.Run(transport, func(b *testing.B) {
			own := part{Role: "mcp"}
			name, value, _ := strings.Cut(own.variable(), "=")
			command := exec.Command(self(b))
			command.Env = append(command.Environ(), own.variable())
			file := configs.Provider{Name: "bench", Kind: configs.KindMCP,
				Command: []string{self(b)}, Env: map[string]string{name: value}}
			var client *mcpClient
			if transport == "HTTP" {
				url := rig{B: b}.part(part{Role: "mcp", HTTP: true}).line()
				file.Command, file.MCP.URL = nil, url
				client, _ = overHTTP(b, url, "", revisions[0])
			} else {
				client, _ = connect(b, &mcp.CommandTransport{Command: command}, revisions[0])
			}
			l := newLocalIn(b, gateway.Options{})
			l.serveIn(b, server.Options{})
			l.provide(b, func(o *providers.Options) run {
				return func(ctx context.Context) error {
					return mcpbridge.Run(ctx, mcpbridge.Options{
						Provider: file, Dir: "/", Env: command.Env, Version: "bench", Gateway: *o,
						Line: func(string, string) {}, Faults: func([]string) {},
						Trouble: func(error) {},
					})
				}
			})
			args := json.RawMessage(`{"text":"hello"}`)
			compare(b, func() metrics {
				return metrics{"p50-us": us(client.calls(1, 200, "hello").P50)}
			}, func() metrics {
				got := makeCalls(1, 200, func(int) error {
					out := l.s.CallTool(b.Context(), gateway.Call{Name: "echo",
						Args: protocol.Raw(args)})
					if out.Failed() {
						return fmt.Errorf("a call through the bridge: %s", out.Text())
					}
					return nil
				})
				if got.Error != "" {
					b.Fatal(got.Error)
				}
				return metrics{"p50-us": us(got.P50)}
			})
		})
	}
}
