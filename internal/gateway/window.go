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
