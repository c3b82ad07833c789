// Package scriptmodel is a model endpoint whose answers come from a Go function. It speaks the
// OpenAI wire (chat completions and responses, streamed or plain, and the model list), also on
// Azure's routes, the Anthropic wire and the Gemini one. The demo and the tests run real agents
// against it, without a network and without an account.
//
// The server records every request, in order, before the function gets it. A reply can wait until a
// test releases it. A client that closes the connection before the end of the reply is noticed.
package scriptmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ModelID is the only model in the endpoint's list. The endpoint answers requests for any other
// model too, and repeats the name that the request gave.
const ModelID = "scripted"

// maxBody bounds a request, in bytes. Conversations with images are the largest.
const maxBody = 64 << 20

// ReplyFunc is a script: it returns the model's reply to a request. It runs on the request's own
// goroutine, several at the same time, so it may block; [Request.Context] ends when the client
// closes the connection.
type ReplyFunc func(*Request) Reply

// Server is a running endpoint. It stores every request in the order of arrival. Its methods may be
// called from any goroutine. Make one with [Start].
type Server struct {
	URL string // base URL, "/v1" included; fixed at start

	http *http.Server
	quit context.CancelFunc
	wg   sync.WaitGroup // the accept loop and the handlers

	mu       sync.Mutex // guards the fields that follow
	closed   bool
	reply    ReplyFunc
	requests []*Request
	arrived  chan struct{} // closed and replaced when a request arrives
}

// Start listens on addr (host:port; port 0 picks a free one) and answers requests with reply, which
// must not be nil. It returns when the endpoint accepts connections. Call [Server.Close] to stop
// it.
func Start(addr string, reply ReplyFunc) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening for the scripted model: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		URL:     "http://" + ln.Addr().String() + "/v1",
		quit:    cancel,
		reply:   reply,
		arrived: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("POST /v1/chat/completions", s.handler(completions))
	mux.HandleFunc("POST /v1/responses", s.handler(responses))
	mux.HandleFunc("POST /v1/messages", s.handler(messages))
	mux.HandleFunc("POST /v1beta/models/{model}", s.handler(gemini))
	// Azure's routes: by deployment and version, and its newer one without.
	mux.HandleFunc("POST /openai/deployments/{deployment}/chat/completions", s.handler(completions))
	mux.HandleFunc("POST /openai/responses", s.handler(responses))
	mux.HandleFunc("POST /openai/v1/chat/completions", s.handler(completions))
	mux.HandleFunc("POST /openai/v1/responses", s.handler(responses))
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	s.wg.Go(func() { _ = s.http.Serve(ln) })
	return s, nil
}

// Root returns the URL without "/v1", the base of the routes of Azure, Anthropic and Gemini.
func (s *Server) Root() string { return strings.TrimSuffix(s.URL, "/v1") }

// Close stops the endpoint, breaks off the replies under way and waits for their handlers. A script
// that ignores [Request.Context] holds it up. It may be called twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.quit()
	_ = s.http.Close()
	s.wg.Wait()
}

// beginRequest counts a handler that begins. It returns false if the server was closed.
func (s *Server) beginRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

// SetReply replaces the script for the requests that arrive from now on. A request whose script
// runs already keeps it.
func (s *Server) SetReply(reply ReplyFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// Requests returns the model requests so far, oldest first. The slice is a copy; the requests are
// the server's own. Requests for the list of models, and malformed ones, are not among them.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

// WaitRequest returns the n-th model request, counted from 1, and waits for it if necessary. The
// error says how many requests came before ctx ended.
func (s *Server) WaitRequest(ctx context.Context, n int) (*Request, error) {
	if n < 1 {
		return nil, fmt.Errorf("waiting for model request %d: requests count from 1", n)
	}
	for {
		s.mu.Lock()
		have, arrived := len(s.requests), s.arrived
		var r *Request
		if have >= n {
			r = s.requests[n-1]
		}
		s.mu.Unlock()
		if r != nil {
			return r, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for model request %d, %d came: %w", n, have, ctx.Err())
		}
	}
}

// ServeCompletions serves one request for chat completions, at any path, for a caller with an HTTP
// server of its own. The request counts and is answered as one of this server's.
func (s *Server) ServeCompletions(w http.ResponseWriter, r *http.Request) {
	s.handler(completions)(w, r)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK,
		object{"object": "list", "data": []any{object{"id": ModelID, "object": "model"}}})
}

// renderFunc writes a reply in one wire format.
type renderFunc func(ctx context.Context, w http.ResponseWriter, r *Request, p Reply) error

// handler records a request, asks the script and writes its reply.
func (s *Server) handler(out renderFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		if !s.beginRequest() {
			return
		}
		defer s.wg.Done()
		body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
		if err != nil {
			writeError(w, http.StatusBadRequest, "reading the body: "+err.Error())
			return
		}
		r, err := newRequest(hr, body)
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		defer close(r.done)
		p := s.record(r)(r)
		err = writeReply(hr.Context(), w, r, p, out)
		if errors.Is(err, errCut) {
			panic(http.ErrAbortHandler)
		}
		// The client did not get the whole reply. A reply that the script cuts off is no abort.
		if err != nil {
			r.aborted.Store(true)
		}
	}
}

// record numbers and stores a request, and returns the function that answers it.
func (s *Server) record(r *Request) ReplyFunc {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.N = len(s.requests) + 1
	s.requests = append(s.requests, r)
	close(s.arrived)
	s.arrived = make(chan struct{})
	return s.reply
}

func writeReply(
	ctx context.Context, w http.ResponseWriter, r *Request, p Reply, out renderFunc,
) error {
	if err := p.waitToBegin(ctx); err != nil {
		return err
	}
	maps.Copy(w.Header(), p.Header)
	if p.Status != 0 && p.Status != http.StatusOK {
		writeError(w, p.Status, p.Text)
		return ctx.Err()
	}
	p.ToolCalls = slices.Clone(p.ToolCalls) // a script may give the same reply to several requests
	for i := range p.ToolCalls {
		if p.ToolCalls[i].ID == "" {
			p.ToolCalls[i].ID = fmt.Sprintf("call_%d_%d", r.N, i+1)
		}
		if p.ToolCalls[i].Args == "" {
			p.ToolCalls[i].Args = "{}"
		}
	}
	if err := out(ctx, w, r, p); err != nil {
		return err
	}
	return ctx.Err()
}

// object is a JSON object under construction.
type object = map[string]any

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, message string) {
	if message == "" {
		message = http.StatusText(status)
	}
	writeJSON(w, status,
		object{"error": object{"message": message, "type": "scripted",
			"code": strconv.Itoa(status)}})
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return &eventWriter{w: w, out: http.NewResponseController(w)}
}

// send writes one event. An empty name leaves out the event line.
func (e *eventWriter) send(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	return e.write(name + "data: " + string(data) + "\n\n")
}

func (e *eventWriter) write(s string) error {
	_, err := io.WriteString(e.w, s)
	return errors.Join(err, e.out.Flush())
}
