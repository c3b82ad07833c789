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
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.times) > 0 && now.Sub(w.times[0]) >= time.Minute {
		w.times = w.times[1:]
	}
	if len(w.times) >= w.most {
		return false
	}
	w.times = append(w.times, now)
	return true
}

// windows allows a number of events in any minute to each of many, which it forgets
// when they are quiet. Its lock is a leaf.
type windows struct {
	most int

	mu sync.Mutex
	of map[string]*window
}

func (w *windows) allow(who string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	return w.of[who].allow()
}
