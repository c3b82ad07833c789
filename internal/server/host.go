package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// HostProtocolVersion is the version of the session hosts' protocol.
const HostProtocolVersion = 1

// hostGrace is how long the sessions of a host connection that dropped wait for
// it to come back.
const hostGrace = 30 * time.Second

// remotes are the sessions that processes outside run, by session id.
type remoteHosts struct {
	server *Server

	mu        sync.Mutex
	bySession map[string]*remoteHost
	conns     map[*hostConn]struct{}
}

func (h *remoteHosts) init(s *Server) {
	h.server, h.bySession, h.conns = s, map[string]*remoteHost{}, map[*hostConn]struct{}{}
}

func (h *remoteHosts) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.bySession, id)
}

// close ends the hosts' connections.
func (h *remoteHosts) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c.rpc.Close(protocol.CloseGoingAway, "the gateway is shutting down")
	}
}

// remoteHost is a session that a process outside runs. It implements
// [gateway.Host] and outlives its connection for a while.
type remoteHost struct {
	all     *remoteHosts
	id      string
	session *gateway.Session // set once, before any host's connection can find it

	mu    sync.Mutex
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

// wireTool is a tool as the session hosts' protocol writes it.
type hostTool struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Parameters  protocol.Raw `json:"parameters"`
}

func hostTools(tools []gateway.Tool) []hostTool {
	list := make([]hostTool, len(tools))
	for i, t := range tools {
		list[i] = hostTool{t.Name, t.Description, t.Parameters}
	}
	return list
}

// SetTools implements [gateway.Host].
func (h *remoteHost) SetTools(ctx context.Context, revision uint64, tools []gateway.Tool) error {
	return h.call(ctx, "tools/set", map[string]any{"sessionId": h.id, "revision": revision, "tools": hostTools(tools)})
}

// Send implements [gateway.Host].
func (h *remoteHost) Send(ctx context.Context, p gateway.Prompt) error {
	mode := p.Mode
	if mode == "" {
		mode = "enqueue"
	}
	return h.call(ctx, "session/send", map[string]any{"sessionId": h.id, "prompt": p.Text, "mode": mode, "source": p.Source})
}

// Log implements [gateway.Host].
func (h *remoteHost) Log(level gateway.LogLevel, message string) {
	if c, err := h.rpcConn(); err == nil {
		c.notify("session/log", map[string]any{"sessionId": h.id, "level": level, "message": message})
	}
}

// Interrupt implements [gateway.Host].
func (h *remoteHost) Interrupt(ctx context.Context, reason string) ([]string, error) {
	return nil, h.call(ctx, "session/interrupt", map[string]any{"sessionId": h.id, "reason": reason})
}

// Close implements [gateway.Host]. The process goes on without the gateway.
func (h *remoteHost) Close(_ context.Context, reason string) error {
	h.all.remove(h.id)
	h.mu.Lock()
	if h.grace != nil {
		h.grace.Stop()
	}
	h.mu.Unlock()
	h.Log(gateway.LogWarning, "the gateway has left this session: "+reason)
	return nil
}

// hostLine is one host connection.
type hostConn struct {
	server *Server
	rpc    rpcConn
	// wrongSecret counts a wrong token, and reports whether there were too many.
	countAuthFailure func() (tooMany bool)
	authTimer        *time.Timer
	requests         sync.WaitGroup // requests on goroutines of their own
	ctx              context.Context

	// The reader's own.
	info          *gateway.HostInfo // after initialize
	countsInjects bool              // idle is answered with the number of prompts to come

	mu       sync.Mutex
	sessions map[string]*remoteHost
	calls    map[string]*gateway.Pending // by the host's callId
}

