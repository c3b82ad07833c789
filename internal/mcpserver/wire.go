package mcpserver

import (
	"context"
	"io"
	"net/http"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveWebSocket serves a client over a WebSocket with the same lines that stdio would carry:
// messages with a line feed at the end. This is for tapgw mcp.
func (e *endpoint) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	if !e.makeRoom() {
		http.Error(w, "too many MCP clients", http.StatusServiceUnavailable)
		return
	}
	ws, err := websocket.Accept(w, r,
		&websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(MaxBody)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn := websocket.NetConn(ctx, ws, websocket.MessageText)
	ready := make(chan struct{})
	client, err := e.server.Connect(ctx, &mcp.IOTransport{MaxLineLength: MaxBody,
		Reader: &wireReader{ReadCloser: conn, ready: ready, end: cancel}, Writer: conn}, nil)
	if err != nil {
		close(ready)
		e.h.log.Warn("connecting an MCP client", "error", err)
		return
	}
	e.wires.Store(client, ctx)
	defer e.wires.Delete(client)
	close(ready)
	stop := context.AfterFunc(e.ctx, func() { _ = client.Close() })
	defer stop()
	_ = client.Wait()
}

// wireReader reads from a client once ready is closed, and calls end when nothing more comes.
type wireReader struct {
	io.ReadCloser
	ready <-chan struct{}
	end   func()
}

func (r *wireReader) Read(p []byte) (int, error) {
	<-r.ready
	n, err := r.ReadCloser.Read(p)
	if err != nil {
		r.end()
	}
	return n, err
}

// endWithWire ends the requests of a client whose WebSocket has ended: their answers would not be
// read. The SDK lets them go on.
func (e *endpoint) endWithWire(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		client, _ := r.GetSession().(*mcp.ServerSession)
		wire, ok := e.wires.Load(client)
		if !ok {
			return next(ctx, method, r)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// Wires holds nothing else.
		defer context.AfterFunc(wire.(context.Context), cancel)() //nolint:forcetypeassert
		return next(ctx, method, r)
	}
}
