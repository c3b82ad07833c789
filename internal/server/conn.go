package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tapgw/internal/gateway"
)

// Bounds of the bytes that wait to be sent on one connection, and of the time until the socket
// takes them. A connection over a bound is closed as a slow consumer.
const (
	maxPending    = 8 << 20
	writeDeadline = 10 * time.Second

	// maxHostPending is for session hosts, so that several results of 5 MiB that come at once do
	// not end the host's sessions.
	maxHostPending = 64 << 20

	writeChunk = 64 << 10 // bytes for which a deadline holds
	keptBuffer = 8 << 10  // bytes that a connection keeps to send later
)

var errSlow = errors.New("slow consumer: too much waits to be sent")

// listener accepts connections as [conn], among the unproven ones.
type listener struct {
	net.Listener

	unproven *unproven
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := newConn(c)
	accepted.unproven = l.unproven
	l.unproven.enter(accepted)
	return accepted, nil
}

// conn writes like its net.Conn until startQueueing. From then on Write never blocks: bytes that
// the socket does not take at once wait in memory, and a goroutine sends it, which lives as long as
// something waits. So a message is written by the goroutine that made it while its reader keeps up
// (docs/adr/0013-inline-writes.md).
type conn struct {
	net.Conn
	raw      syscall.RawConn // of a socket, which need not block; nil for other connections
	unproven *unproven       // of the listener, or nil
	isOurs   atomic.Bool     // its other end was seen to belong to our user
	isClosed atomic.Bool     // as one unproven connection too many
	state    atomic.Int32    // its [http.ConnState]

	batch *gateway.Batch // of the reader of a WebSocket, else nil

	uidOnce sync.Once
	uid     int // of the user at the other end, set by Server.requestUID

	mu        sync.Mutex // guards the fields that follow
	limit     int        // bytes that may wait
	onSlow    func()
	queueing  bool // startQueueing was called
	corked    bool
	draining  bool // the goroutine runs
	buf       []byte
	sending   int // bytes that the goroutine has taken and not sent
	err       error
	drainDone sync.WaitGroup

	// Of writeNow. Its callback is made once, because a new one for each write would be allocated
	// with all that it writes to.
	written  int
	writeErr error
	write    func(fd uintptr) bool
}

// Read reads from the socket. Before it waits, it sends the frames that the reader has put off.
func (c *conn) Read(p []byte) (int, error) {
	c.batch.Flush()
	return c.Conn.Read(p)
}

func newConn(c net.Conn) *conn {
	made := &conn{Conn: c}
	made.write = made.writeSocket
	if socket, ok := c.(syscall.Conn); ok {
		made.raw, _ = socket.SyscallConn()
	}
	return made
}

// startQueueing makes writes not block. Up to limit bytes wait. onSlow is called once, with mu
// held, if more bytes wait, or if the socket takes no byte for writeDeadline.
func (c *conn) startQueueing(limit int, onSlow func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueing, c.limit, c.onSlow = true, limit, onSlow
}

// cork keeps written bytes until uncork, so that several messages go out in one write.
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
	// A large message is written although the connection is corked: the limit is for bytes that the
	// socket does not take.
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

// flush writes as much as the socket takes now and leaves the rest to the goroutine. Call with mu
// held.
func (c *conn) flush() {
	if c.draining || len(c.buf) == 0 || c.err != nil {
		return
	}
	n, err := c.writeNow()
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

// recycle returns a buffer for the next write, or nil if it has grown too large to keep: of
// hundreds of connections, most are sent much once, when they are bound, and then little.
func recycle(b []byte) []byte {
	if cap(b) > keptBuffer {
		return nil
	}
	return b[:0]
}

// drain writes rest, and bytes that are queued meanwhile, until the queue is empty. It blocks on
// the socket.
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
			// Direct writes would fail after the deadline.
			_ = c.SetWriteDeadline(time.Time{})
			c.draining = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// fail closes the connection, which ends its reader. Call with mu held.
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

// Close closes the connection at once; queued bytes are lost. It waits for the goroutine.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	c.mu.Unlock()
	err := c.Conn.Close()
	if c.unproven != nil {
		c.unproven.leave(c)
	}
	c.drainDone.Wait()
	return err
}

// writeNow writes the buffered bytes that the socket takes without waiting. It returns their
// number, 0 for a connection that always blocks: then the goroutine writes everything. The socket
// is in non-blocking mode, so the kernel takes as much as it has room for. Call with mu held.
func (c *conn) writeNow() (n int, err error) {
	if c.raw == nil {
		return 0, nil
	}
	c.written, c.writeErr = 0, nil
	err = c.raw.Write(c.write)
	if err == nil && !errors.Is(c.writeErr, syscall.EAGAIN) &&
		!errors.Is(c.writeErr, syscall.EINTR) {
		err = c.writeErr
	}
	return c.written, err
}

func (c *conn) writeSocket(fd uintptr) bool {
	for c.written < len(c.buf) {
		n, err := syscall.Write(int(fd), c.buf[c.written:])
		c.written += max(n, 0)
		c.writeErr = err
		if !errors.Is(err, syscall.EINTR) && (err != nil || n <= 0) {
			break
		}
	}
	return true // never wait here
}

var _ io.Writer = (*conn)(nil)
