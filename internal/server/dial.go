package server

import (
	"errors"
	"runtime/debug"

	"tapgw/internal/gateway"
	"tapgw/internal/link"
)

// Dial connects a provider of this process, without a socket. It counts against MaxConnections of
// [Options] as any other; the error says that the limit is reached, or that the server shuts down.
// Shutdown does not wait for the provider to notice its end.
func (s *Server) Dial() (*link.Conn, error) {
	if s.draining.Load() {
		return nil, errors.New("the gateway is shutting down")
	}
	place := &admission{owner: &s.connections}
	if !place.admit() {
		return nil, errors.New(s.connections.fullMessage())
	}
	return s.dial(place.release, s.connect), nil
}

// DialOwn connects a provider of the gateway's own, which each session has. It is [Server.Dial],
// but counts against no limit: sessions would take the places of the providers that people connect.
func (s *Server) DialOwn() (*link.Conn, error) {
	if s.draining.Load() {
		return nil, errors.New("the gateway is shutting down")
	}
	return s.dial(func() {}, func(p gateway.Peer, o gateway.ConnOptions) ProviderConn {
		return s.gateway.Connect(p, o)
	}), nil
}

func (s *Server) dial(
	onClose func(), connect func(gateway.Peer, gateway.ConnOptions) ProviderConn,
) *link.Conn {
	receiver := func(p *link.Peer) link.Receiver { return connect(p, gateway.ConnOptions{}) }
	onSlow := func() {
		s.gateway.Stats().SlowPeers.Add(1)
		s.log.Warn("closing a slow consumer", "remote", "this process")
	}
	onPanic := func(fault any) {
		s.log.Error("handling a message of a provider in this process: the connection ends",
			"panic", fault, "stack", string(debug.Stack()))
	}
	return link.Connect(maxPending, receiver,
		link.Ends{Slow: onSlow, Panic: onPanic, Close: onClose})
}
