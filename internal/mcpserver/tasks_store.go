package mcpserver

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
)

const (
	// maxSessionTasks and maxCallerTasks bound the tasks of an endpoint and of a token. A call beyond them
	// is answered when it ends.
	maxSessionTasks = 100
	maxCallerTasks  = 500
	// maxSessionBytes and maxTaskBytes bound the results that are kept for an endpoint, and for all: each
	// has room for the largest file.
	maxSessionBytes = 128 << 20
	maxTaskBytes    = 256 << 20
)

// caller tells clients apart by their tokens. It is no secret.
type caller [sha256.Size]byte

type callerKey struct{}

// withCaller notes in a request's context who makes it.
func withCaller(r *http.Request) *http.Request {
	c := caller(sha256.Sum256([]byte(r.Header.Get("Authorization"))))
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// taskList are the tasks of all endpoints. Its lock is a leaf.
type taskList struct {
	mu    sync.Mutex
	byID  map[string]*task
	sizes map[*task]int // of the results that are kept
}

// add adds a task. It reports false if there are too many, or its endpoint has ended.
func (l *taskList) add(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	session, caller := 0, 0
	for _, other := range l.byID {
		if other.e == t.e {
			session++
		}
		if other.caller == t.caller {
			caller++
		}
	}
	if session >= maxSessionTasks || caller >= maxCallerTasks || t.e.ctx.Err() != nil {
		return false
	}
	if l.byID == nil {
		l.byID, l.sizes = map[string]*task{}, map[*task]int{}
	}
	l.byID[t.id] = t
	return true
}

// find returns a task that a caller began at an endpoint, or nil.
func (l *taskList) find(e *endpoint, c caller, id string) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.byID[id]; t != nil && t.e == e && t.caller == c {
		return t
	}
	return nil
}

// keep reports whether there is room for the result of a task, and counts it until the task is removed.
func (l *taskList) keep(t *task, size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	session, all := size, size
	for other, n := range l.sizes {
		if all += n; other.e == t.e {
			session += n
		}
	}
	if session > maxSessionBytes || all > maxTaskBytes || l.byID[t.id] != t {
		return false
	}
	l.sizes[t] = size
	return true
}

// remove removes a task and what is kept of it.
func (l *taskList) remove(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, t.id)
	delete(l.sizes, t)
}

// of returns the tasks of an endpoint.
func (l *taskList) of(e *endpoint) (tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.byID {
		if t.e == e {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
