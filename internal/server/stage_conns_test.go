package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// sender is the provider's end of a connection.
type sender interface {
	send(text []byte)
	binary(text []byte) // none: what is no UTF-8
	hangUp()
}

func (s *stage) connect(name string, foreign bool) error {
	if s.transport == "websocket" {
		var header http.Header
		if foreign {
			header = http.Header{"Origin": {"https://elsewhere.example"}}
		}
		return s.dial(name, "/", header)
	}
	p := &memoryPeer{stage: s, name: name}
	p.conn = s.gateway.Connect(p, gateway.ConnOptions{ForeignOrigin: foreign})
	s.conns[name] = p
	return nil
}

// memoryPeer is a provider in this process: what the WebSocket does is left out.
type memoryPeer struct {
	stage  *stage
	name   string
	conn   *gateway.Conn
	closed atomic.Bool
}

func (p *memoryPeer) Send(m protocol.Message) {
	if !p.closed.Load() {
		p.stage.emit(p.name, p.name+"< "+string(protocol.Append(nil, m)))
	}
}

func (p *memoryPeer) Flush() {}

func (p *memoryPeer) Close(code protocol.CloseCode, reason string) {
	if p.closed.CompareAndSwap(false, true) {
		p.stage.emit(p.name, fmt.Sprintf("%s<close %d %s", p.name, code, reason))
	}
}

func (p *memoryPeer) send(text []byte) {
	switch {
	case p.closed.Load():
	case len(text) > protocol.MaxFrame:
		p.Close(protocol.CloseTooBig, "the frame is over 16 MiB")
		p.conn.Closed()
	case len(text) > protocol.MaxResult:
		p.conn.ReceiveOversized(text[:protocol.MaxResult], len(text))
	default:
		p.conn.Receive(text)
	}
}

func (p *memoryPeer) binary(text []byte) {
	if len(text) > 0 {
		p.send(text)
		return
	}
	p.conn.ReceiveBinary(0)
}

func (p *memoryPeer) hangUp() {
	p.closed.Store(true)
	p.conn.Closed()
}

// dial connects over a real WebSocket.
func (s *stage) dial(name, path string, header http.Header) error {
	client := &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial, DisableKeepAlives: true}}
	ws, _, err := websocket.Dial(s.ctx, "ws://127.0.0.1"+path,
		&websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
	if err != nil {
		return err
	}
	ws.SetReadLimit(-1)
	s.conns[name] = wsSender{s, ws}
	s.serving.Go(func() {
		for {
			_, data, err := ws.Read(context.Background())
			if err != nil {
				if ce, ok := errors.AsType[websocket.CloseError](err); ok {
					s.emit(name, fmt.Sprintf("%s<close %d %s", name, ce.Code, ce.Reason))
				}
				_ = ws.CloseNow()
				return
			}
			s.emit(name, name+"< "+string(data))
		}
	})
	return nil
}

type wsSender struct {
	stage *stage
	ws    *websocket.Conn
}

func (c wsSender) send(text []byte) { _ = c.ws.Write(c.stage.ctx, websocket.MessageText, text) }

func (c wsSender) hangUp() { _ = c.ws.CloseNow() }

func (c wsSender) binary(text []byte) {
	if len(text) == 0 {
		text = []byte{0xff, 2}
	}
	_ = c.ws.Write(c.stage.ctx, websocket.MessageBinary, text)
}

// pipeListener accepts connections in memory, which a bubble's clock can wait for.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}
