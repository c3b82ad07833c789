package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// echoPeer is a provider in process: it answers each call with a tool.result
// from a goroutine of its own, the connection's one reader.
type echoPeer struct {
	frames chan []byte
	ack    chan struct{}
}

func (p *echoPeer) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		p.frames <- fmt.Appendf(make([]byte, 0, 256), `{"type":"tool.result","id":"%s","data":%q}`, m.ID, "the quick brown fox jumps over the lazy dog, and comes back")
	case *protocol.Sessions:
		p.frames <- (&provider{name: "local", tools: 1}).hello(m.Active[0].ID)
	case *protocol.HelloAck:
		close(p.ack)
	}
}
func (p *echoPeer) Flush()                           {}
func (p *echoPeer) Close(protocol.CloseCode, string) {}

// inProcess is a session with one provider, both in this process.
func inProcess(tb testing.TB) *gateway.Session {
	tb.Helper()
	g := gateway.New(gateway.Options{})
	s, err := g.Register(gateway.SessionSpec{Label: "bench", CWD: "/"}, gateway.HostInfo{Kind: "local"}, sessionOnly{})
	if err != nil {
		tb.Fatal(err)
	}
	p := &echoPeer{frames: make(chan []byte, 1024), ack: make(chan struct{})}
	conn := g.Connect(p, gateway.ConnOptions{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for frame := range p.frames {
			conn.Receive(frame)
		}
		conn.Closed()
	}()
	p.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, g.InstanceToken())
	<-p.ack
	tb.Cleanup(func() {
		close(p.frames)
		<-read
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		g.Drain(ctx)
	})
	return s
}

func TestCallDirectly(t *testing.T) {
	s := inProcess(t)
	if err := callDirectly(t.Context(), s, 0); err != nil {
		t.Error(err)
	}
	if err := callDirectly(t.Context(), s, 1); err == nil {
		t.Error("a tool that nobody has was called")
	}
}

// BenchmarkCallTool is the routing core: schema checked, the result's frame
// read from JSON, no socket.
func BenchmarkCallTool(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := inProcess(b)
			ctx := b.Context()
			b.ReportAllocs()
			l := load(workers, max(b.N, 1), 1, func(k int) error { return callDirectly(ctx, s, k) })
			if l.Error != "" {
				b.Fatal(l.Error)
			}
			b.ReportMetric(perSecond(l), "calls/s")
		})
	}
}
