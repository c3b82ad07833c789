package mcpserver

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

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/daemon"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
)

// Dialer connects a [Relay] to the gateway of this user, which has proved that it knows the admin
// token.
type Dialer struct {
	session  string // "": the terminal's, or else the foreground one
	terminal string // the path of the terminal's session; "" outside a terminal
	ensure   bool
	config   string
	isLater  bool // it has connected before
}

// NewDialer returns a dialer for a session. Without one, it takes that of the Copilot CLI that has
// started this process, or else the foreground session. With ensure it starts a gateway if none
// runs, with the config file if config is not empty.
func NewDialer(session string, ensure bool, config string) *Dialer {
	d := &Dialer{session: session, ensure: ensure, config: config}
	if session == "" {
		d.terminal = terminalPath(os.Getpid())
	}
	return d
}

// Dial connects. If no gateway runs and the user wants one, it starts one, but not in place of a
// gateway that was stopped on purpose: that one has removed its gateway.json.
func (d *Dialer) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := d.connect(ctx)
	if err != nil && d.ensure && cli.AsError(err).Exit == cli.ExitUnreachable {
		if _, missing := os.Stat(daemon.Dir(configs.StateDir()).InfoFile()); d.isLater &&
			missing != nil {
			return nil, err
		}
		if err := daemon.EnsureApart(ctx, d.config); err != nil {
			return nil, err
		}
		conn, err = d.connect(ctx)
	}
	d.isLater = d.isLater || err == nil
	return conn, err
}

func (d *Dialer) connect(ctx context.Context) (io.ReadWriteCloser, error) {
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
	ws.SetReadLimit(maxRelayed)
	return websocket.NetConn(ctx, ws, websocket.MessageText), nil
}

// Variables that the Copilot CLI sets for the MCP servers that it starts. CLI 1.0.102 has both.
const (
	envCLISession = "COPILOT_AGENT_SESSION_ID"
	envCLIProcess = "COPILOT_LOADER_PID"
)

// terminalPath is where the gateway serves the Copilot CLI that has started a process, with all
// that makes it a terminal of the gateway; "" if no such CLI has. A CLI starts its MCP servers
// again for each of its sessions.
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

// cliProcess is the process above pid that is the CLI with a session: the CLI says so in a
// variable, or in a file of the session. It is 0 if it is not found.
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
		if _, err := os.Stat(filepath.Join(home, "session-state", session,
			"inuse."+name+".lock")); err == nil {
			return parent
		}
		pid = parent
	}
	return 0
}
