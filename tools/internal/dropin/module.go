package dropin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tapgw/internal/proc"
)

// Module is a Python module that answers calls. A process serves one call at a time,
// so a call that breaks its process breaks no other call. The process of the last
// call is kept for the next one, with the state that the module has in it.
type Module struct {
	python      Python
	interpreter string
	file        string

	mu       sync.Mutex // guards the fields that follow
	idle     *worker    // nil: the next call starts one
	isClosed bool
}

// Module returns the module of a file that [Python.Probe] found to be a tool.
func (p Python) Module(interpreter, file string) *Module {
	return &Module{python: p, interpreter: interpreter, file: file}
}

// Close ends the process that waits for a call. Running calls go on.
func (m *Module) Close() {
	m.mu.Lock()
	w := m.idle
	m.idle, m.isClosed = nil, true
	m.mu.Unlock()
	if w != nil {
		w.process.Stop()
	}
}

// Call runs the module's execute. An error is the tool's own, describes how its
// process ended, or wraps the error of ctx.
func (m *Module) Call(ctx context.Context, c Call) (Answer, error) {
	w, err := m.acquire()
	if err != nil {
		return Answer{}, err
	}
	answer, canReuse, err := w.call(ctx, c)
	if !canReuse || !m.release(w) {
		w.process.Stop()
	}
	if _, isFault := errors.AsType[*Fault](err); isFault || errors.Is(err, errShape) {
		err = fmt.Errorf("%s: %w", filepath.Base(m.file), err)
	}
	return answer, err
}

// acquire returns a process that serves no other call.
func (m *Module) acquire() (*worker, error) {
	m.mu.Lock()
	w := m.idle
	m.idle = nil
	m.mu.Unlock()
	if w != nil && !w.isOver() {
		return w, nil
	}
	return m.start()
}

// release keeps a process for the next call. It returns false if another one is kept
// already or the module is closed: then the caller stops the process.
func (m *Module) release(w *worker) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed || m.idle != nil {
		return false
	}
	m.idle = w
	return true
}

func (m *Module) start() (*worker, error) {
	source, _ := os.ReadFile(m.file) // an unreadable file is the runner's to report
	w := &worker{broken: make(chan error, 1),
		needsLibraries: bytes.Contains(source, []byte("library_docs"))}
	out := &splitter{onFrame: w.receive, onFault: func(err error) { w.broken <- err }}
	process, err := m.python.start(m.interpreter, "serve", []string{m.file}, out)
	if err != nil {
		return nil, err
	}
	w.process = process
	return w, nil
}

// worker is a process that answers calls, one at a time.
type worker struct {
	process        *proc.Process
	needsLibraries bool       // its module uses the libraries, and has not got them yet
	broken         chan error // why its output can't be read; such a process is not used again

	mu      sync.Mutex   // guards the fields that follow
	number  int          // of the running or last call
	current *runningCall // nil: no call runs
}

// runningCall is a call that a worker has not answered yet.
type runningCall struct {
	call  Call
	wrote []Wrote    // belongs to the reader of the output until done
	done  chan frame // receives the last frame
}

func (w *worker) isOver() bool {
	select {
	case <-w.process.Done():
		return true
	default:
		return len(w.broken) > 0
	}
}

// receive handles a frame of the runner. The goroutine that reads its output calls it.
func (w *worker) receive(f frame) {
	w.mu.Lock()
	p := w.current
	if p == nil || f.Call != w.number && f.Call != 0 {
		w.mu.Unlock()
		return // from a thread that outlived its call
	}
	isLast := f.Sync == nil && f.Open == nil
	if isLast {
		w.current = nil
	}
	w.mu.Unlock()
	switch {
	case isLast:
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

// call runs a call; canReuse reports whether the process can serve another one.
func (w *worker) call(ctx context.Context, c Call) (answer Answer, canReuse bool, err error) {
	p := &runningCall{call: c, done: make(chan frame, 1)}
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

	request := map[string]any{"call": number, "root": c.Root, "input": c.Input}
	if w.needsLibraries && c.Libraries != nil {
		request["libraries"] = c.Libraries()
		w.needsLibraries = false
	}
	line, err := json.Marshal(request)
	if err != nil {
		return Answer{}, true, err
	}
	sent := make(chan struct{})
	go func() { // because a module that hangs does not read either
		defer close(sent)
		_, _ = w.process.Stdin().Write(append(line, '\n'))
	}()
	defer func() {
		if !canReuse {
			w.process.Stop()
		}
		<-sent
	}()
	select {
	case f := <-p.done:
		return p.answer(f)
	case err := <-w.broken:
		return Answer{}, false, &Fault{Reason: err.Error()}
	case <-ctx.Done():
		return Answer{}, false, ctx.Err()
	case <-w.process.Done():
	}
	select {
	case f := <-p.done: // the call was answered before the process ended
		answer, _, err := p.answer(f)
		return answer, false, err
	default:
		return Answer{}, false, fault(0, "its process ended in the middle of the call: %s",
			endText(w.process))
	}
}

// answer makes the call's answer of its last frame. A process that could not import
// the module can't be used again.
func (p *runningCall) answer(f frame) (answer Answer, canReuse bool, err error) {
	if f.Fault != nil {
		return Answer{}, f.Call != 0, fault(f.Line, "%s", *f.Fault)
	}
	answer, err = answerOf(f.Result)
	answer.Wrote = p.wrote
	return answer, true, err
}
