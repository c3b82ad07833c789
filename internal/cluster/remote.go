package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// This file sends admin requests to other gateways and serves theirs, so that a command or the page
// can read or change a session on any gateway.

const (
	// window is how many bytes of an answer may be on their way: one who reads slowly must not fill
	// the trunk.
	window = 1 << 20
	// maxRequest bounds the body of a request, as the admin API does.
	maxRequest = protocol.MaxMessage
	// maxServed is how many requests of one gateway run at once.
	maxServed = 64
)

// requestHead begins the data of [opRequest]; a length of 4 bytes stands before it, and the body
// behind it.
type requestHead struct {
	Method      string `json:"method"`
	Path        string `json:"path"` // below the prefix of the admin API
	Query       string `json:"query,omitzero"`
	ContentType string `json:"contentType,omitzero"`
}

// responseHead is the data of [opResponse].
type responseHead struct {
	Status      int    `json:"status"`
	ContentType string `json:"contentType,omitzero"`
}

// errorBody is an error as the admin API answers one.
func errorBody(code protocol.Code, text string) []byte {
	var body adminapi.Error
	body.Error.Code, body.Error.Message = string(code), text
	data, _ := json.Marshal(body) // cannot fail
	return data
}

// cost is the share of the window that a part of an answer takes, with a minimum so that many small
// parts are bounded, too.
func cost(size int) int { return max(size, 4<<10) }

// exchange is a request to another gateway, whose answer comes in parts.
type exchange struct {
	parts chan part     // holds the parts that the window allows, the head and the end
	lost  chan struct{} // closed when the trunk has failed
}

type part struct {
	op   op
	data []byte
}

