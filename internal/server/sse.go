package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"
)

// sseKeepAlive is how often an event stream without news sends a comment.
const sseKeepAlive = 15 * time.Second

// sse writes a stream of server-sent events to one request. Events are buffered until send. The
// stream ends if the reader takes no byte for writeDeadline. It is for one goroutine.
type sse struct {
	w      http.ResponseWriter
	buffer bytes.Buffer
	sentAt time.Time // time of the last send
	err    error     // why the stream ended; nothing is written after it
}

// newSSE begins a stream. It tells the reader to reconnect a second after the connection ends.
func newSSE(w http.ResponseWriter, r *http.Request) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	e := &sse{w: w}
	if r.Method == http.MethodHead {
		e.err = http.ErrBodyNotAllowed
	}
	e.buffer.WriteString("retry: 1000\n\n")
	e.send()
	return e
}

// add adds an event. The id is its last line, so that a reader that is cut off inside the event
// gets it again.
func (e *sse) add(name, id string, data any) {
	if e.err != nil {
		return
	}
	e.buffer.WriteString("event: ")
	e.buffer.WriteString(name)
	e.buffer.WriteString("\ndata: ")
	if e.err = encodeJSON(&e.buffer, data); e.err != nil { // ends with a line feed
		return
	}
	e.buffer.WriteString("id: ")
	e.buffer.WriteString(id)
	e.buffer.WriteString("\n\n")
	if e.buffer.Len() >= writeChunk {
		e.send()
	}
}

// sendKeepAlive sends a comment, which readers ignore.
func (e *sse) sendKeepAlive() {
	e.buffer.WriteString(":\n\n")
	e.send()
}

// send writes the buffered events and flushes them.
func (e *sse) send() {
	if e.buffer.Len() == 0 {
		return
	}
	e.sentAt = time.Now()
	if e.err == nil {
		e.err = writeInTime(e.w, &e.buffer)
	}
	e.buffer.Reset()
	if e.buffer.Cap() > 2*writeChunk { // free the memory of a long event
		e.buffer = bytes.Buffer{}
	}
}

// writeInTime writes and flushes the buffered bytes. A reader that takes none for writeDeadline is
// an error.
func writeInTime(w http.ResponseWriter, b *bytes.Buffer) error {
	controller := http.NewResponseController(w)
	for b.Len() > 0 {
		_ = controller.SetWriteDeadline(time.Now().Add(writeDeadline)) // pipes have no deadlines
		if _, err := w.Write(b.Next(writeChunk)); err != nil {
			return err
		}
	}
	return controller.Flush()
}

// clearDeadline lets the connection serve other requests.
func (e *sse) clearDeadline() { _ = http.NewResponseController(e.w).SetWriteDeadline(time.Time{}) }

// waitWithKeepAlive calls wait until it returns something else than its deadline. Each sseKeepAlive
// without news it calls onKeepAlive and sends a comment. The error is wait's, or why the stream
// ended.
func (e *sse) waitWithKeepAlive(
	ctx context.Context, onKeepAlive func(), wait func(context.Context) error,
) error {
	for e.err == nil {
		deadline, cancel := context.WithDeadline(ctx, e.sentAt.Add(sseKeepAlive))
		waitErr := wait(deadline)
		cancel()
		if !errors.Is(waitErr, context.DeadlineExceeded) || ctx.Err() != nil {
			return waitErr
		}
		onKeepAlive()
		e.sendKeepAlive()
	}
	return e.err
}
