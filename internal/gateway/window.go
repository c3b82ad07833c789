package gateway

import (
	"sync"
	"time"
)

// window allows a number of events in any minute: "10 a minute" is not 10 at
// once and another for every 6 seconds since. Its lock is a leaf.
type window struct {
	most int

	mu    sync.Mutex
	times []time.Time // of the newest events, oldest first
}

func (w *window) allow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full() {
		return false
	}
	w.times = append(w.times, time.Now())
	return true
}

// full reports whether no further event is allowed now. Call with mu held.
func (w *window) full() bool {
	for len(w.times) > 0 && time.Since(w.times[0]) >= time.Minute {
		w.times = w.times[1:]
	}
	return len(w.times) >= w.most
}

// windows allows a number of events in any minute to each of many, which it forgets
// when they are quiet, and a number to all of them but "" together. Its lock is a leaf.
type windows struct {
	most int

	mu  sync.Mutex
	of  map[string]*window
	all window
}

func (w *windows) allow(who string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if who != "" && w.all.full() {
		return false
	}
	for other, o := range w.of {
		if len(o.times) == 0 || time.Since(o.times[len(o.times)-1]) >= time.Minute {
			delete(w.of, other)
		}
	}
	if w.of[who] == nil {
		if w.of == nil {
			w.of = map[string]*window{}
		}
		w.of[who] = &window{most: w.most}
	}
	return w.of[who].allow() && (who == "" || w.all.allow())
}
