package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/gateway"
	"tapgw/internal/mcpserver"
	"tapgw/internal/server"
	"tapgw/providers"
)

type sayArgs struct {
	Text string `json:"text"`
}

// sessionAsServer compares a call into /mcp, answered by a provider on a WebSocket, with a call to a bare server of
// the SDK, in one process, over loopback.
func sessionAsServer(ctx context.Context, o options, r *report) error {
	r.title("A call into /mcp against one to a bare server of the SDK, in one process, over loopback",
		"metric\tbare\ttapgw\tratio\ttarget\t")
	bare, closeBare, err := bareMCP()
	if err != nil {
		return err
	}
	defer closeBare()
	ours, token, closeOurs, err := sessionMCP(ctx)
	if err != nil {
		return err
	}
	defer closeOurs()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		var s series
		floor, err := mcpClient(ctx, bare, "", version)
		if err != nil {
			return err
		}
		gw, err := mcpClient(ctx, ours, token, version)
		if err != nil {
			return err
		}
		for range o.rounds {
			a, err := callMCP(ctx, floor, o.calls/8)
			if err != nil {
				return err
			}
			b, err := callMCP(ctx, gw, o.calls/8)
			if err != nil {
				return err
			}
			s.add(a, b)
		}
		s.row(r, "call, p50 us, "+version, "%.0f", 1.5, false)
		_, _ = floor.Close(), gw.Close()
	}
	return nil
}

// bareMCP serves a tool on the SDK alone, both kinds of revisions at one URL.
func bareMCP() (url string, end func(), err error) {
	s := mcp.NewServer(&mcp.Implementation{Name: "bare"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(_ context.Context, _ *mcp.CallToolRequest, in sayArgs,
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	get := func(*http.Request) *mcp.Server { return s }
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true,
		PropagateRequestCancellation: true})
	legacy := mcp.NewStreamableHTTPHandler(get, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	h := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("MCP-Protocol-Version") >= "2026-07-28" {
				modern.ServeHTTP(w, r)
				return
			}
			legacy.ServeHTTP(w, r)
		})}
	go func() { _ = h.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _ = h.Close() }, nil
}

// sessionMCP serves a session with a provider that has the same tool.
func sessionMCP(ctx context.Context) (url, token string, end func(), err error) {
	g := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}})
	h := mcpserver.New(mcpserver.Options{Gateway: g, ToolThreshold: mcpserver.DefaultToolThreshold})
	s := server.New(server.Options{Gateway: g, MCP: h})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		return "", "", nil, err
	}
	go func() { _ = s.Serve() }()
	running, cancel := context.WithCancel(ctx)
	end = func() {
		cancel()
		_ = s.Shutdown(context.WithoutCancel(ctx))
		h.Close()
	}
	session, err := g.Start(ctx, gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	if err != nil {
		end()
		return "", "", nil, err
	}
	bound := make(chan struct{}, 8)
	p := providers.New("bench", &providers.Options{URL: s.URL(), Token: g.InstanceToken(), Session: session.ID(),
		Logger:  slog.New(slog.DiscardHandler),
		OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} }})
	providers.AddTool(p, "say", "Says it", func(_ context.Context, in sayArgs) (string, error) { return in.Text, nil })
	go func() { _ = p.Run(running) }()
	select {
	case <-bound:
	case <-time.After(time.Minute):
		end()
		return "", "", nil, errors.New("the provider is not bound after a minute")
	}
	return "http" + strings.TrimPrefix(s.URL(), "ws") + "/mcp", g.AdminToken(), end, nil
}

func mcpClient(ctx context.Context, url, token, version string) (*mcp.ClientSession, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "bench"}, nil)
	client, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url,
		HTTPClient: &http.Client{Transport: bearer(token)}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	_, err = client.ListTools(ctx, nil) // the client looks the tool up before a call
	return client, err
}

// bearer is a token that goes with each request.
type bearer string

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// callMCP calls the tool some times and returns the median in microseconds.
func callMCP(ctx context.Context, c *mcp.ClientSession, calls int) (p50 float64, err error) {
	took := make([]time.Duration, 0, calls)
	for range calls {
		begun := time.Now()
		r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "say", Arguments: sayArgs{"hello"}})
		if err == nil && r.IsError {
			err = errors.New("the call failed")
		}
		if err != nil {
			return 0, fmt.Errorf("calling the tool: %w", err)
		}
		took = append(took, time.Since(begun))
	}
	return float64(median(took).Nanoseconds()) / 1e3, nil
}
