// Package langserver is a client of the Copilot language server. It runs the server as a child
// process, signs in, and has conversations in which the model calls our tools.
//
// The client answers every request of the server, and each tool call exactly once, in the only
// shape that the server accepts. It refuses the server's requests to act unless the policy,
// [Options.Confirm], allows them. The events of a turn come in order; its failure and its
// cancellation are errors. When the server ends, all calls that wait get the same error.
package langserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/proc"
)

// ErrNotSignedIn is the error of turns, models and completions while no user is signed in to
// GitHub, or the user may not use Copilot. [Client.Status] says which; [Client.Login] signs a user
// in.
var ErrNotSignedIn = errors.New("not signed in to GitHub, or not to use Copilot")

// Codes of errors: the server's, unless a comment says otherwise.
const (
	codeNotSignedIn = 1000
	codeDeviceFlow  = 1001
	codeRefused     = -32001 // ours: a tool call that the policy refuses
)

const (
	editorName = "lsclient"
	// exitGrace is how long the server may take to exit when it is asked to. It needs about 0.1 s.
	exitGrace = 3 * time.Second
	// killGrace is how long it may take after a signal.
	killGrace = 2 * time.Second
	// deathGrace is how long a server whose pipes are closed may take to exit.
	deathGrace = 2 * time.Second
)

// oldest is the oldest version of the server that works. 1.472, the one before it on npm, hands the
// instructions of an untrusted workspace to the model, and runs turns on another model than the one
// that they name.
const oldest = "1.520.0"

// Client is a running language server. Its methods may be called from any goroutine. Their errors
// wrap [ErrNotSignedIn], [ErrClosed] or a [DeadError] where these apply. Call [Client.Close] to end
// the server.
type Client struct {
	// Fixed at start.
	options Options
	log     *slog.Logger
	process *proc.Process
	conn    *jsonrpc.Conn
	info    ServerInfo

	tools registry
	docs  documents

	configuring sync.Mutex // held while settings are sent; guards settings
	settings    Options    // with the changes of SetInstructions and SetMaxRounds

	closing atomic.Bool // Close was called

	mu     sync.Mutex // guards the fields that follow
	turns  map[string]*turn
	mcpOff bool // the user's organisation has switched MCP servers off
	models []Model
}

var discardLog = slog.New(slog.DiscardHandler)

// ServerInfo is the name and version that the server gives itself, and the path and source of its
// program. Name and Version are "" if the server does not give them.
type ServerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Path    string `json:"-"` // of the program
	Source  string `json:"-"` // see [Found]
}

// Start starts the language server and returns when it accepts requests. ctx bounds only the start.
// The error names a wrong option, or says where the server was looked for or why it did not start.
// [Client.Status] says who is signed in.
func Start(ctx context.Context, o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	found, err := Find(o.Command)
	if err != nil {
		return nil, err
	}
	c := &Client{options: o, settings: o, log: o.Log, turns: map[string]*turn{}}
	if c.log == nil {
		c.log = discardLog
	}
	c.docs.client, c.tools.client = c, c
	if err := c.launch(found); err != nil {
		return nil, err
	}
	if err := c.initialize(ctx); err != nil {
		c.stop()
		return nil, fmt.Errorf("starting the language server %s: %w", found.Path, err)
	}
	c.info.Path, c.info.Source = found.Path, found.Source
	return c, nil
}

// launch starts the process and connects to it.
func (c *Client) launch(found Found) error {
	path, args := found.Path, []string{"--stdio"}
	if proc.IsScript(path) {
		path, args = "node", append([]string{path}, args...)
	}
	env := map[string]string{envRipgrep: cmp.Or(os.Getenv(envRipgrep), ripgrep())}
	maps.Copy(env, c.options.Env)
	process, connection, err := proc.Connect(proc.Command{
		Path: path, Args: args, Dir: c.options.Workspace,
		Env: proc.Environ(env, "GH_*", "GITHUB_*", "COPILOT_*", envUnpacked,
			"DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
			"WAYLAND_DISPLAY"),
		Grace: killGrace,
		OnLine: func(_ proc.Stream, line string) {
			c.log.Debug("the language server wrote to stderr", "line", line)
		},
	})
	if err != nil {
		return err
	}
	c.process = process
	c.conn = jsonrpc.New(connection, jsonrpc.Options{
		OnNotify:  c.handleNotification,
		OnRequest: c.answerRequest,
		Cause:     c.endError,
	})
	return nil
}

