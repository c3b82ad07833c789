package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of what waits to be sent on one connection; past either it is closed
// as a slow consumer.
const (
	maxPending    = 8 << 20 // bytes
	writeDeadline = 10 * time.Second

	// maxHostPending is that of a session host: a few results of 5 MiB that
	// come at once are no reason to end its sessions.
	maxHostPending = 64 << 20

	writeChunk = 64 << 10 // a deadline is for this much
)

var errSlow = errors.New("slow consumer: too much waits to be sent")

// listener hands out connections whose writes can be made not to block.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

// conn writes as its net.Conn does until queue is called. From then on Write
// never blocks: what the socket does not take at once waits in memory, and a
// goroutine that lives only as long as something waits sends it on. A message
// thus costs no hop between goroutines while its reader keeps up.
type conn struct {
	net.Conn
	direct directWriter
	limit  int // bytes that may wait
	onSlow func()

	uidOnce sync.Once
	uid     int // at the other end, as Server.user has it

	mu        sync.Mutex
	queueing  bool
	corked    bool // hold was called
	draining  bool // the goroutine runs
	buf       []byte
	sending   int // bytes that the goroutine has taken and not sent
	err       error
	drainDone sync.WaitGroup
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, direct: newDirectWriter(c)} }

// queue makes writes not block: up to limit bytes wait. onSlow is called once if
// that, or the deadline, is passed.
func (c *conn) startQueueing(limit int, onSlow func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueing, c.limit, c.onSlow = true, limit, onSlow
}

// hold keeps what is written until release, so that it goes out together.
func (c *conn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

func (c *conn) uncork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	c.flush()
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.queueing {
		c.mu.Unlock()
		return c.Conn.Write(p)
	}
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.buf = append(c.buf, p...)
	// What is held goes together, but large things don't wait for each other:
	// the bound is for what the socket refuses.
	if !c.corked || len(c.buf) >= writeChunk {
		c.flush()
	}
	if c.err == nil && len(c.buf)+c.sending > c.limit {
		c.fail(errSlow)
	}
	if c.err != nil {
		return 0, c.err
	}
	return len(p), nil
}

// flush sends what the socket takes now and leaves the rest to the goroutine.
// Call with mu held.
func (c *conn) flush() {
	if c.draining || len(c.buf) == 0 || c.err != nil {
		return
	}
	n, err := c.direct.write(c.buf)
	if err != nil {
		c.fail(err)
		return
	}
	if n == len(c.buf) {
		c.buf = recycle(c.buf)
		return
	}
	rest := append([]byte(nil), c.buf[n:]...)
	c.buf, c.sending = nil, len(rest)
	c.draining = true
	c.drainDone.Go(func() { c.drain(rest) })
}

// recycle keeps a buffer for the next write unless it grew out of proportion.
func recycle(b []byte) []byte {
	if cap(b) > writeChunk {
		return nil
	}
	return b[:0]
}

// drain sends what waits, blocking, until nothing does.
func (c *conn) drain(rest []byte) {
	for {
		for len(rest) > 0 {
			chunk := rest[:min(len(rest), writeChunk)]
			_ = c.SetWriteDeadline(time.Now().Add(writeDeadline))
			n, err := c.Conn.Write(chunk)
			if err != nil {
				c.mu.Lock()
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					err = errSlow
				}
				c.fail(err)
				c.mu.Unlock()
				return
			}
			rest = rest[n:]
			c.mu.Lock()
			c.sending = len(rest)
			c.mu.Unlock()
		}
		c.mu.Lock()
		rest, c.buf = c.buf, nil
		c.sending = len(rest)
		if len(rest) == 0 || c.err != nil {
			// Direct writes fail past a deadline too.
			_ = c.SetWriteDeadline(time.Time{})
			c.draining = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// fail ends the connection; its reader notices. Call with mu held.
func (c *conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err, c.buf = err, nil
	if errors.Is(err, errSlow) && c.onSlow != nil {
		c.onSlow()
	}
	_ = c.Conn.Close()
}

// Close sends nothing more.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	c.mu.Unlock()
	err := c.Conn.Close()
	c.drainDone.Wait()
	return err
}

// directWriter writes what a connection takes without waiting.
type directWriter interface {
	write(p []byte) (int, error)
}

// noDirect is for connections that can't tell: all is left to the goroutine.
type noDirectWriter struct{}

func (noDirectWriter) write([]byte) (int, error) { return 0, nil }

var _ io.Writer = (*conn)(nil)
