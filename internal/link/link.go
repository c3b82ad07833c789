// Package link connects a provider with the gateway of its own process: the messages of a WebSocket
// in the same order and with the same ends, without a socket, without frames and without a
// goroutine.
//
// A provider finds its way in by its context ([WithDial]), so that the options of the SDK, which is
// public, do not show it.
package link

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/coder/websocket"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// Dial makes a connection to the gateway of this process. The error says why the gateway has no
// place for one.
type Dial func() (*Conn, error)

type dialKey struct{}

// WithDial returns a context for the Run of a provider, which then connects by dial and not to the
// URL of its options. A nil dial has no effect.
func WithDial(ctx context.Context, dial Dial) context.Context {
	if dial == nil {
		return ctx
	}
	return context.WithValue(ctx, dialKey{}, dial)
}

// DialOf returns the function that [WithDial] put into ctx, or nil.
func DialOf(ctx context.Context) Dial {
	dial, _ := ctx.Value(dialKey{}).(Dial)
	return dial
}

// Receiver is the gateway's end, a gateway.Conn. Receive gets one message at a time.
type Receiver interface {
	Receive(data []byte)
	Closed()
}

// Conn is the provider's end. It has the methods of a [websocket.Conn] that the SDK uses, with the
// same results. Any goroutine may call them; only one at a time may call Read.
type Conn struct {
	receiver  Receiver
	receiving sync.Mutex // held while the gateway handles a message
	peer      Peer
	wake      chan struct{} // has one element if there are messages to read
}

// Peer is the way from the gateway to the provider, a gateway.Peer.
type Peer struct {
	conn  *Conn
	limit int // bytes that may wait for the provider
	on    Ends

	mu     sync.Mutex // guards the fields that follow
	queue  [][]byte
	size   int   // of all in queue
	isSlow bool  // more than limit waited, and onSlow was not called yet
	ending error // Read's error after the queue; nil while the connection is open
}

// Ends has the functions that are called when a connection ends, at most once and under no lock:
// Slow if the provider is cut off, and Close when the first side closes. Panic gets the value of
// each panic of the gateway while it handles a message.
type Ends struct {
	Slow  func()
	Panic func(fault any)
	Close func()
}

// Connect makes a connection. A provider for which more than limit bytes wait is cut off. connect
// gets the gateway's way to the provider, and returns where the provider's messages go.
func Connect(limit int, connect func(*Peer) Receiver, on Ends) *Conn {
	c := &Conn{wake: make(chan struct{}, 1)}
	c.peer = Peer{conn: c, limit: limit, on: on}
	c.receiver = connect(&c.peer)
	return c
}

// Send implements gateway.Peer.
func (p *Peer) Send(m protocol.Message) {
	data := protocol.Append(nil, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending != nil {
		return
	}
	p.queue = append(p.queue, data)
	p.size += len(data)
	if p.size > p.limit {
		p.isSlow, p.ending, p.queue = true, io.EOF, nil
	}
}

// Flush implements gateway.Peer. It also cuts off a slow provider, which Send can't under the locks
// of its callers.
func (p *Peer) Flush() {
	chans.Wake(p.conn.wake)
	p.mu.Lock()
	isSlow := p.isSlow
	p.isSlow = false
	p.mu.Unlock()
	if isSlow {
		p.on.Close()
		p.on.Slow()
		p.conn.receiver.Closed()
	}
}

// Close implements gateway.Peer.
func (p *Peer) Close(code protocol.CloseCode, reason string) {
	p.end(websocket.CloseError{Code: websocket.StatusCode(code), Reason: reason})
}

func (p *Peer) end(err error) {
	p.mu.Lock()
	isFirst := p.ending == nil
	if isFirst {
		p.ending = err
	}
	p.mu.Unlock()
	if isFirst {
		p.on.Close()
		p.Flush()
	}
}

// take returns the next message, or the error with which the messages end. It returns nil and nil
// if there is no message now.
func (p *Peer) take() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil, p.ending
	}
	data := p.queue[0]
	p.queue[0] = nil
	if len(p.queue) == 1 {
		p.queue = p.queue[:0] // the next message finds its place
	} else {
		p.queue = p.queue[1:]
	}
	p.size -= len(data)
	return data, nil
}

// Read returns the gateway's next message. It returns a [websocket.CloseError] when the gateway
// closed the connection, [io.EOF] when it cut the provider off, [net.ErrClosed] after this side
// closed it, and ctx's error when ctx ends.
func (c *Conn) Read(ctx context.Context) (websocket.MessageType, []byte, error) {
	for {
		if data, err := c.peer.take(); data != nil || err != nil {
			return websocket.MessageText, data, err
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

// Write gives the gateway a message, and returns when that was handled. The gateway keeps data.
// After the gateway has closed the connection it ignores messages, and Read says why. A panic of
// the gateway ends this connection and not the process, as net/http has it for a socket.
func (c *Conn) Write(_ context.Context, _ websocket.MessageType, data []byte) error {
	c.receiving.Lock()
	defer c.receiving.Unlock()
	defer func() {
		if fault := recover(); fault != nil {
			c.peer.on.Panic(fault)
			c.peer.end(websocket.CloseError{Code: websocket.StatusInternalError,
				Reason: "the gateway failed"})
			c.receiver.Closed()
		}
	}()
	c.receiver.Receive(data)
	return nil
}

// Ping always succeeds, because the gateway is in this process.
func (c *Conn) Ping(context.Context) error { return nil }

// Close is CloseNow, because no message is in transit.
func (c *Conn) Close(websocket.StatusCode, string) error { return c.CloseNow() }

// CloseNow ends the connection on both sides.
func (c *Conn) CloseNow() error {
	c.peer.end(net.ErrClosed)
	c.receiver.Closed()
	return nil
}
