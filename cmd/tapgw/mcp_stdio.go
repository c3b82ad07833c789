package main

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/mcpserver"
)

// maxMCPMessage is the longest message of the gateway: a result with the largest file.
const maxMCPMessage = 128 << 20

// mcp serves a session to the MCP client that started this program.
func mcp(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	out := cli.Out(c)
	relay := mcpserver.Relay{In: c.App.Reader, Out: c.App.Writer,
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) { return dialMCP(ctx, c) },
		Note: func(text string) { out.Notef("tapgw mcp: %s", text) },
	}
	return relay.Run(c.Context)
}

// dialMCP connects to the gateway of this user, which has proved that it knows the admin token. It starts
// one if there is none and the user wants that.
func dialMCP(ctx context.Context, c *ucli.Context) (io.ReadWriteCloser, error) {
	conn, err := dialSession(ctx, c.String("session"))
	if err == nil || !c.Bool("ensure") || cli.AsError(err).Exit != cli.ExitUnreachable {
		return conn, err
	}
	if _, err := ensureGateway(c); err != nil {
		return nil, err
	}
	return dialSession(ctx, c.String("session"))
}

func dialSession(ctx context.Context, session string) (io.ReadWriteCloser, error) {
	gw, err := client.New(client.Options{Flag: client.EnvURL})
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	path := "/mcp"
	if session != "" {
		if session, err = gw.FindSession(ctx, session); err != nil {
			return nil, err
		}
		path += "/s/" + url.PathEscape(session)
	}
	header := http.Header{"Authorization": {"Bearer " + gw.Token()}}
	ws, _, err := gw.Dial(ctx, path, header)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxMCPMessage)
	return websocket.NetConn(ctx, ws, websocket.MessageText), nil
}
