package conformance

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// faultyGateway is a real gateway behind a proxy that breaks a rule.
type faultyGateway struct {
	rig   *gatewayRig
	fault *gatewayFault
	pipes *pipes
	http  http.Server

	mu    sync.Mutex
	notes map[string]string // what the fault remembers
}

// gatewayFault says how a proxy changes what passes. A function that is nil changes nothing.
type gatewayFault struct {
	name string
	want []string // the rules that fail

	request func(r *http.Request) // before the connection to the gateway is made
	greet   string                // what each connection gets first
	// toGateway and fromGateway return what to pass on in place of a message.
	toGateway   func(c *proxied, m message) []message
	fromGateway func(c *proxied, m message) []message
	closeCode   func(code websocket.StatusCode) websocket.StatusCode
}

// proxied is one connection through the proxy.
type proxied struct {
	*faultyGateway
	path         string
	kit, gateway *websocket.Conn
	ctx          context.Context
}

func newFaultyGateway(t *testing.T, fault *gatewayFault) *faultyGateway {
	g := &faultyGateway{rig: newGatewayRig(t), fault: fault, pipes: newPipes(), notes: map[string]string{}}
	g.http.Handler = g
	g.rig.serving.Go(func() { _ = g.http.Serve(g.pipes) })
	return g
}

func (g *faultyGateway) stop(t *testing.T) {
	_ = g.http.Close()
	_ = g.pipes.Close()
	g.rig.stop(t)
}

// remember sets a note and returns what it was.
func (g *faultyGateway) remember(key, value string) (before string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.notes[key]
	g.notes[key] = value
	return before
}

// recall returns a note.
func (g *faultyGateway) recall(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.notes[key]
}

func (g *faultyGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.fault.request != nil {
		g.fault.request(r)
	}
	header := http.Header{}
	for _, name := range []string{"Origin", "Tapgw-Prove"} {
		if value := r.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	up, answer, err := g.rig.pipes.dialWebSocket(r.Context(), r.URL.Path, header)
	if answer != nil && answer.Header.Get("Tapgw-Proof") != "" {
		w.Header().Set("Tapgw-Proof", answer.Header.Get("Tapgw-Proof"))
	}
	if err != nil {
		if answer == nil {
			return
		}
		w.WriteHeader(answer.StatusCode)
		return
	}
	r.Header.Del("Origin")
	down, err := websocket.Accept(w, r, nil)
	if err != nil {
		_ = up.CloseNow()
		return
	}
	up.SetReadLimit(-1)
	down.SetReadLimit(-1)
	c := &proxied{faultyGateway: g, path: r.URL.Path, kit: down, gateway: up, ctx: context.Background()}
	if g.fault.greet != "" && c.path == "/" {
		_ = down.Write(c.ctx, websocket.MessageText, []byte(g.fault.greet))
	}
	var pumping sync.WaitGroup
	pumping.Go(func() { c.pump(down, up, g.fault.toGateway, nil) })
	c.pump(up, down, g.fault.fromGateway, g.fault.closeCode)
	pumping.Wait()
}

// pump passes on what comes, and its end.
func (c *proxied) pump(
	from, to *websocket.Conn, change func(*proxied, message) []message,
	closeCode func(websocket.StatusCode) websocket.StatusCode,
) {
	for {
		kind, text, err := from.Read(c.ctx)
		if err != nil {
			code := websocket.CloseStatus(err)
			if closeCode != nil {
				code = closeCode(code)
			}
			if code < 0 {
				_ = to.CloseNow()
			} else {
				_ = to.Close(code, "")
			}
			_ = from.CloseNow()
			return
		}
		m, err := decodeMessage(text[:min(len(text), 8<<20)]) // no fault is about larger ones
		if change == nil || err != nil {
			_ = to.Write(c.ctx, kind, text)
			continue
		}
		before := m.String()
		for _, m := range change(c, m) {
			if after := m.String(); after != before {
				_ = to.Write(c.ctx, kind, []byte(after))
			} else {
				_ = to.Write(c.ctx, kind, text)
			}
		}
	}
}

// on changes the messages of a type; all others pass.
func on(typ string, change func(c *proxied, m message) []message) func(*proxied, message) []message {
	return func(c *proxied, m message) []message {
		if m.text("type") != typ {
			return []message{m}
		}
		return change(c, m)
	}
}

// editing is on for a change that yields one message.
func editing(typ string, edit func(c *proxied, m message)) func(*proxied, message) []message {
	return on(typ, func(c *proxied, m message) []message {
		edit(c, m)
		return []message{m}
	})
}

// without removes a member from the messages of a type.
func without(typ, member string) func(*proxied, message) []message {
	return editing(typ, func(_ *proxied, m message) { delete(m, member) })
}
