package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// local is a session with its providers, all in this process. It has no hooks, so the gateway applies the rules.
type local struct {
	g     *gateway.Gateway
	s     *gateway.Session
	peers []*peer
}

func newLocal(o gateway.Options) (*local, error) {
	g := gateway.New(o)
	s, err := g.Register(gateway.SessionSpec{Label: "bench", CWD: "/"},
		gateway.HostInfo{Kind: "local", LiveTools: true}, sessionOnly{})
	if err != nil {
		return nil, err
	}
	return &local{g: g, s: s}, nil
}

// join binds a provider and serves it from a goroutine, the only reader of its connection.
func (l *local) join(p *provider, delay time.Duration) (*peer, error) {
	r := &peer{provider: p, delay: delay, frames: make(chan []byte, 1024), bound: make(chan struct{}),
		acks: make(chan struct{}, 1), failed: make(chan error, 1)}
	r.conn = l.g.Connect(r, gateway.ConnOptions{})
	r.reading.Go(func() {
		for frame := range r.frames {
			r.conn.Receive(frame)
		}
		r.conn.Closed()
	})
	l.peers = append(l.peers, r)
	r.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, l.g.InstanceToken())
	select {
	case <-r.bound:
		return r, nil
	case err := <-r.failed:
		return nil, err
	}
}

// failed returns the first error that a provider has received.
func (l *local) failed() error {
	for _, r := range l.peers {
		select {
		case err := <-r.failed:
			return err
		default:
		}
	}
	return nil
}

func (l *local) close() {
	for _, r := range l.peers {
		close(r.frames)
		r.reading.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l.g.Drain(ctx)
}

// peer is a provider in this process. It answers each call, and its gates allow each call after a delay.
type peer struct {
	provider *provider
	delay    time.Duration
	conn     *gateway.Conn
	frames   chan []byte // what it says
	reading  sync.WaitGroup
	bound    chan struct{}
	acks     chan struct{}
	failed   chan error // the first error message of the gateway
}

// resultTail is the rest of a result's frame after the id.
var resultTail = fmt.Sprintf(`","data":%q}`, toolArgs.result())

// Send implements [gateway.Peer].
func (r *peer) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		// Written by hand, because the peer's time would count as the gateway's.
		answer := append(make([]byte, 0, 256), `{"type":"tool.result","id":"`...)
		r.frames <- append(append(answer, m.ID...), resultTail...)
	case *protocol.GateCheck:
		answer := fmt.Appendf(nil, `{"type":"gate.result","callId":"%s","decision":"allow"}`, m.CallID)
		if r.delay == 0 {
			r.frames <- answer
			return
		}
		time.AfterFunc(r.delay, func() { r.frames <- answer })
	case *protocol.Sessions:
		r.frames <- r.provider.hello(m.Active[0].ID)
	case *protocol.HelloAck:
		close(r.bound)
	case *protocol.Ack:
		r.acks <- struct{}{}
	case *protocol.Error:
		select {
		case r.failed <- m:
		default:
		}
	}
}

// Flush implements [gateway.Peer].
func (r *peer) Flush() {}

// Close implements [gateway.Peer].
func (r *peer) Close(protocol.CloseCode, string) {}

// update sends an update and waits for its ack.
func (r *peer) update(frame []byte) error {
	r.frames <- frame
	select {
	case <-r.acks:
		return nil
	case err := <-r.failed:
		return err
	}
}

// setRules replaces the provider's rules.
func (r *peer) setRules(rules []protocol.Rule) error {
	frame, err := json.Marshal(map[string]any{"type": "hooks.update", "requestId": "rules", "onPreToolUse": rules})
	if err != nil {
		return err
	}
	return r.update(frame)
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // there is always this process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
