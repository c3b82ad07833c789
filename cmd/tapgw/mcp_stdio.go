package main

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/coder/websocket"
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/mcpserver"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
)

// maxMCPMessage is the longest message of the gateway: a result with the largest file.
const maxMCPMessage = 128 << 20

// mcp serves a session to the MCP client that started this program.
func mcp(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	out := cli.Out(c)
	d := mcpDialer{c: c, session: c.String("session")}
	if d.session == "" {
		d.terminal = terminalPath(os.Getpid())
	}
	relay := mcpserver.Relay{In: c.App.Reader, Out: c.App.Writer, Dial: d.dial,
		Note: func(text string) { out.Notef("tapgw mcp: %s", text) },
	}
	return relay.Run(c.Context)
}

// mcpDialer connects to the gateway of this user, which has proved that it knows the admin token.
type mcpDialer struct {
	c        *ucli.Context
	session  string // "": the terminal's, or else the foreground one
	terminal string // the path of the terminal's session; "" outside a terminal
	isLater  bool   // it has connected before
}

// dial connects. It starts a gateway if there is none and the user wants that, but not in place of one that somebody
// has stopped: that one has removed its gateway.json.
func (d *mcpDialer) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := d.connect(ctx)
	if err != nil && d.c.Bool("ensure") && cli.AsError(err).Exit == cli.ExitUnreachable {
		if _, missing := os.Stat(stateDir().InfoFile()); d.isLater && missing != nil {
			return nil, err
		}
		if err := ensureApart(ctx, d.c); err != nil {
			return nil, err
		}
		conn, err = d.connect(ctx)
	}
	d.isLater = d.isLater || err == nil
	return conn, err
}

func (d *mcpDialer) connect(ctx context.Context) (io.ReadWriteCloser, error) {
	gw, err := client.New(client.Options{Flag: client.EnvURL})
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	path := cmp.Or(d.terminal, "/mcp")
	if d.session != "" {
		session, err := gw.FindSession(ctx, d.session)
		if err != nil {
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

// Variables that the Copilot CLI sets for the MCP servers that it starts. CLI 1.0.102 has both.
const (
	envCLISession = "COPILOT_AGENT_SESSION_ID"
	envCLIProcess = "COPILOT_LOADER_PID"
)

// terminalPath is where the gateway serves the Copilot CLI that has started a process, with all that makes it a
// terminal of the gateway; "" if no such CLI has. A CLI starts its MCP servers again for each of its sessions.
func terminalPath(pid int) string {
	session := os.Getenv(envCLISession)
	if session == "" {
		return ""
	}
	query := url.Values{"pid": {strconv.Itoa(cliProcess(pid, session))}}
	if dir, err := os.Getwd(); err == nil {
		query.Set("cwd", dir)
	}
	return "/mcp/t/" + url.PathEscape(session) + "?" + query.Encode()
}

// cliProcess is the process above pid that is the CLI with a session: the CLI says so in a variable, or in a file of
// the session. It is 0 if it is not found.
func cliProcess(pid int, session string) int {
	const maxAncestors = 16 // shells and wrappers between the CLI and us
	home, err := statedir.Home()
	if err != nil {
		return 0
	}
	for range maxAncestors {
		parent, ok := proc.ParentOf(pid)
		if !ok {
			return 0
		}
		name := strconv.Itoa(parent)
		if name == os.Getenv(envCLIProcess) {
			return parent
		}
		if _, err := os.Stat(filepath.Join(home, "session-state", session, "inuse."+name+".lock")); err == nil {
			return parent
		}
		pid = parent
	}
	return 0
}
