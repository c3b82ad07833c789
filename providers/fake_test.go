package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tapgw/internal/taptest"
	"tapgw/providers"
)

// The gateway of some tests matches patterns; the clock of their engine stops by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// patience is how long a test waits for a required message. In a synctest bubble it takes no time.
const patience = 90 * time.Second

// object is a JSON object.
type object = map[string]any

// gateway is a scripted gateway: every connection is a peer that the test
// speaks for.
type gateway struct {
	t     testing.TB
	srv   *http.Server
	url   string
	dials atomic.Int32
	peers chan *peer
	wg    sync.WaitGroup

	mu  sync.Mutex
	all []*peer
}

// testTokens are those that every scripted gateway knows.
var testTokens = []string{"ptk-file", "ptk-given", "ptk-env", "ptk-first", "ptk-second", "ptk-next",
	"ptk-new", "ptk-1", "ext-tok-1"}

// newGateway serves on a loopback port.
func newGateway(t testing.TB) *gateway {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := serveGateway(t, ln)
	g.url = "ws://" + ln.Addr().String()
	return g
}

func serveGateway(t testing.TB, ln net.Listener) *gateway {
	g := &gateway{t: t, peers: make(chan *peer, 64)}
	g.srv = &http.Server{Handler: taptest.Proving(g, testTokens...)}
	g.wg.Go(func() { _ = g.srv.Serve(ln) })
	t.Cleanup(g.stop)
	return g
}

// stop ends the gateway and all its connections, without a word.
func (g *gateway) stop() {
	_ = g.srv.Close()
	g.mu.Lock()
	for _, p := range g.all {
		p.cut()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.dials.Add(1)
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(-1)
	p := &peer{t: g.t, ws: ws, msgs: make(chan object, 4096), freeze: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	g.mu.Lock()
	g.all = append(g.all, p)
	g.wg.Go(p.read)
	g.mu.Unlock()
	g.peers <- p
}

// accept waits for the next connection.
func (g *gateway) accept() *peer {
	g.t.Helper()
	select {
	case p := <-g.peers:
		return p
	case <-time.After(patience):
		g.t.Fatal("no provider connected, want one")
		return nil
	}
}

// peer is the gateway's end of one connection.
type peer struct {
	t      testing.TB
	ws     *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	msgs   chan object // closed when the connection is
	freeze chan struct{}
}

func (p *peer) read() {
	defer close(p.msgs)
	for {
		select {
		case <-p.freeze:
			<-p.ctx.Done()
			return
		default:
		}
		_, data, err := p.ws.Read(p.ctx)
		if err != nil {
			return
		}
		var m object
		if err := json.Unmarshal(data, &m); err != nil {
			p.t.Errorf("provider sent %q: %v", data, err)
			return
		}
		p.msgs <- m
	}
}

// cut ends the connection without a word.
func (p *peer) cut() {
	p.cancel()
	_ = p.ws.CloseNow()
}

// send sends JSON text.
func (p *peer) send(text string) {
	p.t.Helper()
	if err := p.ws.Write(p.ctx, websocket.MessageText, []byte(text)); err != nil {
		p.t.Fatalf("sending %s: %v", text, err)
	}
}

// next returns the next message, which must have this type.
func (p *peer) next(typ string) object {
	p.t.Helper()
	select {
	case m, ok := <-p.msgs:
		if !ok {
			p.t.Fatalf("connection closed, want %s", typ)
		}
		if m["type"] != typ {
			p.t.Fatalf("got %v, want a message of type %s", m, typ)
		}
		return m
	case <-time.After(patience):
		p.t.Fatalf("nothing came in %v, want %s", patience, typ)
		return nil
	}
}

// expect takes the next message and compares it with JSON text.
func (p *peer) expect(text string) {
	p.t.Helper()
	var want object
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		p.t.Fatal(err)
	}
	got := p.next(want["type"].(string))
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Fatalf("message (-want +got):\n%s", diff)
	}
}

// closed waits for the end of the connection.
func (p *peer) closed() {
	p.t.Helper()
	select {
	case m, ok := <-p.msgs:
		if ok {
			p.t.Fatalf("got %v, want the connection to end", m)
		}
	case <-time.After(patience):
		p.t.Fatal("connection still open, want it closed")
	}
}

