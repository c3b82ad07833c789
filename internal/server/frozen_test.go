package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// A peer that does not answer the closing handshake delays the shutdown until its context ends, not
// longer.
func TestShutdownLeavesAFrozenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		ws, _, err := websocket.Dial(t.Context(), f.url,
			&websocket.DialOptions{HTTPClient: f.client})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ws.CloseNow() }()
		// From here on it reads nothing.
		const patience = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begin := time.Now()
		_ = f.server.Shutdown(ctx)
		if took := time.Since(begin); took != patience {
			t.Errorf("it took %v, want %v", took, patience)
		}
	})
}
