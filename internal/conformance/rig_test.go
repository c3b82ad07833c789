package conformance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

// gatewayRig is a real gateway in this process. Its connections are pipes, so that a synctest
// bubble can wait for them.
type gatewayRig struct {
	gateway *gateway.Gateway
	server  *server.Server
	pipes   *pipes
	serving sync.WaitGroup
}

func newGatewayRig(t *testing.T) *gatewayRig {
	rig := &gatewayRig{pipes: newPipes()}
	persist := server.Persist{Dir: t.TempDir()}
	rig.gateway = gateway.New(gateway.Options{PersistDir: persist.Make, ReadFile: persist.Read})
	rig.server = server.New(server.Options{Gateway: rig.gateway, Version: "test"})
	rig.server.Use(rig.pipes)
	rig.serving.Go(func() {
		if err := rig.server.Serve(); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return rig
}

func (rig *gatewayRig) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := rig.server.Shutdown(ctx); err != nil {
		t.Errorf("shutting down: %v", err)
	}
	rig.serving.Wait()
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return textAddress("127.0.0.1:9400") }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- addressed{theirs}:
		return ours, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// textAddress is the address of a pipe.
type textAddress string

func (a textAddress) Network() string { return "tcp" }
func (a textAddress) String() string  { return string(a) }

// addressed is a pipe whose end at the gateway has the address of a loopback listener.
type addressed struct{ net.Conn }

func (addressed) LocalAddr() net.Addr { return textAddress("127.0.0.1:9400") }

// dialWebSocket is the Dial of a [ReplayTarget].
func (l *pipes) dialWebSocket(
	ctx context.Context, path string, header http.Header,
) (*websocket.Conn, *http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
	return websocket.Dial(
		ctx,
		"ws://127.0.0.1:9400"+path,
		&websocket.DialOptions{HTTPClient: client, HTTPHeader: header},
	)
}