// endError returns the error for the end of the connection.
func (c *Client) endError(err error) error {
	// The end of the connection has closed the server's stdin, so the server exits.
	t := time.NewTimer(deathGrace)
	defer t.Stop()
	hasEnded := false
	select {
	case <-c.process.Done():
		hasEnded = true
	case <-t.C:
	}
	if c.closing.Load() || errors.Is(err, jsonrpc.ErrClosed) {
		return ErrClosed
	}
	if !hasEnded || !isDisconnect(err) {
		return fmt.Errorf("reading from the language server: %w", err)
	}
	how := "exit code 0"
	if err := c.process.Err(); err != nil {
		how = err.Error()
	}
	if tail := c.process.Tail(); len(tail) > 0 {
		how += ": " + strings.TrimSpace(tail[len(tail)-1])
	}
	return &DeadError{how}
}

// isDisconnect reports whether a connection ended because the process did.
func isDisconnect(err error) bool {
	ends := []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE}
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}

// ErrClosed is the error of calls and turns that [Client.Close] ended, and of all calls after it.
var ErrClosed = errors.New("the language server was stopped")

// DeadError is the error of all calls after the server has ended by itself, and of those under way.
// How has its exit code and last line of stderr, for people. Start a new [Client] to go on.
type DeadError struct{ How string }

// Error implements error. It says how the language server ended: its exit code and last line of
// stderr.
func (e *DeadError) Error() string { return "the language server ended (" + e.How + ")" }

func (c *Client) initialize(ctx context.Context) error {
	who := object{"name": editorName, "version": cmp.Or(c.options.Version, "dev")}
	var result struct{ ServerInfo ServerInfo }
	err := c.conn.Call(ctx, "initialize", object{
		"processId":        os.Getpid(), // the server exits when this process does
		"workspaceFolders": []any{c.options.folder()},
		"capabilities": object{
			"workspace": object{"workspaceFolders": true},
			"window":    object{"showDocument": object{"support": true}},
			// Without this the server trusts every workspace.
			"experimental": object{"workspaceTrustGate": true},
		},
		"initializationOptions": object{"editorInfo": who, "editorPluginInfo": who,
			"copilotCapabilities": object{"manageTodoListTool": c.options.TodoList}},
	}, &result)
	if err != nil {
		return err
	}
	c.info = result.ServerInfo
	if v := c.info.Version; v != "" && compareVersions(v, oldest) < 0 {
		return fmt.Errorf(
			"it is version %s, and %s is the oldest that works: update it, or name a "+
				"newer one in %s",
			v, oldest, EnvServer)
	}
	trust := object{"items": []any{object{"folderUri": fileURI(c.options.Workspace),
		"trusted": c.options.Trusted}}}
	for _, n := range []struct {
		method string
		params any
	}{
		{"initialized", nil},
		{"workspace/didChangeConfiguration", object{"settings": c.options.settings()}},
		{"copilot/workspace/didChangeTrust", trust},
	} {
		if err := c.conn.Notify(n.method, n.params); err != nil {
			return err
		}
	}
	return c.call(ctx, "conversation/unregisterTools", object{"toolIds": serverToolIDs()}, nil)
}

// SetInstructions changes [Options].Instructions from the next turn on. It sends nothing if they
// are the same.
func (c *Client) SetInstructions(text string) error {
	return c.configure(func(o *Options) bool {
		changed := o.Instructions != text
		o.Instructions = text
		return changed
	})
}

