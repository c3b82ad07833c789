package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/mcpbridge"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// mcpServer is a server with one tool, which answers at once.
func mcpServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			content := &mcp.TextContent{Text: string(req.Params.Arguments)}
			return &mcp.CallToolResult{Content: []mcp.Content{content}}, nil
		})
	return s
}

// runMCPServer is an MCP server on stdin and stdout, or with an argument on streamable HTTP; it prints its URL.
func runMCPServer(ctx context.Context, args []string) error {
	s := mcpServer()
	if len(args) == 0 {
		return s.Run(ctx, &mcp.StdioTransport{})
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/\n", l.Addr())
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := web.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// startMCPServer runs an MCP server on streamable HTTP as a process of its own.
func startMCPServer(ctx context.Context, self string) (url string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	program := exec.CommandContext(ctx, self, "mcptool", "http")
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	stop = func() { cancel(); _ = program.Wait() }
	if _, err := fmt.Fscanln(out, &url); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}

// mcpCalls compares calls through the bridge with calls of the SDK's client to a server of the same program.
func mcpCalls(ctx context.Context, o options, r *report) error {
	r.title("Calls of an MCP server's tool: through the bridge and a session, and on the SDK's client",
		"metric\tSDK\ttapgw\tratio\tat most\t")
	for _, transport := range []string{"streamable HTTP", "pipes"} {
		if err := mcpCallsOver(ctx, o, r, transport); err != nil {
			return err
		}
	}
	return nil
}

func mcpCallsOver(ctx context.Context, o options, r *report, transport string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file := configs.Provider{Name: "bench", Kind: configs.KindMCP, Command: []string{o.self, "mcptool"}}
	var direct mcp.Transport = &mcp.CommandTransport{Command: exec.CommandContext(ctx, o.self, "mcptool")}
	if transport != "pipes" {
		url, stop, err := startMCPServer(ctx, o.self)
		if err != nil {
			return err
		}
		defer stop()
		file.Command, file.MCP.URL = nil, url
		direct = &mcp.StreamableClientTransport{Endpoint: url}
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, direct, nil)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	bridged, stop, err := bridgedSession(ctx, file)
	if err != nil {
		return err
	}
	defer stop()
	args := json.RawMessage(`{"city":"Zürich","days":3}`)
	var wall series
	for range o.rounds {
		floor, err := perCall(o.calls/4, func() error {
			_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: args})
			return err
		})
		if err != nil {
			return err
		}
		ours, err := perCall(o.calls/4, func() error {
			if out := bridged.CallTool(ctx, gateway.Call{Name: "echo", Args: protocol.Raw(args)}); out.Failed() {
				return fmt.Errorf("a call through the bridge: %s", out.Text())
			}
			return nil
		})
		if err != nil {
			return err
		}
		wall.add(floor, ours)
	}
	wall.row(r, "round trip, "+transport+" (µs)", "%.0f", 1.3, false)
	return nil
}

// perCall returns how long a call takes, in microseconds.
func perCall(n int, call func() error) (float64, error) {
	began := time.Now()
	for range n {
		if err := call(); err != nil {
			return 0, err
		}
	}
	return micros(time.Since(began).Nanoseconds()) / float64(n), nil
}

// bridgedSession is a session that has the tools of an MCP server.
func bridgedSession(ctx context.Context, file configs.Provider) (s *gateway.Session, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	g := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}})
	srv := server.New(server.Options{Gateway: g, Status: func() adminapi.Status { return adminapi.Status{} }})
	if err := srv.Listen("127.0.0.1:0"); err != nil {
		cancel()
		return nil, nil, err
	}
	ended := make(chan error, 2)
	go func() { ended <- srv.Serve() }()
	stopServer := func() {
		_ = srv.Shutdown(context.WithoutCancel(ctx))
		<-ended //nolint:errcheck // it was shut down
	}
	if s, err = g.Start(ctx, gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"}); err != nil {
		stopServer()
		cancel()
		return nil, nil, err
	}
	bound := make(chan struct{}, 1)
	bridge := make(chan error, 1)
	go func() {
		bridge <- mcpbridge.Run(link.WithDial(ctx, srv.Dial), mcpbridge.Options{
			Provider: file, Dir: "/", Env: os.Environ(), Version: "bench",
			Gateway: providers.Options{
				URL: srv.URL(), Token: g.AdminToken(), Session: providers.AllSessions,
				Logger:  slog.New(slog.DiscardHandler),
				OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} },
			},
			Line: func(string, string) {}, Faults: func([]string) {}, Trouble: func(error) {},
		})
	}()
	stop = func() {
		cancel()
		<-bridge //nolint:errcheck // it was stopped
		stopServer()
	}
	select {
	case <-bound:
		return s, stop, nil
	case err := <-bridge:
		bridge <- nil
		stop()
		return nil, nil, fmt.Errorf("the bridge ended: %w", err)
	}
}
