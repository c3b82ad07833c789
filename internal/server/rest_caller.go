package server

import (
	"net"
	"net/http"
)

// restCaller is a request of `live` that waits for a response.
type restCaller struct {
	conn      net.Conn      // nil if unknown
	done      chan struct{} // closed by restSession.release
	answering bool          // guarded by restSession.mu
}

func newRESTCaller(r *http.Request) *restCaller {
	c := &restCaller{done: make(chan struct{})}
	if known, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.conn = known.Conn
	}
	return c
}

// hasHungUp reports whether the caller has closed its connection, as far as the system tells. The
// request's context shows it too, but later.
func (c *restCaller) hasHungUp() bool {
	state, ok := tcpState(c.conn)
	return ok && state != tcpEstablished
}

// wasReset reports whether an answer reached a socket that was closed already, which writing does
// not show. It is false for a caller that closes its connection after reading the answer.
func (c *restCaller) wasReset() bool {
	state, ok := tcpState(c.conn)
	return ok && state == tcpClosed
}

// States of a TCP connection, as Linux numbers them.
const (
	tcpEstablished = 1
	tcpClosed      = 7
)
