package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Bounds of the web pages of other origins that have not authenticated: of all together, and
// of one origin. They are counted apart from providers, so that pages can't use up the
// providers' connections.
const (
	maxWaitingPages     = 16
	maxWaitingPerOrigin = 4
)

// limitFaultTime is how long `tapgw status` shows the connection limit as a fault after it
// last refused a connection.
const limitFaultTime = 10 * time.Minute

// connectionLimit counts the connections of providers and refuses those over the limit.
type connectionLimit struct {
	log           *slog.Logger
	statusChanged func() // called when the fault appears

	mu              sync.Mutex // guards the fields below
	limit           int        // of admitted connections; set before the first comes
	used            int        // admitted connections
	refused         uint64
	lastRefused     time.Time
	waitingPages    int
	waitingByOrigin map[string]int // waiting pages
}

// setLimit changes the number of connections. Those that exist over the new limit stay.
func (l *connectionLimit) setLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = n
}

// admission is how one connection counts against the limit.
type admission struct {
	owner  *connectionLimit
	origin string // of a page of another origin

	// Guarded by owner.mu.
	waiting  bool // counts as a waiting page
	admitted bool // counts as a provider
}

// reserve begins to count the connection that a request asks for. The connection takes a place only
// when it is admitted, so that silent connections can't keep providers out. Until then a page of
// another origin counts as waiting. If no place is left, the result is nil and a text for the
// client.
func (l *connectionLimit) reserve(r *http.Request) (*admission, string) {
	if !isForeignOrigin(r) {
		if a := (&admission{owner: l}); a.ask(false) {
			return a, ""
		}
		return nil, l.fullMessage()
	}
	a := &admission{owner: l, origin: foreignOrigin(r), waiting: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waitingPages >= maxWaitingPages || l.waitingByOrigin[a.origin] >= maxWaitingPerOrigin {
		return nil, fmt.Sprintf("%d web pages wait to be let in, %d of this origin; retry later",
			l.waitingPages, l.waitingByOrigin[a.origin])
	}
	if l.waitingByOrigin == nil {
		l.waitingByOrigin = map[string]int{}
	}
	l.waitingPages++
	l.waitingByOrigin[a.origin]++
	return a, ""
}

// admit makes the connection count as a provider instead of as a waiting page. It reports
// false, and logs, when the limit is reached; the connection may try again.
func (a *admission) admit() bool { return a.ask(true) }

// ask reports whether the connection can be admitted now. With takes, it admits the connection.
func (a *admission) ask(takes bool) bool {
	l := a.owner
	l.mu.Lock()
	ok, isFirst := a.admitted || l.used < l.limit, false
	if ok && takes {
		a.releaseWaiting()
		if !a.admitted {
			a.admitted = true
			l.used++
		}
	}
	if !ok {
		isFirst = time.Since(l.lastRefused) > limitFaultTime
		l.refused++
		l.lastRefused = time.Now()
	}
	limit := l.limit
	l.mu.Unlock()
	if isFirst {
		l.log.Warn("the limit of provider connections is reached; more are refused until one ends "+
			"or max_connections is raised", "max_connections", limit)
		l.statusChanged()
	}
	return ok
}

// releaseWaiting stops counting the connection as a waiting page. Call with owner.mu held.
func (a *admission) releaseWaiting() {
	if !a.waiting {
		return
	}
	a.waiting = false
	a.owner.waitingPages--
	if a.owner.waitingByOrigin[a.origin]--; a.owner.waitingByOrigin[a.origin] == 0 {
		delete(a.owner.waitingByOrigin, a.origin)
	}
}

// release stops counting the connection. It may be called more than once.
func (a *admission) release() {
	a.owner.mu.Lock()
	defer a.owner.mu.Unlock()
	a.releaseWaiting()
	if a.admitted {
		a.admitted = false
		a.owner.used--
	}
}

// fullMessage tells a client that the limit is reached.
func (l *connectionLimit) fullMessage() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf(
		"%d providers are connected, which is the limit (max_connections in tapgw.toml); "+
			"stop one, or retry later", l.limit)
}

// usage returns the number of admitted connections, their limit, and how many were refused
// since the start.
func (l *connectionLimit) usage() (used, limit int, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, l.limit, l.refused
}

// ConnectionFault returns one line for `tapgw status` when the connection limit is reached or
// refused a connection in the last ten minutes; otherwise "". Any goroutine may call it.
func (s *Server) ConnectionFault() string {
	l := &s.connections
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used < l.limit && (l.refused == 0 || time.Since(l.lastRefused) > limitFaultTime) {
		return ""
	}
	return fmt.Sprintf("max_connections: %d of %d provider connections are in use, "+
		"and %d more were refused; stop some, or raise the limit", l.used, l.limit, l.refused)
}
