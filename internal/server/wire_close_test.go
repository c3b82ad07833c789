package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// oneConn is a listener of one connection.
type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l oneConn) Close() error   { close(l.done); return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// What was queued before Close reaches the other side, also while another goroutine sends: a
// provider whose token is wrong must read why.
func TestCloseSendsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := oneConn{make(chan net.Conn, 1), make(chan struct{})}
		l.conns <- newConn(ours) // it does not queue, so a write waits for the reader
		var handshakes sync.WaitGroup
		wires := make(chan *wire)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			wires <- &wire{ws: ws, handshakes: &handshakes, closeDone: make(chan struct{})}
		})}
		served := make(chan error)
		go func() { served <- srv.Serve(l) }()
		defer func() {
			_ = srv.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serving: got %v, want %v", err, http.ErrServerClosed)
			}
		}()

		client := &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return theirs, nil
			},
		}}
		dialled := make(chan *websocket.Conn)
		go func() {
			c, _, err := websocket.Dial(t.Context(), "ws://gateway.test/",
				&websocket.DialOptions{HTTPClient: client})
			if err != nil {
				t.Error(err)
			}
			dialled <- c
		}()
		w, c := <-wires, <-dialled
		queue := func(text string) {
			w.enqueue(func(dst []byte) []byte { return append(dst, text...) })
		}
		queue("first")
		go w.Flush()
		synctest.Wait() // it waits for the reader
		queue("second")
		w.Flush()
		w.Close(protocol.ClosePolicy, "bye")
		synctest.Wait()
		for _, want := range []string{"first", "second"} {
			if _, got, err := c.Read(t.Context()); err != nil || string(got) != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(
			err) != websocket.StatusPolicyViolation {
			t.Errorf("after the frames: %v, want %v", err, websocket.StatusPolicyViolation)
		}
		handshakes.Wait()
	})
}
