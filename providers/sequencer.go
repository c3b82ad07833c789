package providers

import "sync"

// sequencer runs the functions of each key in their order, at most limit at once. Functions of
// several keys run at the same time.
type sequencer struct {
	wg    *sync.WaitGroup // of the goroutines
	limit int
	room  int // how many functions of one key may wait; 0: any number

	mu   sync.Mutex
	keys map[string]*sequence // guarded by mu; the keys that have functions
}

// sequence has the functions of one key.
type sequence struct {
	running int
	waiting []func()
}

// add runs f as soon as its key allows it. It reports false if too many functions wait.
func (s *sequencer) add(key string, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]*sequence{}
	}
	q := s.keys[key]
	if q == nil {
		q = &sequence{}
		s.keys[key] = q
	}
	switch {
	case q.running < s.limit:
		q.running++
		s.wg.Go(func() { s.work(key, f) })
	case s.room > 0 && len(q.waiting) >= s.room:
		return false
	default:
		q.waiting = append(q.waiting, f)
	}
	return true
}

// work runs a function and starts a goroutine for the next, so that a function that ends its
// goroutine does not stop the others.
func (s *sequencer) work(key string, f func()) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		q := s.keys[key]
		if len(q.waiting) > 0 {
			next := q.waiting[0]
			q.waiting = q.waiting[1:]
			s.wg.Go(func() { s.work(key, next) })
		} else if q.running--; q.running == 0 {
			delete(s.keys, key)
		}
	}()
	f()
}
