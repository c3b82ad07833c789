package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// This file holds calls that ask their client's user. In newer revisions of MCP such a call answers
// with its questions, and the client sends it again with the answers; meanwhile the tool runs on.

// heldTime is how long a held call waits for its client to come back: longer than its questions
// wait for an answer. After that the call's result is dropped.
const heldTime = gateway.DefaultAnswerTimeout + time.Minute

// heldCall is a call of a modern client that can ask its user. When a person is asked something
// about the call, the client gets the questions as the answer to its request, and calls again with
// its user's answers. The call goes on meanwhile, held for its client. Its questions are also put
// to people elsewhere, as ever; the first answer counts.
type heldCall struct {
	e      *endpoint
	caller caller
	tool   string
	id     string
	cancel context.CancelFunc
	asks   chan struct{} // holds one; there is a new question
	done   chan struct{} // closed when the call has ended; result is fixed then
	result *mcp.CallToolResult
	waiter waiter

	mu        sync.Mutex                   // guards the fields that follow
	isOver    bool                         // the call has ended
	round     int                          // how often the client was sent to its user
	expiry    *time.Timer                  // nil until the call is held
	questions map[string]adminapi.Question // that the client may answer, by id
}

// callOrAsk runs a call of a client that can ask its user, or goes on with one that is held. It
// returns the call's result, or the questions that the client should put to its user.
func (e *endpoint) callOrAsk(ctx context.Context, r *mcp.CallToolRequest,
	call func(context.Context, *heldCall) *mcp.CallToolResult) (*mcp.CallToolResult, error) {
	if r.Params.RequestState == "" {
		run, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c := &heldCall{
			e: e, caller: callerOf(ctx), tool: r.Params.Name, id: rand.Text(), cancel: cancel,
			asks: make(chan struct{}, 1), done: make(chan struct{}),
			questions: map[string]adminapi.Question{},
		}
		unlink := context.AfterFunc(ctx, cancel)
		e.h.running.Go(func() {
			defer cancel()
			c.finish(call(run, c))
		})
		return c.await(ctx, r, unlink), nil
	}
	id, round, _ := strings.Cut(r.Params.RequestState, ".")
	c := e.held.find(callerOf(ctx), id)
	if c == nil || !c.resume(r.Params.Name, round) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(
			"requestState: no call of %s waits for this answer; call it anew",
			shortLine(r.Params.Name))}
	}
	unlink := context.AfterFunc(ctx, c.cancel)
	for id, response := range r.Params.InputResponses {
		if r, ok := response.(*mcp.ElicitResult); ok {
			c.answer(id, r)
		}
	}
	return c.await(ctx, r, unlink), nil
}

// finish ends the call. A result for which there is no room until the client comes back becomes an
// error.
func (c *heldCall) finish(result *mcp.CallToolResult) {
	defer close(c.done)
	c.mu.Lock()
	c.isOver = true
	isHeld := c.expiry != nil
	c.mu.Unlock()
	if isHeld && !c.e.held.keep(c, result) {
		result = failed(protocol.CodePayloadTooLarge,
			"the tool has run, but its result has no room beside those of other calls that wait")
	}
	c.result = result
}

// resume makes the request with the answers of a round the one that waits for the call. It reports
// false if the call no longer waits for that round, or is a call of another tool.
func (c *heldCall) resume(tool, round string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tool == tool && strconv.Itoa(c.round) == round && c.expiry.Stop()
}

// await waits until the call has ended, or asks something that the client can put to its user. The
// call ends with ctx, unless it is held; unlink parts the two.
func (c *heldCall) await(ctx context.Context, r *mcp.CallToolRequest, unlink func() bool,
) *mcp.CallToolResult {
	c.waiter.serve(ctx, r)
	defer c.waiter.release()
	for isOver := false; !isOver; {
		questions := c.inputRequests()
		if len(questions) == 0 {
			select {
			case <-c.asks:
			case <-c.done:
				isOver = true
			}
			continue
		}
		state := c.hold()
		if state != "" && ctx.Err() == nil && unlink() {
			return &mcp.CallToolResult{InputRequests: questions, RequestState: state}
		}
		// The call or its request has ended, or too many calls are held: questions wait elsewhere.
		isOver = true
	}
	<-c.done
	c.drop()
	return c.result
}

// inputRequests are the call's questions as the client gets them.
func (c *heldCall) inputRequests() mcp.InputRequestMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := mcp.InputRequestMap{}
	for id, q := range c.questions {
		requests[id] = &mcp.ElicitParams{Message: q.Message, RequestedSchema: q.Schema}
	}
	return requests
}

// hold keeps the call for its client, and returns the state that the client brings back. It is ""
// if the call has ended, or too many are kept.
func (c *heldCall) hold() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isOver, c.expiry == nil && !c.e.held.add(c):
		return ""
	case c.expiry == nil:
		c.expiry = time.AfterFunc(heldTime, c.drop)
	default:
		c.expiry.Reset(heldTime)
	}
	c.round++
	return c.id + "." + strconv.Itoa(c.round)
}

// drop ends the call and forgets it.
func (c *heldCall) drop() {
	c.e.held.remove(c)
	c.mu.Lock()
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.mu.Unlock()
	c.cancel()
}

// asked notes a question to a person about the call, and that it is over. It is for
// [gateway.Call].Asked.
func (c *heldCall) asked(q adminapi.Question, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case over:
		delete(c.questions, q.ID)
	case q.Kind == adminapi.QuestionForm:
		c.questions[q.ID] = q
		chans.Wake(c.asks)
	}
}

// answer gives the answer of the client's user to the session. A question with a wrong answer goes
// on waiting, and is put again. One that the user dismisses waits for people elsewhere.
func (c *heldCall) answer(id string, r *mcp.ElicitResult) {
	c.mu.Lock()
	q, ok := c.questions[id]
	c.mu.Unlock()
	s, isRunning := c.e.h.gateway.Session(q.Session)
	if !ok || !isRunning {
		return
	}
	if answer, ok := readAnswer(r); ok {
		err := s.Answer(id, answer)
		if e, ok := errors.AsType[*protocol.Error](err); ok && e.Code == protocol.CodeInvalidJSON {
			return
		}
	} else if r.Action != "cancel" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.questions, id)
}

// waiter is the request that waits for a held call, and gets its progress.
type waiter struct {
	mu      sync.Mutex           // guards the fields that follow; held while progress is sent
	ctx     context.Context      // of request
	request *mcp.CallToolRequest // nil while the client asks its user
	missed  func()               // sends the last progress that came meanwhile, or nil
}

// serve makes r the request that waits.
func (w *waiter) serve(ctx context.Context, r *mcp.CallToolRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.request = ctx, r
	if w.missed != nil {
		w.missed()
		w.missed = nil
	}
}

// release says that no request waits.
func (w *waiter) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.request = nil, nil
}

// progress reports to the request that waits for the call that it goes on. If no request waits, the
// next one gets the report.
func (w *waiter) progress(n int, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	send := func() { progress(w.ctx, w.request, n, message) }
	if w.request == nil {
		w.missed = send
		return
	}
	send()
}
