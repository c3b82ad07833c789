package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"
)

// sseKeepAlive is how often a stream of events without news says that it lives.
const sseKeepAlive = 15 * time.Second

// sse writes a stream of server-sent events. One whose reader takes nothing for
// too long ends; what waits to be written is at most what was added since the
// last send.
type sse struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	buffer     bytes.Buffer
	sentAt     time.Time // of the last send
	err        error     // the reader is gone
}

// newSSE begins a stream. A reader whose connection ends is to come back after a
// second.
func newSSE(w http.ResponseWriter, r *http.Request) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	e := &sse{w: w, controller: http.NewResponseController(w)}
	if r.Method == http.MethodHead {
		e.err = http.ErrBodyNotAllowed
	}
	e.buffer.WriteString("retry: 1000\n\n")
	e.send()
	return e
}

// add adds an event. The id comes last: who is cut off before it has not had the
// event.
func (e *sse) add(name, id string, data any) {
	if e.err != nil {
		return
	}
	e.buffer.WriteString("event: ")
	e.buffer.WriteString(name)
	e.buffer.WriteString("\ndata: ")
	if e.err = apiEncode(&e.buffer, data); e.err != nil { // it ends the line
		return
	}
	e.buffer.WriteString("id: ")
	e.buffer.WriteString(id)
	e.buffer.WriteString("\n\n")
	if e.buffer.Len() >= writeChunk {
		e.send()
	}
}

// alive says that there is no news.
func (e *sse) sendKeepAlive() {
	e.buffer.WriteString(":\n\n")
	e.send()
}

// send writes what was added.
func (e *sse) send() {
	if e.buffer.Len() == 0 {
		return
	}
	e.sentAt = time.Now()
	for e.err == nil && e.buffer.Len() > 0 {
		_ = e.controller.SetWriteDeadline(time.Now().Add(writeDeadline)) // pipes and the like have none
		_, e.err = e.w.Write(e.buffer.Next(writeChunk))
	}
	if e.err == nil {
		e.err = e.controller.Flush()
	}
	e.buffer.Reset()
	if e.buffer.Cap() > 2*writeChunk { // one long event need not stay
		e.buffer = bytes.Buffer{}
	}
}

// end lets the connection serve other requests.
func (e *sse) clearDeadline() { _ = e.controller.SetWriteDeadline(time.Time{}) }

// waiting calls wait until it returns; meanwhile the reader and alive hear from
// time to time that it goes on. The error is wait's, or why there is nobody to
// wait for.
func (e *sse) waitWithKeepAlive(ctx context.Context, onKeepAlive func(), wait func(context.Context) error) error {
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
