package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/coder/websocket"

	"tapgw/internal/client"
	"tapgw/internal/protocol"
)

// Environment variables that the Copilot CLI gives to an extension.
const (
	EnvSession = "SESSION_ID"
	envCLI     = "COPILOT_EXTENSION_PARENT_PID"
)

// Dial connects a session with the gateway of this user, which has proved that it knows the admin
// token. had are the names of tools that the session's CLI has had before.
func Dial(ctx context.Context, session string, had []string) (io.ReadWriteCloser, error) {
	gw, err := client.New(client.Options{Flag: client.EnvURL})
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	query := url.Values{"session": {session}, "cwd": {cwd}, "had": had}
	if pid, err := strconv.Atoi(os.Getenv(envCLI)); err == nil {
		query.Set("pid", strconv.Itoa(pid))
	}
	header := http.Header{"Authorization": {"Bearer " + gw.Token()}}
	// The WebSocket closes it.
	ws, _, err := gw.Dial(ctx, "/terminal?"+query.Encode(), header) //nolint:bodyclose
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(protocol.MaxFrame)
	return &gatewayConn{ctx: ctx, ws: ws}, nil
}

// gatewayConn is a connection to the gateway's /terminal: a stream in binary messages.
type gatewayConn struct {
	ctx     context.Context
	ws      *websocket.Conn
	message io.Reader // the message that is being read, or nil
}

// Read says in its error why the gateway closed the connection.
func (c *gatewayConn) Read(b []byte) (int, error) {
	for {
		if c.message == nil {
			_, r, err := c.ws.Reader(c.ctx)
			if closed, ok := errors.AsType[websocket.CloseError](err); ok {
				return 0, fmt.Errorf("the gateway closed the connection: %s", closed.Reason)
			}
			if err != nil {
				return 0, fmt.Errorf("the gateway is gone: %w", err)
			}
			c.message = r
		}
		n, err := c.message.Read(b)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *gatewayConn) Write(b []byte) (int, error) {
	if err := c.ws.Write(c.ctx, websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *gatewayConn) Close() error { return c.ws.CloseNow() }
