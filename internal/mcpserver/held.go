package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// heldTime is how long a held call waits for its client to come back: longer than its questions wait for an answer.
// Then nobody wants the call's result.
const heldTime = gateway.DefaultAnswerTimeout + time.Minute

// held is what a call has whose client asks its own user when a person is asked something about the call. The client
// gets the questions as the answer to its request, and calls again with its user's answers. The call goes on
// meanwhile. Its questions are also put to people elsewhere, as ever; the first answer counts.
type held struct {
	tool  string
	looks chan struct{} // holds one; there is a new question
	round int           // how often the client was sent to its user; guarded by the task's lock

	mu      sync.Mutex           // guards the fields that follow; held while progress is sent
	ctx     context.Context      // of request
	request *mcp.CallToolRequest // that waits for the call; nil while the client asks its user
	missed  func()               // sends request the last progress that came while there was none; nil for none
}

// look makes the request that waits look at the questions.
func (h *held) look() {
	select {
	case h.looks <- struct{}{}:
	default: // it is about to look
	}
}

// serve makes r the request that waits for the call, and gets its progress.
func (h *held) serve(ctx context.Context, r *mcp.CallToolRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx, h.request = ctx, r
	if h.missed != nil {
		h.missed()
		h.missed = nil
	}
}

// release says that no request waits for the call.
func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx, h.request = nil, nil
}

// progress tells the request that waits for the call that it goes on. If none waits, the next one is told.
func (h *held) progress(n int, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	send := func() { notify(h.ctx, h.request, n, message) }
	if h.request == nil {
		h.missed = send
		return
	}
	send()
}

// callOrAsk runs a call of a client that can ask its user and takes no tasks, or goes on with one that is held. It
// returns the call's result, or the questions that the client should put to its user.
func (e *endpoint) callOrAsk(ctx context.Context, r *mcp.CallToolRequest,
	call func(context.Context) (mcp.Result, error)) (*mcp.CallToolResult, error) {
	if r.Params.RequestState == "" {
		t, unlink := e.startTask(ctx, &held{tool: r.Params.Name, looks: make(chan struct{}, 1)}, call)
		return t.await(ctx, r, unlink)
	}
	id, round, _ := strings.Cut(r.Params.RequestState, ".")
	t := e.h.tasks.find(e, callerOf(ctx), id)
	if t == nil || !t.resume(r.Params.Name, round) {
		return nil, invalidParams(fmt.Sprintf("requestState: no call of %s waits for this answer; call it anew",
			shortLine(r.Params.Name)))
	}
	unlink := context.AfterFunc(ctx, t.cancel)
	for id, response := range r.Params.InputResponses {
		if data, err := json.Marshal(response); err == nil {
			_ = t.answer(id, data) // a question with a wrong answer goes on waiting, and is put again
		}
	}
	return t.await(ctx, r, unlink)
}

// resume makes the request that brings the answers of a round the one that waits. It reports false if the call does not
// wait for that round any more, or was of another tool.
func (t *task) resume(tool, round string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held != nil && t.held.tool == tool && strconv.Itoa(t.held.round) == round && t.expiry.Stop()
}

// await waits until the call has ended, or asks something that the client can put to its user. The call ends with ctx,
// unless it is held.
func (t *task) await(ctx context.Context, r *mcp.CallToolRequest, unlink func() bool) (*mcp.CallToolResult, error) {
	t.held.serve(ctx, r)
	defer t.held.release()
	for isOver := false; !isOver; {
		if questions := t.view(true).InputRequests; len(questions) > 0 && ctx.Err() == nil && unlink() {
			if state := t.hold(); state != "" {
				return &mcp.CallToolResult{InputRequests: questions, RequestState: state}, nil
			}
			// Too many calls are held. The questions wait elsewhere.
			defer context.AfterFunc(ctx, t.cancel)()
			isOver = true
		} else {
			select {
			case <-t.held.looks:
			case <-t.done:
				isOver = true
			}
		}
	}
	<-t.done
	t.mu.Lock()
	wasHeld := t.id != ""
	t.mu.Unlock()
	if wasHeld {
		t.drop()
	}
	result, _ := t.result.(*mcp.CallToolResult)
	return result, t.err
}

// hold keeps the call for its client, and returns the state that the client brings back. It is "" if the call has
// ended, or too many are kept.
func (t *task) hold() string {
	t.mu.Lock()
	id := t.id
	t.mu.Unlock()
	if id == "" && !t.begin() {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOver {
		return ""
	}
	t.held.round++
	t.expiry.Reset(heldTime)
	return t.id + "." + strconv.Itoa(t.held.round)
}

// canElicit reports whether a client of a handshake revision can show a form to its user.
func canElicit(client *mcp.ServerSession) bool {
	p := client.InitializeParams()
	if p == nil || p.ProtocolVersion >= firstModern || p.Capabilities == nil {
		return false
	}
	can := p.Capabilities.Elicitation
	return can != nil && (can.Form != nil || can.URL == nil)
}

// asker puts the questions about a call to the user of a client of a handshake revision, while the call runs. They are
// also put to people elsewhere; the first answer counts.
type asker struct {
	ctx    context.Context // of the call
	s      *gateway.Session
	client *mcp.ServerSession
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the fields that follow; a leaf
	asking   map[string]context.CancelFunc
	isClosed bool
}

// asked is for [gateway.Call].Asked.
func (a *asker) asked(q adminapi.Question, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch cancel := a.asking[q.ID]; {
	case cancel != nil: // it is over
		cancel()
		delete(a.asking, q.ID)
	case !over && !a.isClosed && q.Kind == adminapi.QuestionForm:
		ctx, cancel := context.WithCancel(a.ctx)
		a.asking[q.ID] = cancel
		a.wg.Go(func() { a.ask(ctx, q) })
	}
}

// ask puts a question to the client's user. If that brings no answer, the question goes on waiting elsewhere.
func (a *asker) ask(ctx context.Context, q adminapi.Question) {
	r, err := a.client.Elicit(ctx, &mcp.ElicitParams{Message: q.Message, RequestedSchema: q.Schema})
	if err != nil {
		return
	}
	response, err := json.Marshal(r)
	if err != nil {
		return
	}
	if answer, err := readAnswer(response); err == nil && answer != nil {
		_ = a.s.Answer(q.ID, *answer)
	}
}

// close ends what the call still asks.
func (a *asker) close() {
	a.mu.Lock()
	a.isClosed = true
	for _, cancel := range a.asking {
		cancel()
	}
	a.mu.Unlock()
	a.wg.Wait()
}
