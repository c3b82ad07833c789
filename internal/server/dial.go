package server

import (
	"errors"

	"tapgw/internal/gateway"
	"tapgw/internal/link"
)

// Dial connects a provider of this process, without a socket. It counts against MaxConnections of [Options] as any
// other; the error says that the limit is reached, or that the server shuts down. Shutdown does not wait for the
// provider to notice its end.
func (s *Server) Dial() (*link.Conn, error) {
	if s.draining.Load() {
		return nil, errors.New("the gateway is shutting down")
	}
	place := &admission{owner: &s.connections}
	if !place.admit() {
		return nil, errors.New(s.connections.fullMessage())
	}
	connect := func(p *link.Peer) link.Receiver {
		return s.gateway.Connect(p, gateway.ConnOptions{})
	}
	onSlow := func() {
		s.gateway.Stats().SlowPeers.Add(1)
		s.log.Warn("closing a slow consumer", "remote", "this process")
	}
	return link.Connect(maxPending, connect, onSlow, place.release), nil
}
