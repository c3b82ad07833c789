package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// pageStreamsPath is where the page has its streams: one WebSocket carries the answers to all GET
// requests of the admin API that do not end by themselves. A browser has six connections to a
// server for all its tabs, and WebSockets don't count.
//
// The page sends {"stream": N, "path": "/sessions/…/events", "lastEventId": "…"} to begin one, with
// a number of its own, and {"stream": N} to end it. The gateway answers {"stream": N, "status":
// 200}, binary messages of four bytes with the number, big-endian, and the bytes of the answer
// after it, and {"stream": N, "ended": true}.
//
// First the page sends {"challenge": ""} and gets {"key": HEX}. After a lost connection another
// program may have the port. So the page then sends {"challenge": TEXT}, and goes on only if
// {"proof": HEX} is the HMAC-SHA256 of the text with that key: only the same gateway, or one that
// took over from it, has the key.
const pageStreamsPath = "/page/streams"

const (
	maxPageStreams = 16      // of one page
	maxPageRequest = 8 << 10 // bytes
)

// pageRequest begins a stream, or ends one if it has no path; with a challenge it asks the gateway
// to prove its identity.
type pageRequest struct {
	Challenge   *string `json:"challenge"`
	Stream      uint32  `json:"stream"`
	Path        string  `json:"path"` // below the prefix of the admin API
	LastEventID string  `json:"lastEventId"`
}

// pageAnswer tells of the beginning or the end of a stream.
type pageAnswer struct {
	Stream uint32 `json:"stream"`
	Status int    `json:"status,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
}

// pageProof answers a challenge, in hexadecimal digits.
type pageProof struct {
	Key   string `json:"key,omitempty"`
	Proof string `json:"proof,omitempty"`
}

// pageStreams are the streams of one page.
type pageStreams struct {
	s       *Server
	ws      *websocket.Conn
	request *http.Request
	ctx     context.Context // of the connection
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards open
	open map[uint32]context.CancelFunc
}

// servePageStreams serves the streams of a page until it closes the connection, is signed out, or
// the gateway's sessions have ended at its shutdown.
func (s *Server) servePageStreams(w http.ResponseWriter, r *http.Request) {
	if !requireUpgrade(w, r, "the page connects by WebSocket") {
		return
	}
	ws, err := websocket.Accept(w, r,
		&websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxPageRequest)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.mcpContext, cancel)()
	p := &pageStreams{s: s, ws: ws, request: r, ctx: ctx, cancel: cancel,
		open: map[uint32]context.CancelFunc{}}
	defer p.running.Wait()
	defer cancel()
	for {
		kind, text, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var request pageRequest
		if kind != websocket.MessageText || json.Unmarshal(text, &request) != nil {
			_ = ws.Close(websocket.StatusUnsupportedData,
				"a request is a JSON object in a text message")
			return
		}
		p.handle(request)
	}
}

// handle begins or ends a stream.
func (p *pageStreams) handle(request pageRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, isOpen := p.open[request.Stream]
	switch {
	case request.Challenge != nil:
		p.running.Go(func() { p.tell(p.s.provePage(*request.Challenge)) })
		return
	case request.Path == "":
		if isOpen {
			end()
		}
		return
	case isOpen || len(p.open) >= maxPageStreams:
		p.running.Go(func() {
			p.tell(pageAnswer{Stream: request.Stream, Status: http.StatusTooManyRequests})
			p.tell(pageAnswer{Stream: request.Stream, Ended: true})
		})
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.open[request.Stream] = cancel
	p.running.Go(func() {
		p.serve(ctx, request)
		cancel()
		p.mu.Lock()
		delete(p.open, request.Stream)
		p.mu.Unlock()
		p.tell(pageAnswer{Stream: request.Stream, Ended: true})
	})
}

// serve answers one request, as the admin API answers a GET of this page.
func (p *pageStreams) serve(ctx context.Context, request pageRequest) {
	w := &pageStream{p: p, number: request.Stream, header: http.Header{}}
	at, err := url.ParseRequestURI(apiPrefix + request.Path)
	if err != nil {
		fail(w, http.StatusBadRequest, "INVALID_ARGUMENTS", fmt.Sprintf("path: %v", err))
		return
	}
	r := p.request.Clone(ctx)
	r.URL, r.RequestURI = at, at.RequestURI()
	r.Header = http.Header{}
	if request.LastEventID != "" {
		r.Header.Set("Last-Event-ID", request.LastEventID)
	}
	p.s.api.ServeHTTP(w, r)
}

// provePage shows a page that this is its gateway, or how it will show so later.
func (s *Server) provePage(challenge string) pageProof {
	if challenge == "" {
		return pageProof{Key: hex.EncodeToString(s.pageKey)}
	}
	mac := hmac.New(sha256.New, s.pageKey)
	_, _ = mac.Write([]byte(challenge)) // never fails
	return pageProof{Proof: hex.EncodeToString(mac.Sum(nil))}
}

// tell sends an answer about a stream, or about the gateway.
func (p *pageStreams) tell(answer any) {
	text, err := json.Marshal(answer)
	if err == nil {
		_ = p.write(websocket.MessageText, text)
	}
}

// write sends a message. A page that takes nothing for writeDeadline loses the connection.
func (p *pageStreams) write(kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(p.ctx, writeDeadline)
	defer cancel()
	err := p.ws.Write(ctx, kind, message)
	if err != nil {
		p.cancel()
	}
	return err
}

// pageStream is the answer to one request.
type pageStream struct {
	p        *pageStreams
	number   uint32
	header   http.Header
	hasBegun bool
}

func (w *pageStream) Header() http.Header { return w.header }

func (w *pageStream) WriteHeader(status int) {
	if w.hasBegun {
		return
	}
	w.hasBegun = true
	w.p.tell(pageAnswer{Stream: w.number, Status: status})
}

func (w *pageStream) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	message := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), w.number)
	if err := w.p.write(websocket.MessageBinary, append(message, b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// FlushError does nothing, for [http.ResponseController]: each Write is a message.
func (w *pageStream) FlushError() error { return nil }

// SetWriteDeadline does nothing: each message has its own deadline.
func (w *pageStream) SetWriteDeadline(time.Time) error { return nil }
