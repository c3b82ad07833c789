package cluster

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memBus is a bus in memory. Its goroutines wait for nothing but its messages, so the clock of a bubble goes on.
type memBus struct {
	limit int

	mu      sync.Mutex
	subs    map[string]*memSub
	dropped map[string]bool // subjects whose messages are lost, for partitions
}

func newMemBus() *memBus {
	return &memBus{limit: 1 << 20, subs: map[string]*memSub{}, dropped: map[string]bool{}}
}

type memSub struct {
	mu    sync.Mutex
	queue []message
	wake  chan struct{}
	stop  chan struct{}
}

func (b *memBus) maxPayload() int { return b.limit }

func (b *memBus) publish(subject, reply string, data []byte) error {
	b.mu.Lock()
	sub, isLost := b.subs[subject], b.dropped[subject]
	back := b.subs[reply]
	b.mu.Unlock()
	switch {
	case isLost:
	case sub != nil:
		sub.add(message{data: append([]byte(nil), data...)})
	case back != nil:
		back.add(message{isUnread: true})
	}
	return nil
}

func (s *memSub) add(m message) {
	s.mu.Lock()
	s.queue = append(s.queue, m)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (b *memBus) subscribe(subject string, handle func(message)) (func(), error) {
	s := &memSub{wake: make(chan struct{}, 1), stop: make(chan struct{})}
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
			for {
				s.mu.Lock()
				queue := s.queue
				s.queue = nil
				s.mu.Unlock()
				if len(queue) == 0 {
					break
				}
				for _, m := range queue {
					handle(m)
				}
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

// cut loses the messages between two gateways, or no more.
func (b *memBus) cut(a, c string, isCut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped[trunkSubject(a, c)], b.dropped[trunkSubject(c, a)] = isCut, isCut
}

// kill makes a gateway deaf at once, as the end of its process does.
func (b *memBus) kill(name string) {
	b.mu.Lock()
	var stops []*memSub
	for subject, s := range b.subs {
		if strings.HasPrefix(subject, subjectRoot+name+".") {
			stops = append(stops, s)
			delete(b.subs, subject)
		}
	}
	b.mu.Unlock()
}
