package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// maxSessionID is how long a session id of a host's own may be, in bytes.
const maxSessionID = 128

// register answers `session/register` with the session's id and its tools.
func (c *hostConn) register(f rpcFrame) (any, *rpcError) {
	var p protocol.HostRegister
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
	case len(p.ID) > maxSessionID:
		return nil, invalidParams("session/register.id: must be at most %d bytes", maxSessionID)
	case p.ID == protocol.AllSessions:
		return nil, invalidParams("session/register.id: %q means all sessions", p.ID)
	}
	returns := p.ID != ""
	if p.ID == "" {
		p.ID = uuid.NewString()
	}
	h, fault := c.attach(gateway.SessionSpec{
		Returns: returns, ID: p.ID, Label: *p.Label, CWD: p.CWD, Model: p.Model,
		Foreground: p.Foreground,
	})
	if fault != nil {
		return nil, fault
	}
	tools, revision := h.session.HostTools()
	return protocol.HostRegistered{ID: p.ID, Revision: revision, Tools: hostTools(tools)}, nil
}

// attach registers a new session, or takes over one whose host went away.
func (c *hostConn) attach(spec gateway.SessionSpec) (*remoteHost, *rpcError) {
	known, isKnown := c.server.remoteHosts.Load(spec.ID)
	h, _ := known.(*remoteHost)
	if !isKnown {
		h = &remoteHost{server: c.server, id: spec.ID, conn: c}
		s, err := c.server.gateway.Register(spec, *c.info, h)
		if err != nil {
			if e, ok := errors.AsType[*protocol.Error](err); ok &&
				e.Code == protocol.CodeInvalidSession {
				return nil, invalidParams("session/register.id: %s", e.Message)
			}
			return nil, &rpcError{rpcInternal, err.Error()}
		}
		h.session = s
		c.server.remoteHosts.Store(spec.ID, h)
	} else {
		if fault := h.reattach(c); fault != nil {
			return nil, fault
		}
		h.session.Update(spec.Label, spec.Model)
		if spec.Foreground {
			_ = c.server.gateway.SetForeground(spec.ID)
		}
	}
	c.mu.Lock()
	c.sessions[spec.ID] = h
	c.mu.Unlock()
	return h, nil
}

// session finds a session that this host registered and that has not ended. The error names
// field, or has the code protocol.HostCodeNoSession.
func (c *hostConn) session(field, id string) (*gateway.Session, *rpcError) {
	if id == "" {
		return nil, invalidParams("%s: is required", field)
	}
	c.mu.Lock()
	h := c.sessions[id]
	c.mu.Unlock()
	if h == nil {
		return nil, &rpcError{protocol.HostCodeNoSession,
			fmt.Sprintf("session %q is not registered by this host", id)}
	}
	if chans.IsClosed(h.session.Done()) {
		return nil, &rpcError{protocol.HostCodeNoSession, fmt.Sprintf("session %q has ended", id)}
	}
	return h.session, nil
}

// decode reads a request's params into p and finds the session whose id it then has in id,
// the member of that name.
func (c *hostConn) decode(
	f rpcFrame, p any, name string, id *string,
) (*gateway.Session, *rpcError) {
	if fault := decodeParams(f.method, f.params, p); fault != nil {
		return nil, fault
	}
	return c.session(f.method+"."+name, *id)
}

// update answers `session/update`. The answer is queued before the state takes effect: an
// idle session gets prompts, which must come behind the answer.
func (c *hostConn) update(f rpcFrame) {
	s, state, fault := c.applyUpdate(f)
	var answer protocol.HostUpdated
	if state == protocol.HostIdle && c.countsInjects {
		answer.Injects = s.QueuedInjects()
	}
	c.rpc.enqueueReply(f.id, answer, fault)
	switch state {
	case protocol.HostIdle:
		s.Idle()
	case protocol.HostBusy:
		s.Busy()
	}
	c.rpc.Flush()
}

// applyUpdate applies a session/update except for its state, which it returns: "", "idle" or
// "busy".
func (c *hostConn) applyUpdate(f rpcFrame) (s *gateway.Session, state string, fault *rpcError) {
	var p protocol.HostUpdate
	if s, fault = c.decode(f, &p, "id", &p.ID); fault != nil {
		return nil, "", fault
	}
	switch p.State {
	case "", protocol.HostIdle, protocol.HostBusy:
	default:
		return nil, "", invalidParams(`session/update.state: must be "idle" or "busy"`)
	}
	s.Update(p.Label, "")
	if p.Foreground {
		_ = c.server.gateway.SetForeground(p.ID)
	}
	return s, p.State, nil
}

// end answers `session/end`.
func (c *hostConn) end(f rpcFrame) (any, *rpcError) {
	var p protocol.HostEnd
	s, fault := c.decode(f, &p, "id", &p.ID)
	if fault != nil {
		return nil, fault
	}
	if p.Reason == "" {
		p.Reason = "its host ended it"
	}
	// Not c.ctx: providers hear of the end even if the host disconnects now.
	if err := s.Stop(context.WithoutCancel(c.ctx), p.Reason); err != nil {
		return nil, &rpcError{rpcInternal, err.Error()}
	}
	c.mu.Lock()
	delete(c.sessions, p.ID)
	c.mu.Unlock()
	return struct{}{}, nil
}

// preToolUse answers `hook/preToolUse` with the decision of rules and gates.
func (c *hostConn) preToolUse(f rpcFrame) (any, *rpcError) {
	var p protocol.HostPreToolUse
	s, fault := c.decode(f, &p, "sessionId", &p.SessionID)
	if fault != nil {
		return nil, fault
	}
	if p.Tool == "" {
		return nil, invalidParams("hook/preToolUse.tool: is required")
	}
	d := s.PreToolUse(c.ctx, p.Tool, p.Args)
	if d.Deny {
		return protocol.HostDecision{Decision: protocol.DecisionDeny, Reason: d.Denial()}, nil
	}
	return protocol.HostDecision{Decision: protocol.DecisionAllow, Context: d.Context}, nil
}

// userPrompt answers `hook/userPrompt` with the text that providers add to a prompt.
func (c *hostConn) userPrompt(f rpcFrame) (any, *rpcError) {
	var p protocol.HostUserPrompt
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
	return protocol.HostPromptContext{Context: s.UserPrompt(c.ctx, *p.Prompt, p.Source)}, nil
}

// transform answers `prompt/transform` with the sections that providers change.
func (c *hostConn) transform(f rpcFrame) (any, *rpcError) {
	var p protocol.HostTransform
	s, fault := c.decode(f, &p, "sessionId", &p.SessionID)
	if fault != nil {
		return nil, fault
	}
	if p.Sections == nil {
		return nil, invalidParams("prompt/transform.sections: is required")
	}
	changed := s.Transform(c.ctx, p.Sections)
	for name, own := range p.Sections {
		// A protected section keeps the session's own text at its end. The gateway adds it here,
		// so that hosts need not know which sections are protected.
		if text := changed[name]; own != "" && text != own && gateway.Protected(name) {
			changed[name] = text + "\n\n" + own
		}
	}
	return protocol.HostTransform{Sections: changed}, nil
}
