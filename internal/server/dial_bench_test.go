package server_test

import (
	"context"
	"log/slog"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// BenchmarkProviderCall measures a call to a provider of this process, over a WebSocket and without
// a socket.
func BenchmarkProviderCall(b *testing.B) {
	for _, over := range []string{"websocket", "link"} {
		b.Run(over, func(b *testing.B) { benchProviderCall(b, over == "link") })
	}
}

func benchProviderCall(b *testing.B, isLink bool) {
	g := gateway.New(
		gateway.Options{Starters: map[string]gateway.Starter{
			gateway.HostLocal: gateway.LocalStarter{},
		}})
	session, err := g.Start(b.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	if err != nil {
		b.Fatal(err)
	}
	web := server.New(server.Options{Gateway: g})
	if err := web.Listen("127.0.0.1:0"); err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve() }()
	bound := make(chan struct{}, 1)
	p := providers.New("p", &providers.Options{
		URL: web.URL(), Token: g.InstanceToken(), Logger: slog.New(slog.DiscardHandler),
		OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} },
	})
	if _, err := p.SetTools(b.Context(),
		[]providers.Tool{{Name: "t", Description: "d", Handler: echo}}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if isLink {
		ctx = link.WithDial(ctx, web.Dial)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-bound
	args := protocol.Raw(`{"city":"Zürich","days":3}`)
	b.ReportAllocs()
	for b.Loop() {
		if out := session.CallTool(b.Context(),
			gateway.Call{Name: "t", Args: args}); out.Text() != string(args) {
			b.Fatalf("got %q, want %q", out.Text(), args)
		}
	}
	cancel()
	_ = web.Shutdown(context.Background())
	for _, end := range []chan error{ended, served} {
		if err := <-end; err != nil {
			b.Error(err)
		}
	}
}
