package server

import (
	"bytes"
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

// A provider's WebSocket.

// maxBeforeAuth bounds the bytes of all frames together that a connection may send before it has
// authenticated.
const maxBeforeAuth = 64 << 10

// maxCloseReason is how many bytes of a reason fit into a close frame.
const maxCloseReason = 120

// wire sends text frames over one WebSocket and never blocks the sender. Frames are
// queued in order; the first goroutine that calls Flush sends all of them, also those
// that others queue meanwhile.
type wire struct {
	// Fixed at the upgrade, except that releaseBuffers clears ws and conn.
	ws         *websocket.Conn
	conn       *conn
	closeOnce  sync.Once
	closeDone  chan struct{}   // closed when there is no closing handshake to wait for
	handshakes *sync.WaitGroup // the server's, for the closing handshake
	batch      *gateway.Batch  // of the reader
	onClose    func()          // called when this side begins to close; may be nil

	mu         sync.Mutex // guards the fields that follow
	out        []byte     // frames, end to end
	frameEnds  []int      // the offset in out at which each frame ends
	spareOut   []byte     // a buffer for the next out
	spareEnds  []int
	isFlushing bool
	flushed    chan struct{} // closed when the flush under way ends; nil without a waiter
	isClosed   bool          // nothing is sent any more
}

// enqueue queues the frame that build appends to dst. It only takes w.mu, so it may be
// called under other locks.
func (w *wire) enqueue(build func(dst []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return
	}
	w.out = build(w.out)
	w.frameEnds = append(w.frameEnds, len(w.out))
}

// Flush implements [gateway.Peer]: it hands all queued frames to the connection. It
// returns at once while another goroutine flushes.
func (w *wire) Flush() {
	w.mu.Lock()
	if w.isFlushing {
		w.mu.Unlock()
		return
	}
	w.isFlushing = true
	for len(w.frameEnds) > 0 && !w.isClosed {
		out, ends := w.out, w.frameEnds
		w.out, w.frameEnds = w.spareOut[:0], w.spareEnds[:0]
		w.mu.Unlock()
		w.write(out, ends)
		w.mu.Lock()
		w.spareOut, w.spareEnds = recycle(out), ends[:0]
	}
	w.isFlushing = false
	if w.flushed != nil {
		close(w.flushed)
		w.flushed = nil
	}
	w.releaseBuffers()
	w.mu.Unlock()
}

// flushAll is Flush, and waits for a goroutine that flushes.
func (w *wire) flushAll() {
	w.Flush()
	w.mu.Lock()
	if !w.isFlushing {
		w.mu.Unlock()
		return
	}
	if w.flushed == nil {
		w.flushed = make(chan struct{})
	}
	flushed := w.flushed
	w.mu.Unlock()
	<-flushed
}

// releaseBuffers frees the connection and its buffers once it is closed and no goroutine writes to
// it. The gateway keeps the wire of a provider that may reconnect, so the memory would stay for as
// long. Call with w.mu held.
func (w *wire) releaseBuffers() {
	if w.isClosed && !w.isFlushing {
		w.ws, w.conn, w.out, w.frameEnds, w.spareOut, w.spareEnds = nil, nil, nil, nil, nil, nil
	}
}

// write hands frames to the connection, which queues the bytes that the socket does not take at
// once. On an error it stops: the connection is closed then, and its reader ends.
func (w *wire) write(out []byte, ends []int) {
	if len(ends) > 1 {
		w.conn.cork()
		defer w.conn.uncork()
	}
	from := 0
	for _, end := range ends {
		// No deadline: a context that ends would close the connection, and the write
		// does not block.
		if w.ws.Write(context.Background(), websocket.MessageText, out[from:end]) != nil {
			return
		}
		from = end
	}
}

// Close implements [gateway.Peer]: it sends the queued frames and a close frame. It
// returns at once; the closing handshake goes on in a goroutine of the server. The reason
// is cut to 120 bytes, which a close frame holds.
func (w *wire) Close(code protocol.CloseCode, reason string) {
	w.closeOnce.Do(func() {
		if w.onClose != nil {
			w.onClose()
		}
		ws := w.ws
		w.handshakes.Go(func() {
			defer close(w.closeDone)
			// a frame that another goroutine sends now comes before the close frame, too
			w.flushAll()
			reason = reason[:min(len(reason), maxCloseReason)]
			_ = ws.Close(websocket.StatusCode(code), reason)
		})
	})
}

// terminate closes the connection. If this side has begun a closing handshake, it waits for
// that or for ctx first, so that the other side gets the close code.
func (w *wire) terminate(ctx context.Context) {
	w.closeOnce.Do(func() { close(w.closeDone) })
	select {
	case <-w.closeDone:
	case <-ctx.Done():
	}
	_ = w.ws.CloseNow()
	w.mu.Lock()
	w.isClosed = true
	w.releaseBuffers()
	w.mu.Unlock()
}

// minReadBuffer is the size of a frame reader's buffer while frames are small.
const minReadBuffer = 4 << 10

// frameReader reads the frames of one connection and gives each to a callback, all on the
// goroutine that calls wire.read.
type frameReader struct {
	maxText int // larger frames go to onOversized
	// until then maxBeforeAuth bounds all frames together
	isAuthenticated func() bool
	onText          func(text []byte) // a text frame, or a binary one that is UTF-8
	// the first maxText bytes; size is at most protocol.MaxFrame
	onOversized func(beginning []byte, size int)
	onBinary    func(size int) // a binary frame that is not UTF-8

	buffer    []byte
	readEarly int // bytes that came before authentication
}

// read reads frames until the connection or ctx ends. It closes the connection on a frame over
// protocol.MaxFrame, and when more than maxBeforeAuth bytes come before authentication.
func (w *wire) read(ctx context.Context, f frameReader) {
	ws, conn := w.ws, w.conn
	// The context is watched once for the connection, not once for each read. CloseNow is no
	// use here: it waits for a closing handshake that is under way.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer w.batch.Flush()
	f.buffer = make([]byte, minReadBuffer)
	for {
		kind, frame, err := ws.Reader(context.Background())
		if err != nil || !f.readFrame(w, kind, frame) {
			return
		}
	}
}

// readFrame reads one frame to its end and hands it on. It reports whether the connection
// goes on.
func (f *frameReader) readFrame(w *wire, kind websocket.MessageType, frame io.Reader) bool {
	limit, isEarly := f.maxText, !f.isAuthenticated()
	if isEarly {
		limit = min(limit, maxBeforeAuth-f.readEarly)
	}
	n, err := f.fill(frame, limit)
	if f.readEarly += n; isEarly && n > limit {
		w.Close(protocol.ClosePolicy, "more than 64 KiB before authentication")
		return false
	}
	size := int64(n)
	if err == nil { // the frame is larger than the limit: skip its end
		var skipped int64
		skipped, err = io.Copy(io.Discard, io.LimitReader(frame, protocol.MaxFrame-size+1))
		if size += skipped; size > protocol.MaxFrame {
			w.Close(protocol.CloseTooBig, "the frame is over 16 MiB")
			return false
		}
		if err == nil {
			err = io.EOF
		}
	}
	if !errors.Is(err, io.EOF) {
		return false
	}
	switch {
	case size > int64(limit):
		f.onOversized(f.buffer[:limit], int(size))
	case kind == websocket.MessageBinary && !utf8.Valid(f.buffer[:n]):
		f.onBinary(n)
	default:
		f.onText(bytes.Clone(f.buffer[:n])) // the receiver keeps parts of it
	}
	if len(f.buffer) > writeChunk {
		f.buffer = make([]byte, minReadBuffer)
	}
	return true
}

// fill reads a frame into the buffer, up to one byte more than limit. It returns the number of
// bytes, and io.EOF if they are the whole frame.
func (f *frameReader) fill(frame io.Reader, limit int) (n int, err error) {
	for err == nil && n <= limit {
		if n == len(f.buffer) {
			larger := make([]byte, min(2*len(f.buffer), limit+1))
			copy(larger, f.buffer)
			f.buffer = larger
		}
		var read int
		read, err = frame.Read(f.buffer[n:])
		n += read
	}
	return n, err
}

// wirePeer is the [gateway.Peer] of a provider at the other end of a WebSocket.
type wirePeer struct{ *wire }

// Send implements [gateway.Peer]: it queues a message, in the order of the calls, which Flush
// sends. It never blocks.
func (p wirePeer) Send(m protocol.Message) {
	p.enqueue(func(dst []byte) []byte { return protocol.Append(dst, m) })
}

// serveProvider serves one provider connection until it ends.
func (s *Server) serveProvider(w http.ResponseWriter, r *http.Request) {
	admission, refusal := s.connections.reserve(r)
	if admission == nil {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "RATE_LIMITED", refusal)
		return
	}
	defer admission.release()
	ws, err := s.upgrade(w, r, maxPending)
	if err != nil {
		return
	}
	// A peer that never answers our close frame must not count until it is gone.
	ws.onClose = admission.release
	c := s.connect(wirePeer{ws}, gateway.ConnOptions{
		ForeignOrigin: isForeignOrigin(r),
		Origin:        foreignOrigin(r),
		Batch:         ws.batch,
		BadSecret:     func() bool { return s.countAuthFailure(r) },
		Admit: func() (bool, string) {
			prove(r)
			if admission.admit() {
				return true, ""
			}
			return false, s.connections.fullMessage()
		},
	})
	ws.read(s.ctx, frameReader{
		maxText: protocol.MaxResult, isAuthenticated: c.AuthEnded,
		onText: c.Receive, onOversized: c.ReceiveOversized, onBinary: c.ReceiveBinary,
	})
	c.Closed()
	ws.terminate(s.ctx)
}

// upgrade makes a WebSocket of a request that the guard let through. limit bounds the bytes
// that wait to be sent; a peer that exceeds it is closed. On an error the request is answered.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, limit int) (*wire, error) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	// The guard has checked the origin, by rules that differ by endpoint.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	// frameReader bounds it: an oversized frame gets an answer and the connection goes on
	ws.SetReadLimit(-1)
	c.startQueueing(limit, func() {
		s.gateway.Stats().SlowPeers.Add(1)
		s.log.Warn("closing a slow consumer", "remote", r.RemoteAddr)
	})
	c.batch = &gateway.Batch{}
	return &wire{ws: ws, conn: c, handshakes: &s.closeHandshakes, closeDone: make(chan struct{}),
		batch: c.batch}, nil
}
