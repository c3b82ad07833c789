package server

import (
	"cmp"
	"context"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// hostGrace is how long the sessions of a host connection that dropped wait for the host
// to come back.
const hostGrace = 30 * time.Second

// remoteHost is the [gateway.Host] of one session that another process runs. It outlives its
// connection by hostGrace. Its requests return errHostGone while there is no connection.
type remoteHost struct {
	server  *Server
	id      string
	session *gateway.Session // set before Server.remoteHosts has it

	mu    sync.Mutex  // guards the fields below
	conn  *hostConn   // nil while the host is away
	grace *time.Timer // ends the session when the host stays away
}

func (h *remoteHost) rpcConn() (*rpcConn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return nil, errHostGone
	}
	return &h.conn.rpc, nil
}

func (h *remoteHost) call(ctx context.Context, method string, params any) error {
	c, err := h.rpcConn()
	if err != nil {
		return err
	}
	return c.call(ctx, method, params)
}

func hostTools(tools []gateway.Tool) []protocol.HostTool {
	list := make([]protocol.HostTool, len(tools))
	for i, t := range tools {
		list[i] = protocol.HostTool{Name: t.Name, Description: t.Description,
			Parameters: t.Parameters}
	}
	return list
}

// SetTools implements [gateway.Host] with `tools/set`. While the host is away it returns
// errHostGone.
func (h *remoteHost) SetTools(ctx context.Context, revision uint64, tools []gateway.Tool) error {
	return h.call(ctx, protocol.MethodSetTools,
		protocol.HostTools{SessionID: h.id, Revision: revision, Tools: hostTools(tools)})
}

// Send implements [gateway.Host] with `session/send`, in the mode enqueue if the prompt does not
// name one. While the host is away it returns errHostGone.
func (h *remoteHost) Send(ctx context.Context, p gateway.Prompt) error {
	return h.call(ctx, protocol.MethodSend, protocol.HostPrompt{
		SessionID: h.id, Prompt: p.Text, Mode: cmp.Or(p.Mode, adminapi.ModeEnqueue),
		Source: p.Source,
	})
}

// Log implements [gateway.Host] with `session/log`, a notification. The line is lost while
// the host is away.
func (h *remoteHost) Log(level adminapi.LogLevel, message string) {
	if c, err := h.rpcConn(); err == nil {
		c.notify(protocol.MethodLog, protocol.HostLog{SessionID: h.id, Level: string(level),
			Message: message})
	}
}

// Interrupt implements [gateway.Host] with `session/interrupt`. It names no dropped prompts:
// the protocol of session hosts does not report them.
func (h *remoteHost) Interrupt(ctx context.Context, reason string) ([]string, error) {
	return nil, h.call(ctx, protocol.MethodInterrupt,
		protocol.HostInterrupt{SessionID: h.id, Reason: reason})
}

// Close implements [gateway.Host]. It only writes a line into the session's timeline: the
// process goes on without the gateway.
func (h *remoteHost) Close(_ context.Context, reason string) error {
	h.server.remoteHosts.Delete(h.id)
	h.mu.Lock()
	if h.grace != nil {
		h.grace.Stop()
	}
	h.mu.Unlock()
	h.Log(adminapi.LogWarning, "the gateway has left this session: "+reason)
	return nil
}

// detach leaves the session without a host, and ends it after hostGrace. It does nothing if
// another connection has taken the session over.
func (h *remoteHost) detach(c *hostConn) {
	h.mu.Lock()
	current := h.conn == c
	if current {
		h.conn = nil
		h.grace = time.AfterFunc(hostGrace, func() {
			h.session.Ended("its host did not come back")
		})
	}
	h.mu.Unlock()
	if current {
		h.session.CancelCalls()
	}
}

// reattach gives a session whose host went away to a new connection. The error says why the
// session can't have another host.
func (h *remoteHost) reattach(c *hostConn) *rpcError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil {
		return invalidParams(
			"session/register.id: session %q is registered by a host that is connected", h.id)
	}
	if !h.grace.Stop() || h.session.View().State == "ending" {
		return invalidParams("session/register.id: session %q is ending; "+
			"register another, or this one when it is gone", h.id)
	}
	h.conn = c
	return nil
}
