package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// How many web pages of other origins may wait to be let in: all together, and of
// one origin. They have places of their own until then, so that a page takes none of
// the providers'.
const (
	maxWaitingPages     = 16
	maxWaitingPerOrigin = 4
)

// limitShown is how long a limit that was reached is a fault after it kept somebody
// out last.
const limitFaultTime = 10 * time.Minute

// places are those of provider connections.
type connectionLimit struct {
	log           *slog.Logger
	statusChanged func() // what status shows has changed

	mu              sync.Mutex
	limit           int // of providers; set before anybody comes
	used            int
	refused         uint64    // for want of a place
	lastRefused     time.Time // when the last was
	waitingPages    int
	waitingByOrigin map[string]int // pages by origin
}

// setLimit says how many providers there may be. Those that are more stay.
func (l *connectionLimit) setLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = n
}

// place is that of one connection.
type admission struct {
	owner    *connectionLimit
	origin   string // of a page that waits
	waiting  bool   // guarded by places.mu, as the next
	admitted bool
}

// take finds a place for a request's connection: nil and what to answer where there
// is none.
func (l *connectionLimit) reserve(r *http.Request) (*admission, string) {
	if !isForeignOrigin(r) {
		if a := (&admission{owner: l}); a.admit() {
			return a, ""
		}
		return nil, l.fullMessage()
	}
	a := &admission{owner: l, origin: foreignOrigin(r), waiting: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waitingPages >= maxWaitingPages || l.waitingByOrigin[a.origin] >= maxWaitingPerOrigin {
		return nil, fmt.Sprintf("%d web pages wait to be let in, %d of this origin; retry later", l.waitingPages, l.waitingByOrigin[a.origin])
	}
	if l.waitingByOrigin == nil {
		l.waitingByOrigin = map[string]int{}
	}
	l.waitingPages++
	l.waitingByOrigin[a.origin]++
	return a, ""
}

// admit gives a connection one of the providers' places, for that of a page that
// waits, and reports whether there was one.
func (a *admission) admit() bool {
	l := a.owner
	l.mu.Lock()
	admitted := a.admitted || l.used < l.limit
	first := false
	if admitted {
		a.releaseWaiting()
		if !a.admitted {
			a.admitted = true
			l.used++
		}
	} else {
		first = time.Since(l.lastRefused) > limitFaultTime
		l.refused++
		l.lastRefused = time.Now()
	}
	limit := l.limit
	l.mu.Unlock()
	if first {
		l.log.Warn("all places for providers are taken; further ones are refused until one leaves, or max_connections is more", "max_connections", limit)
		l.statusChanged()
	}
	return admitted
}

// stopWaiting needs places.mu held.
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

// leave gives the place back. More than once does no harm.
func (a *admission) release() {
	a.owner.mu.Lock()
	defer a.owner.mu.Unlock()
	a.releaseWaiting()
	if a.admitted {
		a.admitted = false
		a.owner.used--
	}
}

// full is what one who finds no place is told.
func (l *connectionLimit) fullMessage() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d providers are connected, which is the limit (max_connections in tapgw.toml); stop one, or retry later", l.limit)
}

// inUse is how many providers there are, of how many, and how many were refused.
func (l *connectionLimit) usage() (used, limit int, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, l.limit, l.refused
}

// ConnectionFault says that the limit of connections is reached, or lately kept
// somebody out; "" while all is well.
func (s *Server) ConnectionFault() string {
	l := &s.connections
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used < l.limit && (l.refused == 0 || time.Since(l.lastRefused) > limitFaultTime) {
		return ""
	}
	return fmt.Sprintf("max_connections: %d of %d places for providers are taken, and %d connections were refused for want of one; stop some, or set more", l.used, l.limit, l.refused)
}

// beforeAuth is what a connection may send before it is let in, in bytes.
const maxBeforeAuth = 64 << 10
