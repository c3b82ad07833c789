// Package membus is a bus for gateways of one process. Its goroutines wait for nothing but its
// messages, so the clock of a bubble goes on.
package membus

import (
	"slices"
	"strings"
	"sync"

	"tapgw/internal/chans"
)

// Bus carries messages between the gateways of a test.
type Bus struct {
	limit int

	mu   sync.Mutex // guards the fields that follow
	subs map[string]*subscription
	cuts map[[2]string]bool // pairs of gateways whose messages are lost
}

type subscription struct {
	wake, stop chan struct{}

	mu    sync.Mutex // guards queue
	queue []message
}

type message struct {
	data     []byte
	isUnread bool
}

// New makes a bus whose messages have at most limit bytes.
func New(limit int) *Bus {
	return &Bus{limit: limit, subs: map[string]*subscription{}, cuts: map[[2]string]bool{}}
}

// MaxPayload implements cluster.Bus.
func (b *Bus) MaxPayload() int { return b.limit }

// Publish implements cluster.Bus.
func (b *Bus) Publish(subject, reply string, data []byte) error {
	parts := strings.Split(subject, ".")
	b.mu.Lock()
	to, back := b.subs[subject], b.subs[reply]
	isLost := len(parts) > 2 && b.cuts[pair(parts[1], parts[2])]
	b.mu.Unlock()
	switch {
	case isLost:
	case to != nil:
		to.add(message{data: slices.Clone(data)})
	case back != nil:
		back.add(message{isUnread: true})
	}
	return nil
}

func (s *subscription) add(m message) {
	s.mu.Lock()
	s.queue = append(s.queue, m)
	s.mu.Unlock()
	chans.Wake(s.wake)
}

func (s *subscription) take() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// Subscribe implements cluster.Bus.
func (b *Bus) Subscribe(
	subject string, handle func(data []byte, isUnread bool),
) (stop func(), err error) {
	s := &subscription{wake: make(chan struct{}, 1), stop: make(chan struct{})}
	b.mu.Lock()
	b.subs[subject] = s
	b.mu.Unlock()
	go func() {
		for {
			select {
			case <-s.wake:
			case <-s.stop:
				return
			}
			for _, m := range s.take() {
				handle(m.data, m.isUnread)
			}
		}
	}()
	return sync.OnceFunc(func() {
		b.mu.Lock()
		if b.subs[subject] == s {
			delete(b.subs, subject)
		}
		b.mu.Unlock()
		close(s.stop)
	}), nil
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Cut loses the messages between two gateways, or loses no more.
func (b *Bus) Cut(one, other string, isCut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cuts[pair(one, other)] = isCut
}

// Kill makes a gateway deaf, as the end of its process does.
func (b *Bus) Kill(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for subject := range b.subs {
		if strings.HasPrefix(subject, "tap."+name+".") {
			delete(b.subs, subject)
		}
	}
}
