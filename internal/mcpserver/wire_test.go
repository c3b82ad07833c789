package mcpserver_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// wired connects the SDK's client as tapgw mcp does; cut ends its connection without a word.
func (w *world) wired(version, path string) (c *client, cut func()) {
	w.Helper()
	transport := &http.Transport{}
	w.Cleanup(transport.CloseIdleConnections)
	ws, _, err := websocket.Dial(w.Context(), w.ws+path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: bearer{w.gateway.AdminToken(), transport}}})
	if err != nil {
		w.Fatal(err)
	}
	conn := websocket.NetConn(context.Background(), ws, websocket.MessageText)
	c = &client{w: w, tools: make(chan struct{}, 64)}
	mine := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.tools <- struct{}{}
		},
	})
	c.ClientSession, err = mine.Connect(w.Context(), &mcp.IOTransport{Reader: conn, Writer: conn},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		w.Fatal(err)
	}
	cut = func() { _ = ws.CloseNow() }
	w.Cleanup(func() { cut(); _ = c.Close() })
	return c, cut
}

func TestClientOnAWebSocket(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		c, cut := w.wired(version, "/mcp/s/"+s.ID())
		p := w.provide(s)
		c.hasTools(with("echo", "shape", "fails", "hang")...)
		go func() { _, _ = c.CallTool(context.Background(), &mcp.CallToolParams{Name: "hang"}) }()
		w.receive("the call", p.begun)
		cut()
		w.receive("the cancellation at the provider", p.cancelled)
	})
}

func TestWebSocketEndsWithItsSession(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		c, _ := w.wired(version, "/mcp/s/"+s.ID())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = c.Wait() }()
		if err := s.Stop(t.Context(), "over"); err != nil {
			t.Fatal(err)
		}
		w.receive("the end of the connection", ended)
	})
}