// host serves one host connection.
func (s *Server) serveHost(w http.ResponseWriter, r *http.Request) {
	if !isUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		fail(w, http.StatusUpgradeRequired, "INVALID_STATE", "session hosts connect by WebSocket")
		return
	}
	ws, err := s.upgrade(w, r, maxHostPending)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	c := &hostConn{server: s, countAuthFailure: func() bool { return s.countAuthFailure(r) }, ctx: ctx, sessions: map[string]*remoteHost{}, calls: map[string]*gateway.Pending{}}
	c.rpc = rpcConn{wire: ws, pending: map[uint64]chan rpcFrame{}}
	c.authTimer = time.AfterFunc(protocol.AuthTimeout, func() {
		ws.Close(protocol.ClosePolicy, fmt.Sprintf("no initialize within %s", protocol.AuthTimeout))
	})
	s.remoteHosts.mu.Lock()
	s.remoteHosts.conns[c] = struct{}{}
	s.remoteHosts.mu.Unlock()
	if s.draining.Load() { // the lines may have been closed already
		ws.Close(protocol.CloseGoingAway, "the gateway is shutting down")
	}

	ws.read(ctx, protocol.MaxFrame, func() bool { return c.info != nil }, c.receive, func([]byte, int) {}, func() {
		c.rpc.replyError(nil, &rpcError{rpcParseError, "the binary frame is not UTF-8; send JSON, in a text frame"})
	})

	c.authTimer.Stop()
	cancel()
	s.remoteHosts.mu.Lock()
	delete(s.remoteHosts.conns, c)
	s.remoteHosts.mu.Unlock()
	c.rpc.failPending()
	c.detachSessions()
	c.requests.Wait()
	ws.terminate(s.ctx)
}

// leave lets the line's sessions wait for their host to come back.
func (c *hostConn) detachSessions() {
	c.mu.Lock()
	hosts := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	for _, h := range hosts {
		h.mu.Lock()
		current := h.conn == c
		if current {
			h.conn = nil
			h.grace = time.AfterFunc(hostGrace, func() { h.session.Ended("its host did not come back") })
		}
		h.mu.Unlock()
		if current {
			h.session.CancelCalls()
		}
	}
}

// receive takes one frame. Requests that may take long go on goroutines of
// their own; the rest keeps its order.
func (c *hostConn) receive(data []byte) {
	f, fault := parseFrame(data)
	if fault != nil {
		c.rpc.replyError(f.id, fault)
		return
	}
	if f.method == "" {
		c.rpc.handleResponse(f)
		return
	}
	if c.info == nil && f.method != "initialize" {
		c.rpc.reply(f.id, nil, &rpcError{rpcNotAuthed, "the first request must be initialize, with the admin token"})
		return
	}
	switch f.method {
	case "tool/call":
		c.toolCall(f)
	case "tool/cancel":
		c.toolCancel(f)
	case "initialize":
		c.initialize(f)
	case "session/register":
		result, fault := c.register(f)
		c.rpc.reply(f.id, result, fault)
	case "session/update":
		c.update(f)
	case "session/event":
		c.rpc.reply(f.id, struct{}{}, c.event(f))
	case "session/end":
		c.replyAsync(f, c.end)
	case "hook/preToolUse":
		c.replyAsync(f, c.preToolUse)
	case "hook/userPrompt":
		c.replyAsync(f, c.userPrompt)
	case "prompt/transform":
		c.replyAsync(f, c.transform)
	default:
		c.rpc.reply(f.id, nil, &rpcError{rpcNoMethod, fmt.Sprintf("there is no method %q", f.method)})
	}
}

func (c *hostConn) replyAsync(f rpcFrame, answer func(rpcFrame) (any, *rpcError)) {
	c.requests.Go(func() {
		result, fault := answer(f)
		c.rpc.reply(f.id, result, fault)
	})
}