// Forward lets another gateway answer a request of the admin API, if that allows it. path is below
// the API's prefix.
func (c *Cluster) Forward(w http.ResponseWriter, r *http.Request, name, path string) {
	refuse := func(status int, code protocol.Code, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(errorBody(code, fmt.Sprintf(format, args...)))
	}
	tr := c.trunks[name]
	if tr == nil {
		refuse(http.StatusNotFound, protocol.CodeNotFound,
			"gateway %q is not in admit of [cluster]", name)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil || len(body) > maxRequest {
		refuse(http.StatusRequestEntityTooLarge, protocol.CodePayloadTooLarge,
			"the request is over 2 MiB")
		return
	}
	began := time.Now()
	status := tr.forward(w, r, path, body)
	if status == 0 {
		refuse(http.StatusServiceUnavailable, protocol.CodeDisconnected, "%v", tr.unreachable())
	}
	c.record(adminapi.RemoteSent, name, r.Method, path, status, began)
}

// record writes down a request from one gateway to another, unless it only read.
func (c *Cluster) record(state, name, method, path string, status int, began time.Time) {
	if c.o.Record == nil || method == http.MethodGet {
		return
	}
	outcome := adminapi.OutcomeOK
	if status == 0 || status >= 400 {
		outcome = adminapi.OutcomeFailed
	}
	code := ""
	if status != 0 {
		code = fmt.Sprint(status)
	}
	command := method + " " + path
	c.o.Record(adminapi.Record{TS: time.Now(), Kind: adminapi.RecordRemote, Gateway: name,
		State: state, Command: command[:min(len(command), 1024)], Outcome: outcome, Code: code,
		DurationMs: float64(time.Since(began).Microseconds()) / 1000})
}

// forward sends a request and writes its answer. It returns the status, 0 if nothing was written.
func (tr *trunk) forward(
	w http.ResponseWriter, r *http.Request, path string, body []byte,
) (status int) {
	x := &exchange{parts: make(chan part, window/cost(0)+8), lost: make(chan struct{})}
	tr.mu.Lock()
	if !tr.isUp {
		tr.mu.Unlock()
		return 0
	}
	tr.nextConn++
	id := tr.nextConn
	tr.exchanges[id] = x
	tr.mu.Unlock()
	defer func() {
		tr.mu.Lock()
		delete(tr.exchanges, id)
		tr.mu.Unlock()
	}()
	// cannot fail
	head, _ := json.Marshal(requestHead{r.Method, path, r.URL.RawQuery,
		r.Header.Get("Content-Type")})
	data := appendSize(len(head))
	tr.push(opRequest, id, append(append(data, head...), body...))
	tr.flush()
	for {
		select {
		case p := <-x.parts:
			switch p.op {
			case opResponse:
				var h responseHead
				if json.Unmarshal(p.data, &h) != nil || h.Status < 200 || h.Status > 599 ||
					status != 0 {
					tr.push(opCancel, id, nil)
					return status
				}
				status = h.Status
				w.Header().Set("Content-Type", safeType(h.ContentType))
				w.WriteHeader(status)
			case opBody:
				_, _ = w.Write(p.data) // fails if the client is gone, which ends r's context
				tr.push(opTaken, id, appendSize(cost(len(p.data))))
				tr.flush()
			default: // the end, or of the life of the trunk
				return status
			}
			_ = http.NewResponseController(w).Flush()
		case <-x.lost:
			return status
		case <-r.Context().Done():
			tr.push(opCancel, id, nil)
			tr.flush()
			return max(status, 499)
		}
	}
}

// safeType is the type of an answer of another gateway, which a browser must not take for a page of
// this one.
func safeType(contentType string) string {
	switch contentType {
	case "application/json", "application/x-ndjson", "text/event-stream":
		return contentType
	}
	return "application/octet-stream"
}

// exchanged hands a part of an answer to the goroutine that asked.
func (tr *trunk) exchanged(r record) {
	tr.mu.Lock()
	x := tr.exchanges[r.conn]
	tr.mu.Unlock()
	if x == nil { // it was given up
		return
	}
	select {
	case x.parts <- part{r.op, r.data}:
	default:
		tr.c.count(tr.peer, "answers beyond what is taken")
		tr.push(opCancel, r.conn, nil)
		tr.flush()
	}
}

// served is a request of another gateway that runs here.
type served struct {
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields that follow
	pending int        // bytes that are on their way
	taken   chan struct{}
}

// serve begins to answer a request of the other gateway.
func (tr *trunk) serve(r record) {
	refuse := func(status int, text string) {
		head, _ := json.Marshal(responseHead{status, "application/json"}) // cannot fail
		tr.push(opResponse, r.conn, head)
		tr.push(opBody, r.conn, errorBody(protocol.CodeUnauthorized, text))
		tr.push(opEnd, r.conn, nil)
		tr.flush()
	}
	var head requestHead
	size := 0
	if len(r.data) >= 4 {
		size = int(binary.BigEndian.Uint32(r.data))
	}
	if len(r.data) < 4 || size > len(r.data)-4 || json.Unmarshal(r.data[4:4+size], &head) != nil {
		tr.c.count(tr.peer, "malformed messages")
		return
	}
	if !tr.mayControl || tr.c.o.API == nil {
		tr.c.count(tr.peer, "requests that it may not make")
		tr.c.record(adminapi.RemoteServed, tr.peer, head.Method, head.Path, http.StatusForbidden,
			time.Now())
		refuse(http.StatusForbidden, fmt.Sprintf(
			"gateway %q may not do this on %q: control of [cluster] there says who may", tr.peer,
			tr.c.name))
		return
	}
	ctx, cancel := context.WithCancel(tr.c.ctx)
	request, err := http.NewRequestWithContext(ctx, head.Method, "http://cluster",
		bytes.NewReader(r.data[4+size:]))
	if err == nil {
		request.URL, err = parseTarget(head)
	}
	if err != nil {
		cancel()
		tr.c.count(tr.peer, "malformed messages")
		refuse(http.StatusBadRequest, "the request is malformed")
		return
	}
	s := &served{cancel: cancel, taken: make(chan struct{}, 1)}
	tr.mu.Lock()
	_, isUsed := tr.served[r.conn]
	isFull := len(tr.served) >= maxServed
	if !isUsed && !isFull {
		tr.served[r.conn] = s
	}
	tr.mu.Unlock()
	if isUsed || isFull {
		cancel()
		tr.c.count(tr.peer, "requests beyond those that run")
		refuse(http.StatusTooManyRequests, "too many requests of this gateway run")
		return
	}
	request.Header.Set("Content-Type", head.ContentType)
	tr.c.begin(func() {
		defer cancel()
		began := time.Now()
		w := &responseWriter{tr: tr, id: r.conn, s: s, ctx: ctx, header: http.Header{}}
		tr.c.o.API.ServeHTTP(w, request)
		w.WriteHeader(http.StatusOK)
		tr.push(opEnd, r.conn, nil)
		tr.flush()
		tr.mu.Lock()
		delete(tr.served, r.conn)
		tr.mu.Unlock()
		tr.c.record(adminapi.RemoteServed, tr.peer, head.Method, head.Path, w.status, began)
	})
}

// parseTarget parses the path and the query of a request below the API's prefix. The path is raw,
// as in a request line: a "?" in it begins no query, and a "#" is a character as any other.
func parseTarget(head requestHead) (*url.URL, error) {
	target, err := url.ParseRequestURI(adminapi.Prefix + head.Path)
	if err == nil && (!strings.HasPrefix(head.Path, "/") || strings.Contains(head.Path, "?")) {
		err = fmt.Errorf("the path %q is malformed", head.Path)
	}
	if err != nil {
		return nil, err
	}
	target.Scheme, target.Host, target.RawQuery = "http", "cluster", head.Query
	return target, nil
}

// control handles a record of the other gateway about a request that runs here.
func (tr *trunk) control(r record) {
	tr.mu.Lock()
	s := tr.served[r.conn]
	tr.mu.Unlock()
	switch {
	case s == nil: // it has ended meanwhile
	case r.op == opCancel:
		s.cancel()
	case len(r.data) == 4:
		s.mu.Lock()
		s.pending -= int(binary.BigEndian.Uint32(r.data))
		s.mu.Unlock()
		chans.Wake(s.taken)
	default:
		tr.c.count(tr.peer, "malformed messages")
	}
}

// responseWriter sends an answer over the trunk.
type responseWriter struct {
	tr     *trunk
	id     uint64
	s      *served
	ctx    context.Context
	header http.Header
	status int
}

// Header implements [http.ResponseWriter].
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *responseWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	head, _ := json.Marshal(responseHead{status, w.header.Get("Content-Type")}) // cannot fail
	w.tr.push(opResponse, w.id, head)
}

// Write implements [http.ResponseWriter]. It waits while too much is on its way.
func (w *responseWriter) Write(data []byte) (n int, err error) {
	w.WriteHeader(http.StatusOK)
	for len(data) > 0 {
		chunk := data[:min(len(data), maxBatch)]
		if err := w.wait(cost(len(chunk))); err != nil {
			return n, err
		}
		if !w.tr.push(opBody, w.id, bytes.Clone(chunk)) {
			return n, w.tr.unreachable()
		}
		w.tr.flush()
		n, data = n+len(chunk), data[len(chunk):]
	}
	return n, nil
}

// wait waits until the window has room for size bytes.
func (w *responseWriter) wait(size int) error {
	for {
		w.s.mu.Lock()
		if w.s.pending+size <= window {
			w.s.pending += size
			w.s.mu.Unlock()
			return nil
		}
		w.s.mu.Unlock()
		w.tr.flush()
		select {
		case <-w.s.taken:
		case <-w.ctx.Done():
			return errors.New("the request was given up")
		}
	}
}

// Flush implements [http.Flusher].
func (w *responseWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	w.tr.flush()
}
