package main

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
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/protocol"
	"tapgw/internal/terminals/pipe"
)

// Environment variables that the Copilot CLI gives to an extension.
const (
	envSession   = "SESSION_ID"
	envCopilotID = "COPILOT_EXTENSION_PARENT_PID"
)

// terminalCommand is what the extension of the Copilot CLI runs.
func terminalCommand() *ucli.Command {
	return &ucli.Command{
		Name:   "terminal",
		Hidden: true,
		Usage:  "connect a terminal of the Copilot CLI with the gateway; its extension runs this",
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "ensure", Usage: "start a gateway in the background if none runs"},
		},
		Action: terminal,
	}
}

// terminal lends the pipe on stdin and stdout to the gateway of this user, and to the next one when that is gone.
// Without a gateway it is silent: the CLI works as it does without the extension.
func terminal(c *ucli.Context) error {
	session := os.Getenv(envSession)
	if session == "" {
		return cli.Usage("the Copilot CLI's extension runs this: %s is not set", envSession)
	}
	out := cli.Out(c)
	mayStart := c.Bool("ensure")
	p := pipe.Pipe{
		In: c.App.Reader, Out: c.App.Writer, Session: session,
		Note: func(text string) { out.Notef("tapgw terminal: %s", text) },
		Dial: func(ctx context.Context, had []string) (io.ReadWriteCloser, error) {
			conn, err := dialTerminal(ctx, session, had)
			if mayStart && err != nil && cli.AsError(err).Exit == cli.ExitUnreachable {
				if err := ensureApart(ctx, c); err != nil {
					mayStart = false
					return nil, err
				}
				conn, err = dialTerminal(ctx, session, had)
			}
			// A gateway that ends later was stopped by somebody, or somebody starts it again.
			mayStart = false
			return conn, err
		},
	}
	return p.Run(c.Context)
}

// dialTerminal connects to the gateway of this user, which has proved that it knows the admin token.
func dialTerminal(ctx context.Context, session string, had []string) (io.ReadWriteCloser, error) {
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
	if pid, err := strconv.Atoi(os.Getenv(envCopilotID)); err == nil {
		query.Set("pid", strconv.Itoa(pid))
	}
	header := http.Header{"Authorization": {"Bearer " + gw.Token()}}
	ws, _, err := gw.Dial(ctx, "/terminal?"+query.Encode(), header) //nolint:bodyclose // the WebSocket closes it
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(protocol.MaxFrame)
	return &terminalConn{ctx: ctx, ws: ws}, nil
}

// terminalConn is a connection to the gateway's /terminal: a stream in binary messages.
type terminalConn struct {
	ctx     context.Context
	ws      *websocket.Conn
	message io.Reader // that is being read; nil: none
}

// Read says in its error why the gateway closed the connection.
func (c *terminalConn) Read(b []byte) (int, error) {
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

func (c *terminalConn) Write(b []byte) (int, error) {
	if err := c.ws.Write(c.ctx, websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *terminalConn) Close() error { return c.ws.CloseNow() }