func (c *hostConn) initialize(f rpcFrame) {
	var p struct {
		ProtocolVersion *int   `json:"protocolVersion"`
		Token           string `json:"token"`
		Host            struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"host"`
		Capabilities struct {
			Send       bool `json:"send"`
			Log        bool `json:"log"`
			Hooks      bool `json:"hooks"`
			Transforms bool `json:"transforms"`
			Interrupt  bool `json:"interrupt"`
			LiveTools  bool `json:"liveTools"` // ours: tools/set costs no reload
			Injects    bool `json:"injects"`   // ours: the answer to idle says how many prompts come
		} `json:"capabilities"`
		Aliases map[string][]string `json:"aliases"`
	}
	fault := decodeParams("initialize", f.params, &p)
	switch {
	case c.info != nil:
		c.rpc.reply(f.id, nil, &rpcError{rpcInvalidRequest, "initialize: it was done already"})
		return
	case fault != nil:
	case !c.server.gateway.IsAdmin(p.Token):
		fault = &rpcError{rpcNotAuthed, "initialize.token: is not the admin token, see the .admin-token file"}
		if c.countAuthFailure() {
			fault.Message += "; too many wrong tokens came from this address, retry in a minute"
		}
	case p.ProtocolVersion == nil:
		fault = invalidParams("initialize.protocolVersion: is required")
	case *p.ProtocolVersion != HostProtocolVersion:
		fault = invalidParams("initialize.protocolVersion: %d is not supported, this gateway speaks %d", *p.ProtocolVersion, HostProtocolVersion)
	case p.Host.Name == "":
		fault = invalidParams("initialize.host.name: is required")
	}
	if fault != nil {
		c.rpc.replyError(f.id, fault)
		c.rpc.Close(protocol.ClosePolicy, "initialize was refused")
		return
	}
	c.authTimer.Stop()
	c.countsInjects = p.Capabilities.Injects
	c.info = &gateway.HostInfo{Kind: p.Host.Name, Send: p.Capabilities.Send, Log: p.Capabilities.Log, Hooks: p.Capabilities.Hooks,
		Transforms: p.Capabilities.Transforms, Interrupt: p.Capabilities.Interrupt, LiveTools: p.Capabilities.LiveTools, Aliases: p.Aliases}
	c.rpc.reply(f.id, map[string]any{"protocolVersion": HostProtocolVersion, "gateway": map[string]string{"version": c.server.version}}, nil)
}

func (c *hostConn) register(f rpcFrame) (any, *rpcError) {
	var p struct {
		ID         string  `json:"id"`
		Label      *string `json:"label"`
		CWD        string  `json:"cwd"`
		Model      string  `json:"model"`
		Foreground bool    `json:"foreground"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, fault
	}
	switch {
	case p.Label == nil:
		return nil, invalidParams("session/register.label: is required")
	case p.CWD == "":
		return nil, invalidParams("session/register.cwd: is required")
	case !filepath.IsAbs(p.CWD):
		return nil, invalidParams("session/register.cwd: %q must be an absolute path", p.CWD)
	case len(p.ID) > 128:
		return nil, invalidParams("session/register.id: must be at most 128 bytes")
	case p.ID == protocol.AllSessions:
		return nil, invalidParams("session/register.id: %q means all sessions", p.ID)
	}
	if p.ID == "" {
		p.ID = uuid.NewString()
	}
	h, fault := c.attach(p.ID, gateway.SessionSpec{ID: p.ID, Label: *p.Label, CWD: p.CWD, Model: p.Model, Foreground: p.Foreground})
	if fault != nil {
		return nil, fault
	}
	tools, revision := h.session.HostTools()
	return map[string]any{"id": p.ID, "revision": revision, "tools": hostTools(tools)}, nil
}

// attach registers a new session, or takes one over whose host went away.
func (c *hostConn) attach(id string, spec gateway.SessionSpec) (*remoteHost, *rpcError) {
	r := &c.server.remoteHosts
	r.mu.Lock()
	h := r.bySession[id]
	r.mu.Unlock()
	if h == nil {
		h = &remoteHost{all: r, id: id, conn: c}
		s, err := c.server.gateway.Register(spec, *c.info, h)
		if err != nil {
			var e *protocol.Error
			if errors.As(err, &e) && e.Code == protocol.CodeInvalidSession {
				return nil, invalidParams("session/register.id: %s", e.Message)
			}
			return nil, &rpcError{rpcInternal, err.Error()}
		}
		h.session = s
		r.mu.Lock()
		r.bySession[id] = h
		r.mu.Unlock()
	} else {
		h.mu.Lock()
		if h.conn != nil {
			h.mu.Unlock()
			return nil, invalidParams("session/register.id: session %q is registered by a host that is connected", id)
		}
		if !h.grace.Stop() || h.session.View().State == "ending" {
			h.mu.Unlock()
			return nil, invalidParams("session/register.id: session %q is ending; register another, or this one when it is gone", id)
		}
		h.conn = c
		h.mu.Unlock()
		h.session.Update(spec.Label, spec.Model)
		if spec.Foreground {
			_ = c.server.gateway.SetForeground(id)
		}
	}
	c.mu.Lock()
	c.sessions[id] = h
	c.mu.Unlock()
	return h, nil
}

// find returns a session that this host registered.
func (c *hostConn) session(field, id string) (*gateway.Session, *rpcError) {
	if id == "" {
		return nil, invalidParams("%s: is required", field)
	}
	c.mu.Lock()
	h := c.sessions[id]
	c.mu.Unlock()
	if h == nil {
		return nil, &rpcError{rpcNoSession, fmt.Sprintf("session %q is not registered by this host", id)}
	}
	select {
	case <-h.session.Done():
		return nil, &rpcError{rpcNoSession, fmt.Sprintf("session %q has ended", id)}
	default:
		return h.session, nil
	}
}

