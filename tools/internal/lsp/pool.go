package lsp

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// The language servers that run, each until it has been idle for some time.

// Time limits of a server. Tests set shorter ones in a Pool.
const (
	startLimit  = 40 * time.Second       // from its start to the end of initialize
	answerLimit = 30 * time.Second       // for an answer
	idleLimit   = 5 * time.Minute        // without a question, until it is stopped
	retryAfter  = 5 * time.Minute        // the pause between a failure and the next start
	stopGrace   = 500 * time.Millisecond // for its process to end by itself
	stuckGrace  = 2 * time.Second        // after answerLimit, until its process is stopped
)

// Pool holds the running servers: one for each language and workspace, which starts with the first
// question and ends after five minutes without one. The zero value is ready for use, from any
// goroutine; [Pool.Close] stops all.
type Pool struct {
	start, answer, idle time.Duration // time limits; 0: the constants above

	mu      sync.Mutex // guards the entries, and each one's fields
	entries map[key]*entry
	closing sync.WaitGroup // waits for servers that are being stopped
}

type key struct {
	root string
	lang *Language
}

// entry is a server that is starting, running or has failed.
type entry struct {
	ready  chan struct{} // closed when server or err is set
	server *server
	err    error

	users int
	timer *time.Timer // removes an unused entry after its time limit
}

// Close stops all servers and waits until their processes have ended. The pool can be used again:
// the next question starts a server.
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

// ask calls question with the server of a language in a workspace, one call at a time
// for each server. A server that ends or does not answer in time fails for retryAfter.
// files are all files of the workspace, relative to it.
func (p *Pool) ask(
	ctx context.Context, root string, lang *Language, files []string,
	question func(context.Context, *server) error,
) error {
	resolved, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	k := key{resolved, lang}
	e := p.acquire(k)
	defer p.release(k, e)
	select {
	case <-e.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.err != nil {
		return e.err
	}
	s := e.server
	if s.lock.Lock(ctx) != nil {
		return ctx.Err()
	}
	defer s.lock.Unlock()

	limit := cmp.Or(p.answer, answerLimit)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// A call ends with its context. A write to a server that no longer reads ends only
	// when the server does.
	kill := time.AfterFunc(limit+stuckGrace, s.process.Stop)
	defer kill.Stop()
	err = s.sendChanges(files)
	if err == nil {
		err = question(limited, s)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case limited.Err() != nil:
		err = fmt.Errorf("%s does not answer within %v", lang.Server, limit)
	case !s.isOver():
		return err // the server refused the question
	default:
		err = fmt.Errorf("%s ended: %w", lang.Server, err)
	}
	p.fail(k, e, err)
	return err
}

// acquire returns the entry of a server. It starts the server if it does not run.
func (p *Pool) acquire(k key) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[k]
	if e != nil && e.server != nil && e.server.isOver() { // the server ended while it was unused
		p.remove(k, e)
		e = nil
	}
	if e == nil {
		e = &entry{ready: make(chan struct{})}
		if p.entries == nil {
			p.entries = map[key]*entry{}
		}
		p.entries[k] = e
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(p.start, startLimit))
			defer cancel()
			s, err := start(ctx, k.lang, k.root)
			p.mu.Lock()
			e.server, e.err = s, err
			p.startTimer(k, e)
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

// release ends the use of an entry.
func (p *Pool) release(k key, e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	p.startTimer(k, e)
}

// startTimer starts the timer that removes an entry without users. p.mu is held.
func (p *Pool) startTimer(k key, e *entry) {
	if e.users > 0 || p.entries[k] != e || e.server == nil && e.err == nil {
		return
	}
	after := cmp.Or(p.idle, idleLimit)
	if e.err != nil {
		after = retryAfter
	}
	e.timer = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.entries[k] == e && e.users == 0 {
			p.remove(k, e)
		}
	})
}

// remove removes an entry and stops its server. p.mu is held.
func (p *Pool) remove(k key, e *entry) {
	delete(p.entries, k)
	p.closing.Go(func() { p.end(e) })
}

// fail replaces a server by its error, which further questions get for retryAfter.
func (p *Pool) fail(k key, e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[k] != e {
		return
	}
	p.remove(k, e)
	failed := &entry{ready: make(chan struct{}), err: err}
	close(failed.ready)
	p.entries[k] = failed
	p.startTimer(k, failed)
}

// end stops the timer and the server of an entry.
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