// SetMaxRounds changes [Options].MaxRounds from the next turn on. It sends nothing if the number is
// the same.
func (c *Client) SetMaxRounds(n int) error {
	return c.configure(func(o *Options) bool {
		changed := o.MaxRounds != n
		o.MaxRounds = n
		return changed
	})
}

// configure sends the server its settings again if change says that they have changed.
func (c *Client) configure(change func(*Options) bool) error {
	c.configuring.Lock()
	defer c.configuring.Unlock()
	o := c.settings
	if !change(&o) {
		return nil
	}
	again := o
	again.MCP = nil // with the setting the server would start its MCP servers anew
	if err := c.conn.Notify("workspace/didChangeConfiguration",
		object{"settings": again.settings()}); err != nil {
		return err
	}
	c.settings = o
	return nil
}

// Server returns the name, version and place of the server. They never change after [Start].
func (c *Client) Server() ServerInfo { return c.info }

// Done is closed when the connection to the server has ended: by the server's end, by a broken
// message or by [Client.Close]. [Client.Err] then has the reason.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Err waits for the end of the connection and returns its reason: a [DeadError] if the server ended
// by itself, [ErrClosed] after [Client.Close], or the error of reading.
func (c *Client) Err() error { return c.conn.Err() }

// Close asks the server to exit, waits up to 3 s, and then stops its process. Turns that run fail
// with [ErrClosed]. It returns when the process has ended, and may be called twice. A tool must not
// call it.
func (c *Client) Close() {
	c.closing.Store(true)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if c.conn.Call(context.Background(), "shutdown", nil, nil) == nil {
			_ = c.conn.Notify("exit", nil)
		}
	}()
	t := time.NewTimer(exitGrace)
	defer t.Stop()
	select {
	case <-c.process.Done():
	case <-t.C:
	}
	c.stop()
	<-asked
}

// stop ends the process and the connection.
func (c *Client) stop() {
	c.process.Stop()
	c.conn.Close()
}

// call is conn.Call with the errors of this package.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	return knownError(c.conn.Call(ctx, method, params, result))
}

func knownError(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == codeNotSignedIn {
		return fmt.Errorf("%w: %w", ErrNotSignedIn, err)
	}
	return err
}

// handleNotification handles the server's notifications in order. It runs on the goroutine that
// reads, so it never waits.
func (c *Client) handleNotification(method string, params json.RawMessage) {
	switch method {
	case "$/progress":
		c.progress(params)
	case "window/logMessage", "window/showMessage":
		c.logMessage(params)
	case "featureFlagsNotification":
		var flags struct{ MCP *bool }
		if json.Unmarshal(params, &flags) == nil {
			off := flags.MCP != nil && !*flags.MCP
			c.mu.Lock()
			c.mcpOff = off
			c.mu.Unlock()
			if off && len(c.options.MCP) > 0 {
				c.log.Warn("MCP servers are left out", "reason", ErrMCPDisabled.Error())
			}
		}
	case "copilot/mcpRuntimeLogs":
		var line struct{ Level, Server, Message string }
		if json.Unmarshal(params, &line) == nil {
			c.log.Info("an MCP server logged", "server", line.Server, "message", line.Message)
		}
	case "$/copilot/rateLimitWarning", "copilot/quotaWarning", "$/copilot/compressionStarted",
		"$/copilot/compressionCompleted":
		c.log.Info("the language server notes", "what", method, "detail", string(params))
	default:
		c.log.Debug("the language server notes", "what", method)
	}
}

// levels of LSP messages by their type: error, warning, info. All others are debug.
var levels = map[int]slog.Level{1: slog.LevelError, 2: slog.LevelWarn, 3: slog.LevelInfo}

func (c *Client) logMessage(params json.RawMessage) {
	var m struct {
		Type    int
		Message string
	}
	if json.Unmarshal(params, &m) != nil {
		return
	}
	level, ok := levels[m.Type]
	if !ok {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, "the language server logged", "message", m.Message)
}
