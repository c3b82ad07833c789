package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"unicode/utf8"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// wire sends frames over a WebSocket without ever blocking: frames are queued
// in order, and whoever flushes while nobody else does sends them all.
type wire struct {
	ws         *websocket.Conn
	conn       *conn
	closeOnce  sync.Once
	closeDone  chan struct{}   // closed when the closing handshake is over, or will not be
	handshakes *sync.WaitGroup // of the server, for the closing handshake
	onClose    func()          // called when we begin to close; nil: nothing

	mu        sync.Mutex
	out       []byte // frames, end to end
	frameEnds []int  // where each ends
	spareOut  []byte
	spareEnds []int
	flushing  bool
	closed    bool // nothing is sent any more
}

// push queues the frame that build appends.
func (w *wire) enqueue(build func(dst []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.out = build(w.out)
	w.frameEnds = append(w.frameEnds, len(w.out))
}

// Flush implements [gateway.Peer].
func (w *wire) Flush() {
	w.mu.Lock()
	if w.flushing {
		w.mu.Unlock()
		return
	}
	w.flushing = true
	for len(w.frameEnds) > 0 && !w.closed {
		out, ends := w.out, w.frameEnds
		w.out, w.frameEnds = w.spareOut[:0], w.spareEnds[:0]
		w.mu.Unlock()
		w.write(out, ends)
		w.mu.Lock()
		w.spareOut, w.spareEnds = recycle(out), ends[:0]
	}
	w.flushing = false
	w.releaseBuffers()
	w.mu.Unlock()
}

// drop lets go of the connection when it is gone and nobody writes to it: what a
// provider may come back to is remembered for a while, with its wire. Call with
// w.mu held.
func (w *wire) releaseBuffers() {
	if w.closed && !w.flushing {
		w.ws, w.conn, w.out, w.frameEnds, w.spareOut, w.spareEnds = nil, nil, nil, nil, nil, nil
	}
}

// write hands frames to the connection, which queues what does not go at once.
// An error is the reader's to notice: the connection is closed by then.
func (w *wire) write(out []byte, ends []int) {
	if len(ends) > 1 {
		w.conn.cork()
		defer w.conn.uncork()
	}
	from := 0
	for _, end := range ends {
		// No deadline: the context would close the connection, and the
		// write does not block.
		if w.ws.Write(context.Background(), websocket.MessageText, out[from:end]) != nil {
			return
		}
		from = end
	}
}

// Close implements [gateway.Peer]. The handshake goes on after it returned.
func (w *wire) Close(code protocol.CloseCode, reason string) {
	w.closeOnce.Do(func() {
		if w.onClose != nil {
			w.onClose()
		}
		ws := w.ws
		w.handshakes.Go(func() {
			defer close(w.closeDone)
			w.Flush()
			if len(reason) > 120 { // what a close frame holds
				reason = reason[:120]
			}
			_ = ws.Close(websocket.StatusCode(code), reason)
		})
	})
}

// hangUp ends the connection; a closing handshake that we began is let through,
// or the other side would not learn why.
func (w *wire) terminate(ctx context.Context) {
	w.closeOnce.Do(func() { close(w.closeDone) })
	select {
	case <-w.closeDone:
	case <-ctx.Done():
	}
	_ = w.ws.CloseNow()
	w.mu.Lock()
	w.closed = true
	w.releaseBuffers()
	w.mu.Unlock()
}

// read gives every text frame to text, and every binary one that is UTF-8, until
// the connection ends; binary is called for the other ones. A frame of more than
// keep bytes is read to its end but only its beginning kept, for large; past
// protocol.MaxFrame the connection is closed. Until letIn reports true it may send
// beforeAuth bytes, all in all, and is closed past them.
func (w *wire) read(ctx context.Context, most int, letIn func() bool, text func([]byte), large func(beginning []byte, size int), binary func()) {
	scratch := make([]byte, 4<<10)
	// The context is watched once for the connection, not once for each read.
	// Not by CloseNow, which waits for a closing handshake that is under way.
	ws, conn := w.ws, w.conn
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	early := 0 // bytes before it was let in
	for {
		typ, r, err := ws.Reader(context.Background())
		if err != nil {
			return
		}
		keep, waits := most, !letIn()
		if waits {
			keep = min(most, maxBeforeAuth-early)
		}
		n, err := 0, error(nil)
		for err == nil && n <= keep {
			if n == len(scratch) {
				bigger := make([]byte, min(2*len(scratch), keep+1))
				copy(bigger, scratch)
				scratch = bigger
			}
			var k int
			k, err = r.Read(scratch[n:])
			n += k
			if n == len(scratch) && n > keep {
				break
			}
		}
		size := int64(n)
		if early += n; waits && n > keep {
			w.Close(protocol.ClosePolicy, "more than 64 KiB before authentication")
			return
		}
		if err == nil {
			var rest int64
			rest, err = io.Copy(io.Discard, io.LimitReader(r, protocol.MaxFrame-size+1))
			if size += rest; size > protocol.MaxFrame {
				w.Close(protocol.CloseTooBig, "the frame is over 16 MiB")
				return
			}
			if err == nil {
				err = io.EOF
			}
		}
		if !errors.Is(err, io.EOF) {
			return
		}
		switch {
		case size > int64(keep):
			large(scratch[:keep], int(size))
		case typ == websocket.MessageBinary && !utf8.Valid(scratch[:n]):
			binary()
		default:
			// What reads the frame keeps parts of it.
			text(append([]byte(nil), scratch[:n]...))
		}
		if len(scratch) > writeChunk {
			scratch = make([]byte, 4<<10)
		}
	}
}

// wirePeer is a provider at the other end of a WebSocket.
type wirePeer struct{ *wire }

// Send implements [gateway.Peer].
func (p wirePeer) Send(m protocol.Message) {
	p.enqueue(func(dst []byte) []byte { return protocol.Append(dst, m) })
}

// provider serves one provider connection.
func (s *Server) serveProvider(w http.ResponseWriter, r *http.Request) {
	admission, refusal := s.connections.reserve(r)
	if admission == nil {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "RATE_LIMITED", refusal)
		return
	}
	// A peer that does not answer our close keeps its place no longer.
	defer admission.release()
	ws, err := s.upgrade(w, r, maxPending)
	if err != nil {
		return
	}
	ws.onClose = admission.release
	c := s.gateway.Connect(wirePeer{ws}, gateway.ConnOptions{
		ForeignOrigin: isForeignOrigin(r),
		Origin:        foreignOrigin(r),
		BadSecret:     func() bool { return s.countAuthFailure(r) },
		Admit: func() (bool, string) {
			if admission.admit() {
				return true, ""
			}
			return false, s.connections.fullMessage()
		},
	})
	ws.read(s.ctx, protocol.MaxResult, c.AuthEnded, c.Receive, c.ReceiveOversized, c.ReceiveBinary)
	c.Closed()
	ws.terminate(s.ctx)
}

// upgrade makes a WebSocket of a request that the guard let through; limit bounds
// what waits to be sent.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, limit int) (*wire, error) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	// The guard has looked at the origin, by rules that differ by endpoint.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1) // read bounds it: an oversized frame is answered, not fatal
	c.startQueueing(limit, func() {
		s.gateway.Stats().SlowPeers.Add(1)
		s.log.Warn("closing a slow consumer", "remote", r.RemoteAddr)
	})
	return &wire{ws: ws, conn: c, handshakes: &s.closeHandshakes, closeDone: make(chan struct{})}, nil
}
