package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"tapgw/internal/link"
	"tapgw/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is a gateway's end that keeps what comes.
type end struct {
	peer          *link.Peer
	inside        atomic.Int32 // that handle a message now
	overlaps      atomic.Int32
	messages      []string // only Receive uses it
	closed        atomic.Int32
	slow, closing atomic.Int32
	faults        []any
}

func (e *end) Receive(data []byte) {
	if e.inside.Add(1) > 1 {
		e.overlaps.Add(1)
	}
	e.messages = append(e.messages, string(data))
	e.inside.Add(-1)
	if string(data) == "panic" {
		panic("broken")
	}
}

func (e *end) Closed() { e.closed.Add(1) }

func connect(limit int) (*link.Conn, *end) {
	e := &end{}
	c := link.Connect(limit, func(p *link.Peer) link.Receiver { e.peer = p; return e },
		link.Ends{
			Slow: func() { e.slow.Add(1) }, Close: func() { e.closing.Add(1) },
			Panic: func(fault any) { e.faults = append(e.faults, fault) },
		})
	return c, e
}

func (e *end) send(text string) {
	e.peer.Send(&protocol.ToolCancel{ID: text})
	e.peer.Flush()
}

// read returns the id of the next message, or its error.
func read(ctx context.Context, c *link.Conn) string {
	_, data, err := c.Read(ctx)
	if err != nil {
		return err.Error()
	}
	var id string
	if err := protocol.Object(data, func(name string, value protocol.Raw) error {
		if name == "id" {
			id, _ = protocol.Text(value)
		}
		return nil
	}); err != nil {
		return err.Error()
	}
	return id
}

func TestMessagesKeepTheirOrder(t *testing.T) {
	c, e := connect(1 << 20)
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range 10_000 {
			e.send(fmt.Sprint(i))
		}
	})
	for i := range 10_000 {
		if got := read(t.Context(), c); got != fmt.Sprint(i) {
			t.Fatalf("message %d: got %q, want its number", i, got)
		}
	}
	sending.Wait()
	if err := c.CloseNow(); err != nil || e.closing.Load() != 1 || e.slow.Load() != 0 {
		t.Errorf("got %v, %d closings, %d slow; want nil, 1, 0", err, e.closing.Load(),
			e.slow.Load())
	}
}

func TestGatewayGetsOneMessageAtATime(t *testing.T) {
	c, e := connect(1 << 20)
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 1000 {
				_ = c.Write(t.Context(), websocket.MessageText, []byte("m"))
			}
		})
	}
	writing.Wait()
	if len(e.messages) != 8000 || e.overlaps.Load() != 0 {
		t.Errorf("got %d messages, %d of them beside another; want 8000 and 0", len(e.messages),
			e.overlaps.Load())
	}
}

func TestEnds(t *testing.T) {
	taken := websocket.CloseError{Code: 4001, Reason: "taken over"}
	for name, test := range map[string]struct {
		end  func(c *link.Conn, e *end)
		want error
	}{
		"by the gateway":  {func(_ *link.Conn, e *end) { e.peer.Close(4001, "taken over") }, taken},
		"by the provider": {func(c *link.Conn, _ *end) { _ = c.Close(1000, "") }, net.ErrClosed},
		"the first counts": {func(c *link.Conn, e *end) {
			e.peer.Close(4001, "taken over")
			e.peer.Close(1001, "going")
			_ = c.CloseNow()
		}, taken},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := connect(1 << 20)
			e.send("before")
			test.end(c, e)
			e.send("after")
			if got := read(t.Context(), c); got != "before" {
				t.Errorf("got %q first, want the message that was sent before", got)
			}
			if _, _, err := c.Read(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if e.closing.Load() != 1 {
				t.Errorf("told %d times of the end, want once", e.closing.Load())
			}
			if err := c.Write(t.Context(), websocket.MessageText, []byte("late")); err != nil {
				t.Errorf("writing after the end: %v, want nil: Read tells why it ended", err)
			}
		})
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	c, _ := connect(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestSlowProviderIsCutOff(t *testing.T) {
	c, e := connect(1000)
	e.send(strings.Repeat("x", 900))
	if e.slow.Load() != 0 {
		t.Fatal("cut off below the limit, want that it goes on")
	}
	e.peer.Send(&protocol.ToolCancel{ID: strings.Repeat("x", 100)})
	if e.slow.Load()+e.closed.Load() != 0 {
		t.Error("Send told of a slow provider, want that Flush does: Send is called under locks")
	}
	e.peer.Flush()
	e.send("after")
	if e.slow.Load() != 1 || e.closing.Load() != 1 || e.closed.Load() != 1 {
		t.Errorf("got %d slow, %d closing, %d closed, want 1 of each", e.slow.Load(),
			e.closing.Load(), e.closed.Load())
	}
	if _, _, err := c.Read(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
}

// A panic of the gateway ends the connection and is told of; the process goes on.
func TestPanicEndsTheConnection(t *testing.T) {
	c, e := connect(1000)
	e.send("before")
	for range 2 {
		if err := c.Write(t.Context(), websocket.MessageText, []byte("panic")); err != nil {
			t.Errorf("Write: %v, want nil: Read says why the connection ended", err)
		}
	}
	if got := read(t.Context(), c); got != "before" {
		t.Errorf("got %q, want what was queued before", got)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(
		err) != websocket.StatusInternalError {
		t.Errorf("got %v, want that the connection ended with %v", err,
			websocket.StatusInternalError)
	}
	if len(e.faults) == 0 || e.faults[0] != "broken" || e.closing.Load() != 1 ||
		e.closed.Load() == 0 {
		t.Errorf("told of %v, %d closing, %d closed; want the fault, 1, and at least 1", e.faults,
			e.closing.Load(), e.closed.Load())
	}
}

func TestDialOf(t *testing.T) {
	if link.DialOf(link.WithDial(t.Context(), nil)) != nil {
		t.Error("got a dial from a context without one, want none")
	}
	dial := func() (*link.Conn, error) { return nil, io.ErrNoProgress }
	got := link.DialOf(link.WithDial(t.Context(), dial))
	if got == nil {
		t.Fatal("got no dial, want the one that was put in")
	}
	if _, err := got(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v, want the error of the dial that was put in", err)
	}
}
