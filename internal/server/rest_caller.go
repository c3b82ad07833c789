package server

import (
	"net"
	"net/http"
)

// restCaller is a request that waits for a response.
type restCaller struct {
	conn      net.Conn // nil where it is not known
	done      chan struct{}
	answering bool // guarded by restSession.mu
}

func newRESTCaller(r *http.Request) *restCaller {
	c := &restCaller{done: make(chan struct{})}
	if known, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.conn = known.Conn
	}
	return c
}

// hungUp reports whether the caller has closed its connection, as far as can be
// told; its context says so too, but later.
func (c *restCaller) hasHungUp() bool {
	state, ok := tcpState(c.conn)
	return ok && state != tcpEstablished
}

// wasReset reports whether what was written came to a socket that was closed.
// Writing says nothing of that. A caller that closes its connection after it has
// read its answer is not meant.
func (c *restCaller) wasReset() bool {
	state, ok := tcpState(c.conn)
	return ok && state == tcpClosed
}

// States of a TCP connection, of which Linux tells.
const (
	tcpEstablished = 1
	tcpClosed      = 7
)
