package providers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	domain "tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// stormCalls ends 10,000 calls in flight of the tool slow by time-outs and by their callers.
func stormCalls(t *testing.T, s *session) {
	t.Helper()
	const n = 10_000
	codes := make(chan protocol.Code, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			call := domain.Call{Name: "slow", Args: protocol.Raw("{}")}
			after := time.Duration(i%500+1) * time.Millisecond
			if i%2 == 0 {
				defer time.AfterFunc(after, cancel).Stop()
			} else {
				call.Timeout = after
			}
			o := s.CallTool(ctx, call)
			if strings.Contains(o.Error, "answered a call that nobody made") {
				o.ErrorCode = "FORGOTTEN"
			}
			codes <- o.ErrorCode
		})
	}
	wg.Wait()
	close(codes)
	got := map[protocol.Code]int{}
	for code := range codes {
		got[code]++
	}
	// The gateway remembers 1024 ended calls. If more answers are late, the only other call of the
	// provider ends, or with several the provider has to connect anew, and calls that begin
	// meanwhile find no tool. One that a busy machine lets rest for five seconds meanwhile is
	// denied, since the rules could have changed again and again.
	allowed :=
		got["TIMEOUT"] + got["CANCELLED"] + got["DISCONNECTED"] + got["NOT_FOUND"] +
			got["FORGOTTEN"] +
			got["DENIED"]
	if allowed != n || got["TIMEOUT"] == 0 || got["CANCELLED"] == 0 {
		t.Errorf("the calls ended with %v, want %d of which some are TIMEOUT and some CANCELLED",
			got, n)
	}
}

// Each function of a call ends, and the provider goes on, after 10,000 calls whose caller has left.
func TestStorm(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	var running atomic.Int64
	slow := fixed("slow", nil, nil)
	slow.Handler = func(ctx context.Context, _ json.RawMessage) (any, error) {
		running.Add(1)
		defer running.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, r := w.provider("storm", providers.Options{}, func(p *providers.Provider) {
		must[uint64](t)(p.AddTool(t.Context(), slow))
		must[uint64](t)(p.AddTool(t.Context(), fixed("echo", "still here", nil)))
	})
	stormCalls(t, s)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for s.call(t, "echo", `{}`) != "still here" || running.Load() != 0 {
		select {
		case <-tick.C: // it comes back, and its functions end
		case <-late:
			t.Fatalf("after the storm echo says %q and %d functions run, want its text and none",
				s.call(t, "echo", `{}`), running.Load())
		}
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("the provider ended with %v, want success", err)
	}
}

// cutting is a listener whose connections send left more bytes in all. Then the one that sends is
// cut in the middle, and later ones are whole.
type cutting struct {
	net.Listener
	left atomic.Int64 // less than 0: no limit
}

func (l *cutting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &cutConn{c, l}, err
}

type cutConn struct {
	net.Conn
	l *cutting
}

func (c *cutConn) Write(p []byte) (int, error) {
	left := c.l.left.Load()
	if left < 0 || int64(len(p)) <= left {
		if left >= 0 {
			c.l.left.Add(-int64(len(p)))
		}
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:left])
	c.l.left.Store(-1)
	_ = c.Conn.Close()
	return n, net.ErrClosed
}

// A gateway that goes away in the middle of anything is no more than a lost connection.
func TestCutAtEveryByte(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		l := newPipes()
		n.listener = l
		cut := &cutting{Listener: l}
		cut.left.Store(-1)
		g := serveGateway(t, cut)
		p := providers.New("sample", n.options(providers.Options{}))
		must[uint64](t)(p.AddTool(t.Context(), fixed("echo", "still here", nil)))
		r := run(t, p)

		peers := make(chan *peer, 1)
		var serving sync.WaitGroup
		defer serving.Wait()
		var calls atomic.Int64
		answers := make(chan string, 64)
		serving.Go(func() { // until the gateway stops
			for peer := range g.peers {
				select {
				case <-peers: // one that was cut
				default:
				}
				peers <- peer
				serving.Go(func() { serveOnce(peer, &calls, answers) })
			}
		})
		defer close(g.peers)
		defer r.stop()

		answered := map[string]bool{receive(t, answers): true}
		last := receive(t, peers)
		for at := int64(0); ; at++ {
			cut.left.Store(at)
			last.cut()
			if got := receive(t, answers); answered[got] {
				t.Fatalf("cut after %d bytes: %q came twice, want one answer of each call", at, got)
			} else {
				answered[got] = true
			}
			last = receive(t, peers)
			if cut.left.Load() >= 0 {
				if at < 500 {
					t.Errorf("a connection took %d bytes, want a whole handshake", at)
				}
				return
			}
			if testing.Short() {
				at += 30
			}
		}
	})
}

// serveOnce takes a provider to a session, calls its tool, and sends the tool's answer to answers.
// Messages that can't be sent are lost with the connection.
func serveOnce(p *peer, calls *atomic.Int64, answers chan<- string) {
	send := func(text string) { _ = p.ws.Write(p.ctx, websocket.MessageText, []byte(text)) }
	for m := range p.msgs {
		switch m["type"] {
		case "auth":
			send(oneSession)
		case "hello":
			send(
				`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1","reconnectToken":"rt-1"}`)
			send(
				fmt.Sprintf(
					`{"type":"tool.call","id":"c%d","sessionId":"s1","tool":"echo","args":{}}`,
					calls.Add(1)))
		case "tool.result":
			answers <- fmt.Sprintf("%v %v", m["id"], m["data"])
		}
	}
}

// A provider is back within a second of its gateway's return, however long that was away.
func TestBackWithinASecond(t *testing.T) {
	for _, away := range []time.Duration{10 * time.Millisecond, time.Minute, 24 * time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				run(t, providers.New("sample", n.options(providers.Options{})))
				g.accept().bind()
				g.stop()
				pass(away)
				start := time.Now()
				n.gateway(t).accept().next("auth")
				if took := time.Since(start); took > time.Second {
					t.Errorf("it came back after %v, want a second at most", took)
				}
			})
		})
	}
}
