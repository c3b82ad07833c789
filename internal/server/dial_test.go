package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// dialPatience bounds every wait, against hangs.
const dialPatience = time.Minute

// dialRig is a gateway with a session and a server that listens nowhere: all providers are in this
// process.
type dialRig struct {
	t       *testing.T
	gateway *gateway.Gateway
	server  *server.Server
	session *gateway.Session
}

func newDialRig(t *testing.T, maxConnections int) *dialRig {
	g := gateway.New(
		gateway.Options{Starters: map[string]gateway.Starter{
			gateway.HostLocal: gateway.LocalStarter{},
		}})
	s, err := g.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	if err != nil {
		t.Fatal(err)
	}
	r := &dialRig{t, g, server.New(server.Options{Gateway: g, MaxConnections: maxConnections}), s}
	t.Cleanup(r.shutdown)
	return r
}

func (r *dialRig) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		r.t.Errorf("shutting down: %v, want nil", err)
	}
}

// run runs a provider with a tool t until the test ends. bound receives whenever the provider is
// bound, failed what its OnError got.
func (r *dialRig) run(
	handler func(context.Context, json.RawMessage) (any, error),
) (bound chan providers.Binding, failed chan error) {
	bound, failed = make(chan providers.Binding, 100), make(chan error, 100)
	p := providers.New("p", &providers.Options{
		URL: "ws://none.invalid", Token: r.gateway.InstanceToken(),
		Logger:  slog.New(slog.DiscardHandler),
		OnBound: func(_ context.Context, b providers.Binding) { bound <- b },
		OnError: func(err error) { failed <- err },
	})
	tool := providers.Tool{Name: "t", Description: "d", Handler: handler}
	if _, err := p.SetTools(r.t.Context(), []providers.Tool{tool}); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(link.WithDial(ctx, r.server.Dial)); err != nil {
			r.t.Errorf("running: %v, want nil", err)
		}
	})
	r.t.Cleanup(func() { cancel(); running.Wait() })
	return bound, failed
}

func await[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(dialPatience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func (r *dialRig) call(args string) gateway.Outcome {
	return r.session.CallTool(r.t.Context(), gateway.Call{Name: "t", Args: protocol.Raw(args)})
}

func echo(_ context.Context, args json.RawMessage) (any, error) { return string(args), nil }

func TestManyCallsWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 0)
	bound, _ := r.run(echo)
	await(t, "the provider", bound)
	callers, each := 10, 1_000
	if testing.Short() {
		each = 100
	}
	var calling sync.WaitGroup
	for c := range callers {
		calling.Go(func() {
			for i := range each {
				args := fmt.Sprintf(`{"n":%d}`, c*each+i)
				if out := r.call(args); out.Text() != args {
					t.Errorf("call %s: got %q, %s; want its arguments", args, out.Text(), out.Error)
					return
				}
			}
		})
	}
	calling.Wait()
	if n := r.gateway.Stats().Errors.Load(); n != 0 {
		t.Errorf("the gateway sent %d errors, want 0", n)
	}
}

func TestLargeResultWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 0)
	size := protocol.MaxResult + 1
	bound, _ := r.run(func(context.Context, json.RawMessage) (any, error) {
		return strings.Repeat("x", size), nil
	})
	await(t, "the provider", bound)
	if out := r.call(`{}`); !out.Failed() ||
		!strings.Contains(out.Error, "over the limit of 5242880") {
		t.Errorf("got %q, %d bytes; want an error that names the limit", out.Error, len(out.Text()))
	}
	size = 1 << 20
	if out := r.call(`{}`); len(out.Text()) != size {
		t.Errorf("got %d bytes and %q, want %d: the connection goes on", len(out.Text()), out.Error,
			size)
	}
}

func TestStopInMidCallWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 0)
	called := make(chan struct{}, 2)
	bound, failed := r.run(func(ctx context.Context, args json.RawMessage) (any, error) {
		if string(args) == `{}` {
			called <- struct{}{}
			<-ctx.Done()
		}
		return echo(ctx, args)
	})
	await(t, "the provider", bound)
	outcome := make(chan gateway.Outcome, 1)
	go func() { outcome <- r.call(`{}`) }()
	await(t, "the call", called)
	if n := r.gateway.StopProvider("p"); n != 1 {
		t.Errorf("stopped %d providers, want 1", n)
	}
	if out := await(t, "the end of the call", outcome); out.ErrorCode != protocol.CodeDisconnected {
		t.Errorf("got %s, want DISCONNECTED", out.ErrorCode)
	}
	err := await(t, "the reason", failed)
	if !strings.Contains(err.Error(), "the gateway closed it: stopped by the user (1000)") {
		t.Errorf("got %v, want the gateway's reason and code", err)
	}
	await(t, "the provider's return", bound)
	if out := r.call(`{"n":1}`); out.Text() != `{"n":1}` {
		t.Errorf("got %q, %s; want that calls are answered again", out.Text(), out.Error)
	}
}

func TestConnectionLimitWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 1)
	other, err := r.server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	bound, failed := r.run(echo)
	if err := await(t, "the refusal", failed); !strings.Contains(err.Error(),
		"1 providers are connected") {
		t.Errorf("got %v, want that the limit is reached", err)
	}
	if fault := r.server.ConnectionFault(); !strings.Contains(fault, "1 of 1") {
		t.Errorf("the status has the fault %q, want that the limit is reached", fault)
	}
	_ = other.CloseNow()
	_ = other.CloseNow() // counts once
	await(t, "the provider, which has a place now", bound)
	if _, err := r.server.Dial(); err == nil {
		t.Error("a second connection has a place, want none")
	}
}

// A provider that reads nothing loses its connection and its calls, and gives its place back.
func TestFrozenProviderWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 1)
	frozen, err := r.server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"type":"auth","token":"` + r.gateway.InstanceToken() + `"}`,
		`{"type":"hello","name":"p","protocolVersion":2,"session":"` + r.session.ID() +
			`","tools":[{"name":"t","description":"d","parameters":{}}]}`,
	} {
		_ = frozen.Write(t.Context(), websocket.MessageText, []byte(text))
	}
	ends := make(chan gateway.Outcome, 10)
	big := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	for range cap(ends) {
		go func() { ends <- r.call(big) }()
	}
	late := 0 // those that began when it was cut off already
	for range cap(ends) {
		if out := await(t, "the end of a call", ends); out.ErrorCode == protocol.CodeNotFound &&
			late < 2 {
			late++
		} else if out.ErrorCode != protocol.CodeDisconnected {
			t.Errorf("got %s, want DISCONNECTED", out.ErrorCode)
		}
	}
	if n := r.gateway.Stats().SlowPeers.Load(); n != 1 {
		t.Errorf("got %d slow consumers, want 1", n)
	}
	next, err := r.server.Dial()
	if err != nil {
		t.Fatalf("got %v, want the place of the provider that was cut off", err)
	}
	_, _ = frozen.CloseNow(), next.CloseNow()
}

func TestShutdownEndsConnectionsWithinTheProcess(t *testing.T) {
	r := newDialRig(t, 0)
	l, err := r.server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Write(t.Context(), websocket.MessageText,
		[]byte(`{"type":"auth","token":"`+r.gateway.AdminToken()+`"}`))
	r.shutdown()
	for err == nil {
		_, _, err = l.Read(t.Context())
	}
	want := websocket.CloseError{Code: websocket.StatusGoingAway,
		Reason: "the gateway is shutting down"}
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if _, err := r.server.Dial(); err == nil || err.Error() != want.Reason {
		t.Errorf("dialling after the end: got %v, want %s", err, want.Reason)
	}
}
