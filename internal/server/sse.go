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
	w   http.ResponseWriter
	out *http.ResponseController
	b   bytes.Buffer
	at  time.Time // of the last send
	err error     // the reader is gone
}

// newSSE begins a stream. A reader whose connection ends is to come back after a
// second.
func newSSE(w http.ResponseWriter, r *http.Request) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	e := &sse{w: w, out: http.NewResponseController(w)}
	if r.Method == http.MethodHead {
		e.err = http.ErrBodyNotAllowed
	}
	e.b.WriteString("retry: 1000\n\n")
	e.send()
	return e
}

// add adds an event. The id comes last: who is cut off before it has not had the
// event.
func (e *sse) add(name, id string, data any) {
	if e.err != nil {
		return
	}
	e.b.WriteString("event: ")
	e.b.WriteString(name)
	e.b.WriteString("\ndata: ")
	if e.err = apiEncode(&e.b, data); e.err != nil { // it ends the line
		return
	}
	e.b.WriteString("id: ")
	e.b.WriteString(id)
	e.b.WriteString("\n\n")
	if e.b.Len() >= writeChunk {
		e.send()
	}
}

// alive says that there is no news.
func (e *sse) alive() {
	e.b.WriteString(":\n\n")
	e.send()
}

// send writes what was added.
func (e *sse) send() {
	if e.b.Len() == 0 {
		return
	}
	e.at = time.Now()
	for e.err == nil && e.b.Len() > 0 {
		_ = e.out.SetWriteDeadline(time.Now().Add(writeDeadline)) // pipes and the like have none
		_, e.err = e.w.Write(e.b.Next(writeChunk))
	}
	if e.err == nil {
		e.err = e.out.Flush()
	}
	e.b.Reset()
	if e.b.Cap() > 2*writeChunk { // one long event need not stay
		e.b = bytes.Buffer{}
	}
}

// end lets the connection serve other requests.
func (e *sse) end() { _ = e.out.SetWriteDeadline(time.Time{}) }

// waiting calls wait until it returns; meanwhile the reader and alive hear from
// time to time that it goes on. The error is wait's, or why there is nobody to
// wait for.
func (e *sse) waiting(ctx context.Context, alive func(), wait func(context.Context) error) error {
	for e.err == nil {
		patience, cancel := context.WithDeadline(ctx, e.at.Add(sseKeepAlive))
		err := wait(patience)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		alive()
		e.alive()
	}
	return e.err
}
