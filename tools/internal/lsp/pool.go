package lsp

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// Bounds of a server's life, unless a pool has its own.
const (
	startLimit = 40 * time.Second // from start to its greeting
	askLimit   = 30 * time.Second // for an answer
	idleLimit  = 5 * time.Minute  // without a question
	badLimit   = 5 * time.Minute  // until one that failed is tried again
	stopGrace  = 500 * time.Millisecond
	stuckGrace = 2 * time.Second
)

// Pool holds the servers that run. The zero value is ready for use.
type Pool struct {
	start, answer, idle time.Duration // 0: as above

	mu      sync.Mutex // guards the entries, and each one's fields
	entries map[key]*entry
	closing sync.WaitGroup // servers that are being stopped
}

type key struct {
	root string
	lang *Language
}

// entry is a server that starts, runs, or has failed.
type entry struct {
	ready  chan struct{} // closed when the next two are set
	server *server
	err    error

	users int
	timer *time.Timer // ends it when nobody has asked for a while, or forgets that it failed
}

// Close ends all servers and waits for that.
func (p *Pool) Close() {
	p.mu.Lock()
	entries := p.entries
	p.entries = nil
	p.mu.Unlock()
	for _, e := range entries {
		<-e.ready
		p.end(e)
	}
	p.closing.Wait()
}

// ask lets a question be put to a server of the workspace, one at a time for each.
// A server that doesn't answer, or not in time, is given up for a while; files are
// those of the workspace.
func (p *Pool) ask(ctx context.Context, root string, lang *Language, files []string,
	question func(context.Context, *server) error) error {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	k := key{real, lang}
	e := p.enter(k)
	defer p.leave(k, e)
	select {
	case <-e.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.err != nil {
		return e.err
	}
	s := e.server
	select {
	case <-s.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()

	limited, cancel := context.WithTimeout(ctx, or(p.answer, askLimit))
	defer cancel()
	// Calls end with their context. Sending to a server that no longer reads ends
	// with the server.
	kill := time.AfterFunc(or(p.answer, askLimit)+stuckGrace, s.process.Stop)
	defer kill.Stop()
	err = s.catchUp(files)
	if err == nil {
		err = question(limited, s)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case limited.Err() != nil:
		err = fmt.Errorf("%s does not answer within %v", lang.Server, or(p.answer, askLimit))
	case !over(s):
		return err // a refusal
	default:
		err = fmt.Errorf("%s ended: %w", lang.Server, err)
	}
	p.fail(k, e, err)
	return err
}

func over(s *server) bool {
	select {
	case <-s.conn.Done():
		return true
	default:
		return false
	}
}

func or(d, unless time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return unless
}

// enter returns the entry of a server, which it starts if there is none.
func (p *Pool) enter(k key) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[k]
	if e != nil && e.server != nil && over(e.server) { // it died while nobody asked
		p.drop(k, e)
		e = nil
	}
	if e == nil {
		e = &entry{ready: make(chan struct{})}
		if p.entries == nil {
			p.entries = map[key]*entry{}
		}
		p.entries[k] = e
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), or(p.start, startLimit))
			defer cancel()
			s, err := start(ctx, k.lang, k.root)
			p.mu.Lock()
			e.server, e.err = s, err
			p.rest(k, e)
			p.mu.Unlock()
			close(e.ready)
		}()
	}
	e.users++
	if e.timer != nil {
		e.timer.Stop()
	}
	return e
}

// leave lets go of an entry.
func (p *Pool) leave(k key, e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	p.rest(k, e)
}

// rest sets the time after which an entry ends that nobody uses. p.mu is held.
func (p *Pool) rest(k key, e *entry) {
	if e.users > 0 || p.entries[k] != e || e.server == nil && e.err == nil {
		return
	}
	after := or(p.idle, idleLimit)
	if e.err != nil {
		after = badLimit
	}
	e.timer = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.entries[k] == e && e.users == 0 {
			p.drop(k, e)
		}
	})
}

// drop forgets an entry and ends its server. p.mu is held.
func (p *Pool) drop(k key, e *entry) {
	delete(p.entries, k)
	p.closing.Go(func() { p.end(e) })
}

// fail gives a server up.
func (p *Pool) fail(k key, e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[k] != e {
		return
	}
	p.drop(k, e)
	bad := &entry{ready: make(chan struct{}), err: err}
	close(bad.ready)
	p.entries[k] = bad
	p.rest(k, bad)
}

// end stops what an entry has.
func (p *Pool) end(e *entry) {
	p.mu.Lock()
	if e.timer != nil {
		e.timer.Stop()
	}
	s := e.server
	p.mu.Unlock()
	if s != nil {
		s.stop()
	}
}
