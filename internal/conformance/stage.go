package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/chans"
	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// This file is a small gateway's transport: it accepts the provider's connections, proves that it
// knows the token, and reads frames. It judges nothing.

// patience is how long the kit waits for a required message. It is generous, so that a busy machine
// breaks no rule.
const patience = 20 * time.Second

// startPatience is how long the kit waits for a program's connection: a command may compile the
// program first.
const startPatience = time.Minute

// object is a JSON object.
type object = map[string]any

// proving is how a stage answers the question of the protocol's section "Is it your gateway?".
type proving int

const (
	provesToken proving = iota
	provesWrongly
	provesNothing
	refusesToken // 401, as a gateway that has another token
	isAway       // 503, whatever is asked
)

// attempt is one request to connect.
type attempt struct {
	at    time.Time
	asked bool // it asked for a proof
}

// stage is the gateway's place on a loopback port. It accepts connections and leaves all that is
// said on them to its user.
type stage struct {
	// Fixed at creation.
	url    string // ws://HOST:PORT
	tokens []string
	// called by a link's reader with each frame, in order; may be nil
	heard  func(*providerConn, frame)
	links  chan *providerConn
	tried  chan struct{} // has a value after a request to connect
	srv    *http.Server
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the fields that follow
	proof    proving
	attempts []attempt
	closed   bool
}

// listenTCP listens at an address such as 127.0.0.1:0.
func listenTCP(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", address, err)
	}
	return listener, nil
}

// newStage serves a listener. It knows the tokens, and proves so.
func newStage(listener net.Listener, tokens []string, heard func(*providerConn, frame)) *stage {
	s := &stage{
		url: "ws://" + listener.Addr().String(), tokens: tokens, heard: heard,
		links: make(chan *providerConn, 64), tried: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.srv = &http.Server{Handler: s, ReadHeaderTimeout: patience}
	s.wg.Go(func() { _ = s.srv.Serve(listener) })
	return s
}

// close ends the stage and its connections, and waits for its goroutines.
func (s *stage) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	_ = s.srv.Close()
	s.wg.Wait()
}

// setProof changes how the stage answers the next requests.
func (s *stage) setProof(p proving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proof = p
}

// connects returns the requests to connect so far.
func (s *stage) connects() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts)
}

// ServeHTTP accepts a WebSocket at any path.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, nonce, _ := proof.ParseQuestion(r.Header.Get(proof.AskHeader))
	how, open := s.attempt(id != "")
	if !open {
		return
	}
	defer s.wg.Done()
	switch answer := s.answer(r, id, nonce); {
	case how == isAway:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "no place", http.StatusServiceUnavailable)
		return
	case id != "" && (how == refusesToken || answer == ""):
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write(
			[]byte(
				`{"error":{"code":"AUTH_FAILED","message":"this gateway does not know the token"}}`))
		return
	case how == provesToken && answer != "":
		w.Header().Set(proof.AnswerHeader, answer)
	case how == provesWrongly:
		w.Header().Set(proof.AnswerHeader, proof.Answer(proof.KeyOf("another token"), nonce,
			r.Host))
	}
	if r.URL.Path == "/healthz" {
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: []string{"*"}})
	if err != nil {
		return
	}
	l := newProviderConn(s.ctx, ws, s.heard)
	l.stage = s
	select {
	case s.links <- l:
		l.read()
	case <-s.ctx.Done():
		l.cut()
	}
}

// attempt notes a request and returns how to answer it. If the stage is still open, it waits for
// the request's end.
func (s *stage) attempt(asked bool) (how proving, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.proof, false
	}
	s.wg.Add(1)
	s.attempts = append(s.attempts, attempt{time.Now(), asked})
	chans.Wake(s.tried)
	return s.proof, true
}

// answer returns the proof for a question, or "" if the stage does not know the token.
func (s *stage) answer(r *http.Request, id, nonce string) string {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	for _, token := range s.tokens {
		if key := proof.KeyOf(token); proof.ID(key) == id {
			return proof.Answer(key, nonce, proof.Address(address))
		}
	}
	return ""
}

// frame is one frame of a provider.
type frame struct {
	text   bool
	data   []byte
	object object // nil if the frame is no JSON object
}

// typ returns the message's type, or "".
func (f frame) typ() protocol.Type {
	typ, _ := f.object["type"].(string)
	return protocol.Type(typ)
}

// str returns a field that is a text, or "".
func (f frame) str(name string) string {
	text, _ := f.object[name].(string)
	return text
}

// providerConn is the kit's end of one connection: the gateway's, or in a replay against a gateway
// the provider's.
type providerConn struct {
	stage  *stage // that accepted it; nil for a provider's end
	heard  func(*providerConn, frame)
	ws     *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	frames chan frame    // closed when the connection has ended
	over   chan struct{} // closed then too
}

// newProviderConn makes a connection that ends with ctx. The reader calls heard with each frame, in
// order; heard may be nil.
func newProviderConn(
	ctx context.Context, ws *websocket.Conn, heard func(*providerConn, frame),
) *providerConn {
	ws.SetReadLimit(protocol.MaxFrame)
	l := &providerConn{heard: heard, ws: ws, frames: make(chan frame, 8192),
		over: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// read reads the connection until it ends. Frames that no check takes are dropped; a rule that
// watches has seen them.
func (l *providerConn) read() {
	defer close(l.over)
	defer close(l.frames)
	defer l.cut()
	for {
		typ, data, err := l.ws.Read(l.ctx)
		if err != nil {
			return
		}
		f := frame{text: typ == websocket.MessageText, data: data}
		_ = json.Unmarshal(data, &f.object)
		if l.heard != nil {
			l.heard(l, f)
		}
		select {
		case l.frames <- f:
		default:
		}
	}
}

// cut ends the connection without a word.
func (l *providerConn) cut() {
	l.cancel()
	_ = l.ws.CloseNow()
}

// close closes the connection with a code. A recording has 0 for the end that a provider makes.
func (l *providerConn) close(code protocol.CloseCode) {
	status := cmp.Or(websocket.StatusCode(code), websocket.StatusNormalClosure)
	_ = l.ws.Close(status, "")
}

// stream implements [replayPeer].
func (l *providerConn) stream() <-chan frame { return l.frames }

// barrier implements [replayPeer].
func (l *providerConn) barrier(ctx context.Context) { _ = l.ws.Ping(ctx) }

// send sends a text frame. A connection that has ended is no error here: the awaited answer will
// not come.
func (l *providerConn) send(text []byte) { l.write(websocket.MessageText, text) }

// sendBytes sends a binary frame.
func (l *providerConn) sendBytes(data []byte) { l.write(websocket.MessageBinary, data) }

func (l *providerConn) write(typ websocket.MessageType, data []byte) {
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	_ = l.ws.Write(ctx, typ, data)
}

// sendObject sends a message.
func (l *providerConn) sendObject(m object) { l.send(encode(m)) }
