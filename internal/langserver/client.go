// Package langserver is a client of the Copilot language server: it runs the
// server as a child, signs in, and holds conversations with it in which the
// model calls tools of ours.
//
// Every request of the server is answered, and each tool call exactly once, in
// the one shape that the server takes. What the server asks before it acts is
// refused unless a policy allows it. A turn's events come in order; its failure
// and its cancellation are errors. When the server dies, all that wait for it get
// the same error.
package langserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/proc"
)

// ErrNotSignedIn is what turns, models and completions end with while nobody is
// signed in to GitHub, or somebody who may not use Copilot: see [Client.Status]
// and [Client.Login].
var ErrNotSignedIn = errors.New("not signed in to GitHub, or not to use Copilot")

// Codes of the server's errors.
const (
	codeNotSignedIn = 1000
	codeDeviceFlow  = 1001
)

const (
	editorName = "lsclient"
	// exitGrace is how long the server may take to leave when it is asked to: it
	// takes an eighth of a second.
	exitGrace = 3 * time.Second
	// killGrace is what it gets when it did not.
	killGrace = 2 * time.Second
	// deathGrace is how long a server whose pipes are closed may take to be gone.
	deathGrace = 2 * time.Second
)

// Client is a running language server. Its methods may be called from several
// goroutines.
type Client struct {
	// Fixed at start.
	o       Options
	log     *slog.Logger
	process *proc.Process
	conn    *jsonrpc.Conn
	info    ServerInfo

	tools registry
	docs  documents

	closing atomic.Bool // this side ends the server

	mu     sync.Mutex // guards the fields that follow
	turns  map[string]*turn
	mcpOff bool // the organisation switched MCP off
	models []Model
}

var discardLog = slog.New(slog.DiscardHandler)

// ServerInfo is what the server says about itself.
type ServerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Path    string `json:"-"` // of the program
	Source  string `json:"-"` // see [Found]
}

// Start starts the language server and returns when it takes requests. ctx bounds
// the start alone. Whether somebody is signed in is [Client.Status]'s to say.
func Start(ctx context.Context, o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	found, err := Find(o.Command)
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, log: o.Log, turns: map[string]*turn{}}
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
	out, in := io.Pipe()
	process, err := proc.Start(proc.Command{
		Path: path, Args: args, Dir: c.o.Workspace,
		Env: proc.Environ(c.o.Env, "GH_*", "GITHUB_*", "COPILOT_*", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
			"WAYLAND_DISPLAY"),
		Stdout: in, Grace: killGrace,
		OnLine: func(_ proc.Stream, line string) { c.log.Debug("the language server wrote to stderr", "line", line) },
	})
	if err != nil {
		return err
	}
	go func() { // ends with the process, which Close waits for
		<-process.Done()
		_ = in.Close()
	}()
	c.process = process
	c.conn = jsonrpc.New(pipes{out, process.Stdin()}, jsonrpc.Options{
		OnNotify:  c.notified,
		OnRequest: c.answer,
		Cause:     c.died,
	})
	return nil
}

// pipes are the server's stdout and stdin.
type pipes struct {
	*io.PipeReader
	stdin io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.stdin.Write(b) }

func (p pipes) Close() error { return errors.Join(p.PipeReader.Close(), p.stdin.Close()) }

// died words the end of the connection.
func (c *Client) died(err error) error {
	// With the connection went its stdin, and so it leaves, whatever was wrong.
	t := time.NewTimer(deathGrace)
	defer t.Stop()
	var gone bool
	select {
	case <-c.process.Done():
		gone = true
	case <-t.C:
	}
	if c.closing.Load() || errors.Is(err, jsonrpc.ErrClosed) {
		return ErrClosed
	}
	if !gone || !hungUp(err) {
		return fmt.Errorf("the language server can't be understood: %w", err)
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

// hungUp reports whether a connection ended with the process at its other end.
func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// ErrClosed is what calls end with after [Client.Close].
var ErrClosed = errors.New("the language server was stopped")

// DeadError says that the server ended by itself, and how.
type DeadError struct{ How string }

func (e *DeadError) Error() string { return "the language server ended (" + e.How + ")" }

func (c *Client) initialize(ctx context.Context) error {
	who := object{"name": editorName, "version": cmp.Or(c.o.Version, "dev")}
	var result struct{ ServerInfo ServerInfo }
	err := c.conn.Call(ctx, "initialize", object{
		"processId":        os.Getpid(), // it ends when we do
		"workspaceFolders": []any{c.o.folder()},
		"capabilities": object{
			"workspace": object{"workspaceFolders": true},
			"window":    object{"showDocument": object{"support": true}},
			// Without it the server trusts every workspace.
			"experimental": object{"workspaceTrustGate": true},
		},
		"initializationOptions": object{"editorInfo": who, "editorPluginInfo": who},
	}, &result)
	if err != nil {
		return err
	}
	c.info = result.ServerInfo
	trust := object{"items": []any{object{"folderUri": fileURI(c.o.Workspace), "trusted": c.o.Trusted}}}
	for _, n := range []struct {
		method string
		params any
	}{
		{"initialized", nil},
		{"workspace/didChangeConfiguration", object{"settings": c.o.settings()}},
		{"copilot/workspace/didChangeTrust", trust},
	} {
		if err := c.conn.Notify(n.method, n.params); err != nil {
			return err
		}
	}
	return nil
}

// Server says which server this is.
func (c *Client) Server() ServerInfo { return c.info }

// PID is the server's process id.
func (c *Client) PID() int { return c.process.PID() }

// Done is closed when the server is gone.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Err says why the server is gone: a [DeadError] if it ended by itself, [ErrClosed]
// after Close. It waits for the end.
func (c *Client) Err() error { return c.conn.Err() }

// Close ends the server and waits until it is gone. Turns under way fail.
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

// stop ends the process, politely or not, and the connection.
func (c *Client) stop() {
	c.process.Stop()
	c.conn.Close()
}

// call is conn.Call with errors that callers know.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	return known(c.conn.Call(ctx, method, params, result))
}

func known(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == codeNotSignedIn {
		return fmt.Errorf("%w: %w", ErrNotSignedIn, err)
	}
	return err
}

// notified takes the server's notifications, in order, on the goroutine that
// reads: nothing here waits.
func (c *Client) notified(method string, params json.RawMessage) {
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
			if off && len(c.o.MCP) > 0 {
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

// levels of LSP messages: error, warning, info, log.
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
