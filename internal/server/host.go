package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// hostConn is one connection of a program that runs agents. Its requests are read in order by
// one goroutine; those that may take long are answered by goroutines of their own.
type hostConn struct {
	// Fixed at the start.
	server           *Server
	rpc              rpcConn
	countAuthFailure func() (tooMany bool)
	prove            func()         // the token was right
	authTimer        *time.Timer    // closes the connection when no initialize comes
	requests         sync.WaitGroup // the goroutines of replyAsync
	ctx              context.Context

	// The reading goroutine's.
	info          *gateway.HostInfo // nil until initialize
	countsInjects bool              // the host wants the number of prompts to come when it is idle

	mu       sync.Mutex                  // guards the fields below
	sessions map[string]*remoteHost      // by session id
	calls    map[string]*gateway.Pending // by the host's callId
}

// serveHost serves one host connection until it ends.
func (s *Server) serveHost(w http.ResponseWriter, r *http.Request) {
	if !requireUpgrade(w, r, "session hosts connect by WebSocket") {
		return
	}
	ws, err := s.upgrade(w, r, maxHostPending)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	c := &hostConn{
		server: s, ctx: ctx, countAuthFailure: func() bool { return s.countAuthFailure(r) },
		prove: func() {
			prove(r)
		}, sessions: map[string]*remoteHost{}, calls: map[string]*gateway.Pending{},
	}
	c.rpc = rpcConn{wire: ws, pending: map[uint64]chan rpcFrame{}}
	c.authTimer = time.AfterFunc(protocol.AuthTimeout, func() {
		ws.Close(protocol.ClosePolicy, fmt.Sprintf("no initialize within %s", protocol.AuthTimeout))
	})
	s.hostConns.Store(c, true)
	if s.draining.Load() { // Shutdown may have closed the others before
		ws.Close(protocol.CloseGoingAway, "the gateway is shutting down")
	}

	ws.read(ctx, frameReader{
		maxText:         protocol.MaxFrame,
		isAuthenticated: func() bool { return c.info != nil },
		onText:          c.receive,
		onOversized:     func([]byte, int) {}, // only protocol.MaxFrame bounds a host
		onBinary: func(int) {
			c.rpc.replyError(nil,
				&rpcError{rpcParseError,
					"the binary frame is not UTF-8; send JSON, in a text frame"})
		},
	})

	c.authTimer.Stop()
	cancel()
	s.hostConns.Delete(c)
	c.rpc.failPending()
	c.detachSessions()
	c.requests.Wait()
	ws.terminate(s.ctx)
}

// detachSessions lets the connection's sessions wait for their host to come back.
func (c *hostConn) detachSessions() {
	c.mu.Lock()
	hosts := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	for _, h := range hosts {
		h.detach(c)
	}
}

// receive handles one frame. Its own answers go out in the order of the frames.
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
	if c.info == nil && f.method != protocol.MethodInitialize {
		c.rpc.reply(f.id, nil, &rpcError{
			protocol.HostCodeNotAuthenticated,
			"the first request must be initialize, with the admin token",
		})
		return
	}
	if f.method != protocol.MethodToolCall {
		c.rpc.batch.Flush()
	}
	switch f.method {
	case protocol.MethodToolCall:
		c.toolCall(f)
	case protocol.MethodToolCancel:
		c.toolCancel(f)
	case protocol.MethodInitialize:
		c.initialize(f)
	case protocol.MethodRegister:
		result, fault := c.register(f)
		c.rpc.reply(f.id, result, fault)
	case protocol.MethodUpdate:
		c.update(f)
	case protocol.MethodEvent:
		c.rpc.reply(f.id, struct{}{}, c.event(f))
	case protocol.MethodEnd:
		c.replyAsync(f, c.end)
	case protocol.MethodPreToolUse:
		c.replyAsync(f, c.preToolUse)
	case protocol.MethodUserPrompt:
		c.replyAsync(f, c.userPrompt)
	case protocol.MethodTransform:
		c.replyAsync(f, c.transform)
	default:
		c.rpc.reply(f.id, nil,
			&rpcError{rpcNoMethod, fmt.Sprintf("there is no method %q", f.method)})
	}
}

// replyAsync answers a request from a goroutine of its own.
func (c *hostConn) replyAsync(f rpcFrame, answer func(rpcFrame) (any, *rpcError)) {
	c.requests.Go(func() {
		result, fault := answer(f)
		c.rpc.reply(f.id, result, fault)
	})
}

// initialize lets a host in that has the admin token, and closes the connection otherwise.
func (c *hostConn) initialize(f rpcFrame) {
	if c.info != nil {
		c.rpc.reply(f.id, nil, &rpcError{rpcInvalidRequest, "initialize: it was done already"})
		return
	}
	var p protocol.HostInitialize
	fault := decodeParams(f.method, f.params, &p)
	if fault == nil {
		fault = c.checkInitialize(&p)
	}
	if fault != nil {
		c.rpc.replyError(f.id, fault)
		c.rpc.Close(protocol.ClosePolicy, "initialize was refused")
		return
	}
	c.authTimer.Stop()
	c.prove()
	can := p.Capabilities
	c.countsInjects = can.Injects
	c.info = &gateway.HostInfo{
		Kind: p.Host.Name, Send: can.Send, Log: can.Log, Hooks: can.Hooks, Interrupt: can.Interrupt,
		LiveTools: can.LiveTools, Aliases: p.Aliases,
	}
	answer := protocol.HostInitialized{ProtocolVersion: protocol.HostVersion}
	answer.Gateway.Version = c.server.o.Version
	c.rpc.reply(f.id, answer, nil)
}

func (c *hostConn) checkInitialize(p *protocol.HostInitialize) *rpcError {
	switch {
	case !c.server.gateway.IsAdmin(p.Token):
		message := "initialize.token: is not the admin token, see the .admin-token file"
		if c.countAuthFailure() {
			message += "; too many wrong tokens came from this address, retry in a minute"
		}
		return &rpcError{protocol.HostCodeNotAuthenticated, message}
	case p.ProtocolVersion == nil:
		return invalidParams("initialize.protocolVersion: is required")
	case *p.ProtocolVersion != protocol.HostVersion:
		return invalidParams(
			"initialize.protocolVersion: %d is not supported, this gateway speaks %d",
			*p.ProtocolVersion, protocol.HostVersion)
	case p.Host.Name == "":
		return invalidParams("initialize.host.name: is required")
	}
	return nil
}
