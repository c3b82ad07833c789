package gateway

import (
	"sync"
	"time"
)

// window allows max events in any minute. A token bucket would allow up to twice as many
// in one minute. Its lock is a leaf.
type window struct {
	max int

	mu    sync.Mutex  // guards the fields below
	times []time.Time // of the newest events, oldest first
}

// allow counts an event and reports whether it is allowed.
func (w *window) allow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isFull() {
		return false
	}
	w.times = append(w.times, time.Now())
	return true
}

// isFull reports whether no further event is allowed now. Call with mu held.
func (w *window) isFull() bool {
	for len(w.times) > 0 && time.Since(w.times[0]) >= time.Minute {
		w.times = w.times[1:]
	}
	return len(w.times) >= w.max
}

// windows has a window for each key, with max events each, and one for all keys except ""
// together. It removes windows without events. Its lock is a leaf.
type windows struct {
	max int

	mu    sync.Mutex // guards the fields below
	byKey map[string]*window
	all   window
}

// allow counts an event of a key and reports whether it is allowed.
func (w *windows) allow(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != "" && w.all.isFull() {
		return false
	}
	for k, o := range w.byKey {
		if len(o.times) == 0 || time.Since(o.times[len(o.times)-1]) >= time.Minute {
			delete(w.byKey, k)
		}
	}
	if w.byKey[key] == nil {
		if w.byKey == nil {
			w.byKey = map[string]*window{}
		}
		w.byKey[key] = &window{max: w.max}
	}
	return w.byKey[key].allow() && (key == "" || w.all.allow())
}
