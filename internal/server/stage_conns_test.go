package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
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
	l := &linkSender{}
	l.Conn = link.Connect(8<<20, func(p *link.Peer) link.Receiver {
		l.peer, l.gateway = p, s.connection(p, gateway.ConnOptions{ForeignOrigin: foreign})
		return l.gateway
	}, link.Ends{
		Slow:  func() { s.t.Errorf("%s is slow", name) },
		Panic: func(fault any) { panic(fault) },
		Close: func() {},
	})
	s.conns[name] = l
	s.serving.Go(func() { s.follow(name, l) })
	return nil
}

// linkSender is a provider in this process.
type linkSender struct {
	*link.Conn
	peer    *link.Peer
	gateway server.ProviderConn
}

// send does what the WebSocket does with frames that no provider of this process sends.
func (l *linkSender) send(text []byte) {
	switch {
	case len(text) > protocol.MaxFrame:
		l.peer.Close(protocol.CloseTooBig, "the frame is over 16 MiB")
		l.gateway.Closed()
	case len(text) > protocol.MaxResult:
		l.gateway.ReceiveOversized(text[:protocol.MaxResult], len(text))
	default:
		_ = l.Write(context.Background(), websocket.MessageText, text)
	}
}

func (l *linkSender) binary(text []byte) {
	if len(text) > 0 {
		l.send(text)
		return
	}
	l.gateway.ReceiveBinary(0)
}

func (l *linkSender) hangUp() { _ = l.CloseNow() }

// reader is the reading side of a connection, over a WebSocket or in this process.
type reader interface {
	Read(ctx context.Context) (websocket.MessageType, []byte, error)
	CloseNow() error
}

// follow emits what comes until the connection ends.
func (s *stage) follow(name string, from reader) {
	for {
		_, data, err := from.Read(context.Background())
		if err != nil {
			if ce, ok := errors.AsType[websocket.CloseError](err); ok {
				s.emit(name, fmt.Sprintf("%s<close %d %s", name, ce.Code, ce.Reason))
			}
			_ = from.CloseNow()
			return
		}
		s.emit(name, name+"< "+string(data))
	}
}

// dial connects over a real WebSocket.
func (s *stage) dial(name, path string, header http.Header) error {
	client := &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial,
		DisableKeepAlives: true}}
	ws, _, err := websocket.Dial(s.ctx, "ws://127.0.0.1"+path,
		&websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
	if err != nil {
		return err
	}
	ws.SetReadLimit(-1)
	s.conns[name] = wsSender{s, ws}
	s.serving.Go(func() { s.follow(name, ws) })
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
