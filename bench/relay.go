package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

// relay is the floor: it forwards the frames unchanged, the host's to the providers in turn, a provider's to the host.
type relay struct {
	mu        sync.RWMutex
	host      *websocket.Conn
	providers []*websocket.Conn

	serving sync.WaitGroup // of the connections
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	r.serving.Add(1)
	defer r.serving.Done()
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(-1)
	ctx := context.Background()
	r.mu.Lock()
	if req.URL.Path == "/host" {
		r.host = c
		r.mu.Unlock()
		r.fromHost(ctx, c)
		return
	}
	r.providers = append(r.providers, c)
	r.mu.Unlock()
	r.fromProvider(ctx, c)
}

func (r *relay) fromHost(ctx context.Context, c *websocket.Conn) {
	var buf bytes.Buffer
	for next := 0; readFrame(ctx, c, &buf) == nil; next++ {
		r.mu.RLock()
		var to *websocket.Conn
		if n := len(r.providers); n > 0 {
			to = r.providers[next%n]
		}
		r.mu.RUnlock()
		if to != nil && to.Write(ctx, websocket.MessageText, buf.Bytes()) != nil {
			return
		}
	}
}

func (r *relay) fromProvider(ctx context.Context, c *websocket.Conn) {
	var buf bytes.Buffer
	for readFrame(ctx, c, &buf) == nil {
		r.mu.RLock()
		to := r.host
		r.mu.RUnlock()
		if to != nil && to.Write(ctx, websocket.MessageText, buf.Bytes()) != nil {
			return
		}
	}
}

// runRelay serves the relay on a free port and prints its URL.
func runRelay(ctx context.Context, _ []string) error {
	ctx = untilOrphaned(ctx)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	srv := &http.Server{Handler: &relay{}} //nolint:gosec // lives as long as one benchmark, on loopback
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Printf("ws://%s\n", ln.Addr())
	if err := srv.Serve(ln); ctx.Err() == nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