// update takes what a host says of its session. The answer stands before what
// comes of it: an idle session gets prompts.
func (c *hostConn) update(f rpcFrame) {
	s, state, fault := c.applyUpdate(f)
	var answer struct {
		Injects int `json:"injects,omitzero"` // prompts that come now, for a host that would leave
	}
	if state == "idle" && c.countsInjects {
		answer.Injects = s.Injects()
	}
	c.rpc.enqueueReply(f.id, answer, fault)
	switch state {
	case "idle":
		s.Idle()
	case "busy":
		s.Busy()
	}
	c.rpc.Flush()
}

// described takes all of a session/update but the state, which it returns.
func (c *hostConn) applyUpdate(f rpcFrame) (s *gateway.Session, state string, fault *rpcError) {
	var p struct {
		ID         string `json:"id"`
		Label      string `json:"label"`
		Foreground bool   `json:"foreground"`
		State      string `json:"state"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, "", fault
	}
	if s, fault = c.session(f.method+".id", p.ID); fault != nil {
		return nil, "", fault
	}
	switch p.State {
	case "", "idle", "busy":
	default:
		return nil, "", invalidParams(`session/update.state: must be "idle" or "busy"`)
	}
	s.Update(p.Label, "")
	if p.Foreground {
		_ = c.server.gateway.SetForeground(p.ID)
	}
	return s, p.State, nil
}

func (c *hostConn) end(f rpcFrame) (any, *rpcError) {
	var p struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, fault
	}
	s, fault := c.session(f.method+".id", p.ID)
	if fault != nil {
		return nil, fault
	}
	if p.Reason == "" {
		p.Reason = "its host ended it"
	}
	// Not l.ctx: providers are told even if the host leaves now.
	if err := s.Stop(context.WithoutCancel(c.ctx), p.Reason); err != nil {
		return nil, &rpcError{rpcInternal, err.Error()}
	}
	c.mu.Lock()
	delete(c.sessions, p.ID)
	c.mu.Unlock()
	return struct{}{}, nil
}

func (c *hostConn) preToolUse(f rpcFrame) (any, *rpcError) {
	var p struct {
		SessionID string       `json:"sessionId"`
		Tool      string       `json:"tool"`
		Args      protocol.Raw `json:"args"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, fault
	}
	s, fault := c.session(f.method+".sessionId", p.SessionID)
	if fault != nil {
		return nil, fault
	}
	if p.Tool == "" {
		return nil, invalidParams("hook/preToolUse.tool: is required")
	}
	d := s.PreToolUse(c.ctx, p.Tool, p.Args)
	answer := struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason,omitzero"`
		Context  string `json:"context,omitzero"`
	}{protocol.DecisionAllow, d.Reason, d.Context}
	if d.Deny {
		answer.Decision = protocol.DecisionDeny
	}
	return answer, nil
}

func (c *hostConn) userPrompt(f rpcFrame) (any, *rpcError) {
	var p struct {
		SessionID string  `json:"sessionId"`
		Prompt    *string `json:"prompt"`
		Source    string  `json:"source"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, fault
	}
	if p.Prompt == nil {
		return nil, invalidParams("%s.prompt: is required", f.method)
	}
	s, fault := c.session(f.method+".sessionId", p.SessionID)
	if fault != nil {
		return nil, fault
	}
	return struct {
		Context string `json:"context,omitzero"`
	}{s.UserPrompt(c.ctx, *p.Prompt, p.Source)}, nil
}

func (c *hostConn) transform(f rpcFrame) (any, *rpcError) {
	var p struct {
		SessionID string            `json:"sessionId"`
		Sections  map[string]string `json:"sections"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return nil, fault
	}
	s, fault := c.session(f.method+".sessionId", p.SessionID)
	if fault != nil {
		return nil, fault
	}
	if p.Sections == nil {
		return nil, invalidParams("prompt/transform.sections: is required")
	}
	changed := s.Transform(c.ctx, p.Sections)
	for name, own := range p.Sections {
		// What providers appended is followed by the session's own word again:
		// a host need not know which sections are protected.
		if text := changed[name]; own != "" && text != own && gateway.Protected(name) {
			changed[name] = text + "\n\n" + own
		}
	}
	return map[string]any{"sections": changed}, nil
}
