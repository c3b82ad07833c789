package sources

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"tapgw/internal/protocol"
)

// gatewayConn is a source's connection to the gateway, as a provider's: the same messages in the
// same order, without a socket, without a goroutine. Its methods are called in the source's turn,
// but for those of [Peer].
type gatewayConn struct {
	conn Conn

	mu     sync.Mutex // guards inbox and ending
	inbox  []protocol.Message
	ending error // why the gateway closed the connection, nil while it is open

	wake func() // there is something in inbox, or ending is set
}

func connect(g Gateway, token string, wake func()) *gatewayConn {
	l := &gatewayConn{wake: wake}
	l.conn = g.Connect(l)
	l.send(&protocol.Auth{Token: token})
	return l
}

// send gives the gateway a message. Its answers are in the inbox afterwards, or come later.
func (l *gatewayConn) send(m protocol.Message) { l.conn.Receive(protocol.Append(nil, m)) }

func (l *gatewayConn) close() { l.conn.Closed() }

// take returns the messages that have come, and why the connection has ended.
func (l *gatewayConn) take() ([]protocol.Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	messages := l.inbox
	l.inbox = nil
	return messages, l.ending
}

// Send implements [Peer].
func (l *gatewayConn) Send(m protocol.Message) {
	l.mu.Lock()
	l.inbox = append(l.inbox, m)
	l.mu.Unlock()
	l.wake()
}

// Flush implements [Peer].
func (l *gatewayConn) Flush() {}

// Close implements [Peer].
func (l *gatewayConn) Close(code protocol.CloseCode, reason string) {
	l.mu.Lock()
	if l.ending == nil {
		l.ending = fmt.Errorf("the gateway closed the connection: %s (%d)", reason, code)
	}
	l.mu.Unlock()
	l.wake()
}

// binding is the source's view of its sessions.
type binding struct {
	want    string // an id, or "all"
	hello   func() *protocol.Hello
	isBound bool
	here    []string // sessions that the source is bound to, in the order of their start
	idle    []string // those of them that wait for a prompt
}

// receive handles a message of the gateway. It returns the messages that the source itself must
// handle: a receipt or an error of a push, else nil.
func (b *binding) receive(l *gatewayConn, m protocol.Message) (protocol.Message, error) {
	switch m := m.(type) {
	case *protocol.Sessions:
		if len(m.Active) > 0 && !b.isBound {
			l.send(b.hello())
		}
	case *protocol.SessionsUpdated:
		for _, s := range m.Active {
			if b.isBound && b.want == protocol.AllSessions && !slices.Contains(b.here, s.ID) {
				l.send(&protocol.SessionReady{SessionID: s.ID})
			} else if !b.isBound {
				l.send(b.hello())
				break
			}
		}
	case *protocol.HelloAck:
		b.isBound = true
	case *protocol.SessionLifecycle:
		b.lifecycle(l, m)
	case *protocol.Error:
		if m.ReplyTo == protocol.TypeHello || m.ReplyTo == protocol.TypeAuth {
			return nil, errors.New(m.Message)
		}
		return m, nil
	case *protocol.Ack:
		return m, nil
	}
	return nil, nil
}

func (b *binding) lifecycle(l *gatewayConn, m *protocol.SessionLifecycle) {
	switch m.State {
	case protocol.LifecycleStarted:
		if !slices.Contains(b.here, m.SessionID) {
			b.here = append(b.here, m.SessionID)
		}
	case protocol.LifecycleIdle:
		if !slices.Contains(b.idle, m.SessionID) {
			b.idle = append(b.idle, m.SessionID)
		}
	case protocol.LifecycleShutdownPending:
		isIt := func(id string) bool { return id == m.SessionID }
		b.here, b.idle = slices.DeleteFunc(b.here, isIt), slices.DeleteFunc(b.idle, isIt)
		if len(b.here) == 0 && b.want != protocol.AllSessions {
			b.isBound = false
		}
		l.send(&protocol.ShutdownReady{SessionID: m.SessionID})
	}
}