const oneSession = `{"type":"sessions","active":[{"id":"s1","label":"one","cwd":"/one","foreground":true}]}`

// bind takes a provider through auth and hello to session s1.
func (p *peer) bind() (hello object) {
	p.t.Helper()
	p.next("auth")
	p.send(oneSession)
	hello = p.next("hello")
	p.ack("s1")
	return hello
}

func (p *peer) ack(session string) {
	p.t.Helper()
	p.send(`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"` + session +
		`","reconnectToken":"rt-` + session + `","persistDir":"/var/p/"}`)
}

// home makes an empty home of the gateway's files.
func home(t testing.TB) string {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "extensions", "tap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if t, ok := t.(interface{ Setenv(k, v string) }); ok {
		t.Setenv("COPILOT_HOME", dir)
		t.Setenv("TAP_GATEWAY_URL", "")
		t.Setenv("TAP_PROVIDER_TOKEN", "")
	}
	writeState(t, dir, "gateway.json", `{"url":"ws://gateway.test","pid":1}`)
	return dir
}

// writeState writes one of the gateway's files.
func writeState(t testing.TB, home, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(home, "extensions", "tap", name), []byte(text),
		0o600); err != nil {
		t.Fatal(err)
	}
}

// running is a provider that runs.
type running struct {
	t    testing.TB
	p    *providers.Provider
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
	err  error         // the error that it returned
}

func run(t testing.TB, p *providers.Provider) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, p: p, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(patience):
			t.Error("Run did not return, want it to end with its context")
		}
	})
	return r
}

// wait waits for Run to return.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		r.t.Fatal("Run did not return, want it to end with its context")
		return nil
	}
}

// receive waits for a value.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %v came, want one", reflect.TypeFor[T]())
		panic("not reached")
	}
}

// pass lets time pass, in a bubble.
func pass(d time.Duration) { <-time.After(d) }

var quiet = slog.New(slog.DiscardHandler)

// errorsOf collects the errors that OnError gets.
func errorsOf(o *providers.Options) <-chan error {
	c := make(chan error, 64)
	o.OnError = func(err error) { c <- err }
	return c
}

// codeOf returns the code of a provider error.
func codeOf(err error) providers.Code {
	var e *providers.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

// pipes is a listener whose connections are pipes, for synctest.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial connects, or is refused when the test does not listen.
func (l *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// network is the one address that a provider in a bubble connects to; who
// listens there may change.
type network struct {
	mu       sync.Mutex
	listener *pipes
	last     *gateway
	client   *http.Client
}

func newNetwork() *network {
	n := &network{}
	n.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			n.mu.Lock()
			l := n.listener
			n.mu.Unlock()
			if l == nil {
				return nil, errors.New("connection refused")
			}
			return l.dial(ctx)
		},
		DisableKeepAlives: true,
	}}
	return n
}

// gateway starts a gateway there.
func (n *network) gateway(t testing.TB) *gateway {
	l := newPipes()
	n.mu.Lock()
	n.listener = l
	n.mu.Unlock()
	n.last = serveGateway(t, l)
	return n.last
}

// accept waits for the next connection to the last gateway.
func (n *network) accept(t testing.TB) *peer {
	t.Helper()
	return n.last.accept()
}

// bindAll takes a provider of all sessions through auth and hello.
func (p *peer) bindAll(sessions ...string) (hello object) {
	p.t.Helper()
	p.next("auth")
	p.list("sessions", sessions...)
	hello = p.next("hello")
	p.ackAll(sessions...)
	return hello
}

func (p *peer) ackAll(sessions ...string) {
	p.t.Helper()
	p.ack("all")
	for _, s := range sessions {
		p.started(s)
	}
}

// list sends the list of sessions.
func (p *peer) list(typ string, sessions ...string) {
	p.t.Helper()
	active := []object{}
	for _, s := range sessions {
		active = append(active, object{"id": s, "label": "the " + s, "cwd": "/" + s})
	}
	text, err := json.Marshal(object{"type": typ, "active": active})
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(string(text))
}

// started says that a session is joined, and idle.
func (p *peer) started(session string) {
	p.t.Helper()
	p.send(`{"type":"session.lifecycle","sessionId":"` + session + `","state":"started"}`)
	p.send(`{"type":"session.lifecycle","sessionId":"` + session + `","state":"idle"}`)
}
