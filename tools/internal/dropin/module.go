package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"tapgw/internal/proc"
)

// Module is a Python module that answers calls, each in a process that serves no
// other call at the time: what it does to its process it does to itself. The
// process of the last call is kept for the next one, with the state that the
// module has made in it.
type Module struct {
	python      Python
	interpreter string
	file        string

	mu     sync.Mutex // guards those below
	free   *worker    // nil: the next call starts one
	closed bool
}

// Module makes a module of a file that was probed; see [Python.Probe].
func (p Python) Module(interpreter, file string) *Module {
	return &Module{python: p, interpreter: interpreter, file: file}
}

// Close ends what waits for calls. Those that run are not hurried.
func (m *Module) Close() {
	m.mu.Lock()
	w := m.free
	m.free, m.closed = nil, true
	m.mu.Unlock()
	if w != nil {
		w.process.Stop()
	}
}

// Call runs the module's execute. An error is the tool's own, says what became of
// its process, or wraps that of ctx.
func (m *Module) Call(ctx context.Context, c Call) (Answer, error) {
	w, err := m.take()
	if err != nil {
		return Answer{}, err
	}
	answer, whole, err := w.call(ctx, c)
	if !whole || !m.put(w) {
		w.process.Stop()
	}
	if _, ended := errors.AsType[*Fault](err); ended || errors.Is(err, errShape) {
		err = fmt.Errorf("%s: %w", filepath.Base(m.file), err)
	}
	return answer, err
}

// take returns a process that is nobody else's.
func (m *Module) take() (*worker, error) {
	m.mu.Lock()
	w := m.free
	m.free = nil
	m.mu.Unlock()
	if w != nil && !w.over() {
		return w, nil
	}
	return m.start()
}

// put keeps a process for the next call, if there is none yet.
func (m *Module) put(w *worker) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.free != nil {
		return false
	}
	m.free = w
	return true
}

func (m *Module) start() (*worker, error) {
	w := &worker{broken: make(chan error, 1)}
	out := &splitter{take: w.heed, fail: func(err error) { w.broken <- err }}
	process, err := m.python.start(m.interpreter, "serve", []string{m.file}, out)
	if err != nil {
		return nil, err
	}
	w.process = process
	return w, nil
}

// worker is a process that answers calls, one at a time.
type worker struct {
	process *proc.Process
	broken  chan error // what made no sense to us; then it is of no more use

	mu      sync.Mutex // guards those below
	number  int        // of the call that runs or ran last
	current *pending   // nil: none runs
}

// pending is a call that runs.
type pending struct {
	call  Call
	wrote []Wrote    // the reader's until done
	done  chan frame // its last one
}

func (w *worker) over() bool {
	select {
	case <-w.process.Done():
		return true
	default:
		return len(w.broken) > 0
	}
}

// heed takes what the runner says. It is called by the one who reads its output.
func (w *worker) heed(f frame) {
	w.mu.Lock()
	p := w.current
	if p == nil || f.Call != w.number && f.Call != 0 {
		w.mu.Unlock()
		return // a thread of a call that is over
	}
	last := f.Sync == nil && f.Open == nil
	if last {
		w.current = nil
	}
	w.mu.Unlock()
	switch {
	case last:
		p.done <- f
	case f.Sync != nil:
		p.wrote = append(p.wrote, Wrote{f.Sync[0], f.Sync[1]})
		if p.call.Sync != nil {
			p.call.Sync(f.Sync[0], f.Sync[1])
		}
	case p.call.Open != nil:
		p.call.Open(f.Open[0], f.Open[1], f.Open[2])
	}
}

// call runs a call; whole says that the process can serve another one.
func (w *worker) call(ctx context.Context, c Call) (answer Answer, whole bool, err error) {
	p := &pending{call: c, done: make(chan frame, 1)}
	w.mu.Lock()
	w.number++
	w.current = p
	number := w.number
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.current = nil
		w.mu.Unlock()
	}()

	request, err := json.Marshal(map[string]any{"call": number, "root": c.Root, "input": c.Input})
	if err != nil {
		return Answer{}, true, err
	}
	sent := make(chan struct{})
	go func() { // a module that hangs doesn't read either
		defer close(sent)
		_, _ = w.process.Stdin().Write(append(request, '\n'))
	}()
	defer func() {
		if !whole {
			w.process.Stop()
		}
		<-sent
	}()
	select {
	case f := <-p.done:
		return p.end(f)
	case err := <-w.broken:
		return Answer{}, false, &Fault{Reason: err.Error()}
	case <-ctx.Done():
		return Answer{}, false, ctx.Err()
	case <-w.process.Done():
	}
	select {
	case f := <-p.done: // its last words
		answer, _, err := p.end(f)
		return answer, false, err
	default:
		return Answer{}, false, fault(0, "its process ended in the middle of the call: %s", ended(w.process))
	}
}

// end makes the answer of a call's last frame. A module that could not be imported
// leaves no process for others.
func (p *pending) end(f frame) (answer Answer, whole bool, err error) {
	if f.Fault != nil {
		return Answer{}, f.Call != 0, fault(f.Line, "%s", *f.Fault)
	}
	answer, err = answerOf(f.Result)
	answer.Wrote = p.wrote
	return answer, true, err
}
