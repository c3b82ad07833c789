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
	maxPages       = 16
	maxOriginPages = 4
)

// limitShown is how long a limit that was reached is a fault after it kept somebody
// out last.
const limitShown = 10 * time.Minute

// places are those of provider connections.
type places struct {
	log   *slog.Logger
	touch func() // what status shows has changed

	mu      sync.Mutex
	limit   int // of providers; set before anybody comes
	used    int
	refused uint64    // for want of a place
	last    time.Time // when the last was
	pages   int
	origins map[string]int // pages by origin
}

// setLimit says how many providers there may be. Those that are more stay.
func (p *places) setLimit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = n
}

// place is that of one connection.
type place struct {
	of     *places
	origin string // of a page that waits
	waits  bool   // guarded by places.mu, as the next
	has    bool
}

// take finds a place for a request's connection: nil and what to answer where there
// is none.
func (p *places) take(r *http.Request) (*place, string) {
	if !foreignOrigin(r) {
		if c := (&place{of: p}); c.admit() {
			return c, ""
		}
		return nil, p.full()
	}
	c := &place{of: p, origin: pageOrigin(r), waits: true}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pages >= maxPages || p.origins[c.origin] >= maxOriginPages {
		return nil, fmt.Sprintf("%d web pages wait to be let in, %d of this origin; retry later", p.pages, p.origins[c.origin])
	}
	if p.origins == nil {
		p.origins = map[string]int{}
	}
	p.pages++
	p.origins[c.origin]++
	return c, ""
}

// admit gives a connection one of the providers' places, for that of a page that
// waits, and reports whether there was one.
func (c *place) admit() bool {
	p := c.of
	p.mu.Lock()
	ok := c.has || p.used < p.limit
	first := false
	if ok {
		c.stopWaiting()
		if !c.has {
			c.has = true
			p.used++
		}
	} else {
		first = time.Since(p.last) > limitShown
		p.refused++
		p.last = time.Now()
	}
	limit := p.limit
	p.mu.Unlock()
	if first {
		p.log.Warn("all places for providers are taken; further ones are refused until one leaves, or max_connections is more", "max_connections", limit)
		p.touch()
	}
	return ok
}

// stopWaiting needs places.mu held.
func (c *place) stopWaiting() {
	if !c.waits {
		return
	}
	c.waits = false
	c.of.pages--
	if c.of.origins[c.origin]--; c.of.origins[c.origin] == 0 {
		delete(c.of.origins, c.origin)
	}
}

// leave gives the place back. More than once does no harm.
func (c *place) leave() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.stopWaiting()
	if c.has {
		c.has = false
		c.of.used--
	}
}

// full is what one who finds no place is told.
func (p *places) full() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d providers are connected, which is the limit (max_connections in tapgw.toml); stop one, or retry later", p.limit)
}

// inUse is how many providers there are, of how many, and how many were refused.
func (p *places) inUse() (used, limit int, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.limit, p.refused
}

// ConnectionFault says that the limit of connections is reached, or lately kept
// somebody out; "" while all is well.
func (s *Server) ConnectionFault() string {
	p := &s.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used < p.limit && (p.refused == 0 || time.Since(p.last) > limitShown) {
		return ""
	}
	return fmt.Sprintf("max_connections: %d of %d places for providers are taken, and %d connections were refused for want of one; stop some, or set more", p.used, p.limit, p.refused)
}

// beforeAuth is what a connection may send before it is let in, in bytes.
const beforeAuth = 64 << 10
