package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

const (
	// taskGrace is how long a call may take until it becomes a task. A client that takes tasks polls at
	// once or half a second later, so a longer grace gains nothing.
	taskGrace = 500 * time.Millisecond
	// taskTTL is how long a task is kept from its beginning: the longest call takes an hour.
	taskTTL = 2 * time.Hour
	// fetchedTTL is how long a task is kept after a client has read how it ended.
	fetchedTTL = 5 * time.Minute
	// minPoll and maxPoll bound the advice when to ask again. An old task is seldom about to end.
	minPoll = 500 * time.Millisecond
	maxPoll = 5 * time.Second
	// maxStatus bounds a task's message, in bytes.
	maxStatus = 1 << 10
)

// The states of a task.
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
	taskCancelled     = "cancelled"
)

// task is a call of a client that takes tasks. It becomes a task when it takes longer than taskGrace or
// waits for a person; until then it is a call as any other and has no id. It runs on when its client
// goes, and ends with its session.
type task struct {
	e      *endpoint
	caller caller
	held   *held              // of a call whose client asks its user by itself; nil for what may become a task
	cancel context.CancelFunc // of the call
	waits  chan struct{}      // closed when a person is asked for the first time
	done   chan struct{}      // closed when the call has ended; result and err are fixed then
	result mcp.Result
	err    error

	mu        sync.Mutex
	id        string // "" while it is an ordinary call
	isOver    bool   // the call has ended
	created   time.Time
	updated   time.Time
	ttl       time.Duration
	expiry    *time.Timer
	isFetched bool
	status    string                       // working, until a final one
	message   string                       // the call's last progress, or why it ended
	questions map[string]adminapi.Question // that wait for an answer, by id
	dismissed map[string]bool              // ids of questions that the client will not answer
	outcome   json.RawMessage              // of a completed task: the call's result
	failure   *jsonrpc.Error               // of a failed task
	listeners map[*listener]bool
}

// taskView is a task as clients get it.
type taskView struct {
	mcp.ResultBase
	ResultType     string              `json:"resultType,omitempty"` // none in a notification
	TaskID         string              `json:"taskId"`
	Status         string              `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      time.Time           `json:"createdAt"`
	LastUpdatedAt  time.Time           `json:"lastUpdatedAt"`
	TTLMs          int64               `json:"ttlMs"`
	PollIntervalMs int64               `json:"pollIntervalMs"`
	InputRequests  mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result         json.RawMessage     `json:"result,omitempty"`
	Error          *jsonrpc.Error      `json:"error,omitempty"`
}

type taskKey struct{}

// taskOf returns the task, or what may become one, whose call has ctx; nil for other calls.
func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(taskKey{}).(*task)
	return t
}

// callOrTask runs a call of a client that takes tasks. It returns the call's result, or a task if the call
// takes longer. If there are too many tasks, it waits for the result.
func (e *endpoint) callOrTask(ctx context.Context, call func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	t, unlink := e.startTask(ctx, nil, call)
	grace := time.NewTimer(taskGrace)
	defer grace.Stop()
	select {
	case <-t.done:
		return t.result, t.err
	case <-t.waits:
	case <-grace.C:
	case <-ctx.Done():
	}
	// Of a request that has ended nobody gets a task. When its context has just ended, unlink may come before the
	// cancelling that it takes back.
	if ctx.Err() == nil && unlink() && t.begin() {
		view := t.view(false)
		view.ResultType = "task"
		return view, nil
	}
	defer context.AfterFunc(ctx, t.cancel)()
	<-t.done
	return t.result, t.err
}

// startTask runs a call. It ends with ctx, until unlink is called.
func (e *endpoint) startTask(ctx context.Context, h *held, call func(context.Context) (mcp.Result, error),
) (t *task, unlink func() bool) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink = context.AfterFunc(ctx, cancel)
	t = &task{e: e, caller: callerOf(ctx), held: h, cancel: cancel, waits: make(chan struct{}),
		done: make(chan struct{}), status: taskWorking, questions: map[string]adminapi.Question{}}
	e.h.running.Go(func() {
		defer cancel()
		t.finish(call(context.WithValue(run, taskKey{}, t)))
	})
	return t, unlink
}

// begin makes the call a task. It reports false if the call has ended, or there are too many tasks.
func (t *task) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOver {
		return false
	}
	now := time.Now().UTC()
	t.id, t.created, t.updated, t.ttl = rand.Text(), now, now, taskTTL
	if !t.e.h.tasks.add(t) {
		t.id = ""
		return false
	}
	t.expiry = time.AfterFunc(t.ttl, t.expire)
	return true
}

// finish ends the call. Its result is the answer, or the task's.
func (t *task) finish(result mcp.Result, err error) {
	defer close(t.done)
	t.mu.Lock()
	t.isOver, t.result, t.err = true, result, err
	isTask := t.id != ""
	t.mu.Unlock()
	if !isTask {
		return
	}
	var outcome json.RawMessage
	if err == nil {
		outcome, err = json.Marshal(result)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch rpc, _ := errors.AsType[*jsonrpc.Error](err); {
	case t.status != taskWorking:
	case err != nil:
		t.failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		if rpc != nil {
			t.failure.Code, t.failure.Data = rpc.Code, rpc.Data
		}
		t.end(taskFailed, err.Error())
	case !t.e.h.tasks.keep(t, len(outcome)):
		t.result = failed(protocol.CodePayloadTooLarge, fmt.Sprintf(
			"the tool has run, but its result of %d bytes has no room beside the results of other tasks",
			len(outcome),
		))
		t.outcome, _ = json.Marshal(t.result)
		t.end(taskCompleted, "")
	default:
		t.outcome = outcome
		t.end(taskCompleted, "")
	}
	if t.held != nil {
		t.outcome = nil // its client gets the result as it is
	} else {
		t.result = nil
	}
}

// end gives the task its final status. Call with mu held.
func (t *task) end(status, message string) {
	t.status, t.message = status, shortLine(message)
	clear(t.questions)
	t.changed()
}

// abort cancels the task, unless it has ended.
func (t *task) abort(message string) {
	t.mu.Lock()
	if t.status == taskWorking {
		t.end(taskCancelled, message)
	}
	t.mu.Unlock()
	t.cancel()
}

// expire ends and forgets the task when its time is up.
func (t *task) expire() {
	t.abort("its time to live is over")
	t.drop()
}

// drop forgets the task. Its call ends.
func (t *task) drop() {
	t.e.h.tasks.remove(t)
	t.mu.Lock()
	t.expiry.Stop()
	t.mu.Unlock()
	t.cancel()
}

// changed tells the listeners. Call with mu held.
func (t *task) changed() {
	t.updated = time.Now().UTC()
	for l := range t.listeners {
		l.note(t)
	}
}

// say makes a message of the call the task's. It reports false while the call is no task: the client wants
// to be told of progress then.
func (t *task) say(message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if line := shortLine(message); t.status == taskWorking && line != t.message {
		t.message = line
		t.changed()
	}
	return t.id != "" && t.held == nil
}

// asked notes a question to a person about the call, and that it is over. It is for [gateway.Call].Asked.
func (t *task) asked(q adminapi.Question, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.status != taskWorking:
		return
	case over:
		delete(t.questions, q.ID)
	default:
		t.questions[q.ID] = q
	}
	t.changed()
	if t.held != nil {
		t.held.look()
		return
	}
	select {
	case <-t.waits:
	default:
		close(t.waits)
	}
}

// view is the task of now for a client; elicits says that the client can ask its user.
func (t *task) view(elicits bool) *taskView {
	t.mu.Lock()
	defer t.mu.Unlock()
	poll := min(max(time.Since(t.created)/8, minPoll), maxPoll)
	v := &taskView{TaskID: t.id, Status: t.status, StatusMessage: t.message, CreatedAt: t.created,
		LastUpdatedAt: t.updated, TTLMs: t.ttl.Milliseconds(), PollIntervalMs: poll.Milliseconds(),
		Result: t.outcome, Error: t.failure}
	for _, id := range slices.Sorted(maps.Keys(t.questions)) {
		q := t.questions[id]
		v.StatusMessage = shortLine("waits for a person's answer to " + id + ": " + q.Message)
		if elicits && q.Kind == adminapi.QuestionForm && !t.dismissed[id] {
			if v.InputRequests == nil {
				v.Status, v.InputRequests = taskInputRequired, mcp.InputRequestMap{}
			}
			v.InputRequests[id] = &mcp.ElicitParams{Message: q.Message, RequestedSchema: q.Schema}
		}
	}
	return v
}

// fetched notes that a client has read how the task ended: it is kept for fetchedTTL from then on.
func (t *task) fetched() {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := time.Since(t.created)
	if t.status == taskWorking || t.isFetched || age+fetchedTTL >= t.ttl || !t.expiry.Stop() {
		return
	}
	t.isFetched, t.ttl = true, age+fetchedTTL
	t.expiry.Reset(fetchedTTL)
}

// question returns a question of the task that a client may answer.
func (t *task) question(id string) (adminapi.Question, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, ok := t.questions[id]
	return q, ok && q.Kind == adminapi.QuestionForm && !t.dismissed[id]
}

// answer gives a client's answer to a question of the task to the session. Answers to other questions are
// ignored, and those that come too late: a question is also answered elsewhere. The error says what is
// wrong with an answer; the question goes on waiting.
func (t *task) answer(id string, response json.RawMessage) error {
	q, ok := t.question(id)
	s, running := t.e.h.gateway.Session(q.Session)
	if !ok || !running {
		return nil
	}
	a, err := readAnswer(response)
	if err != nil {
		return fmt.Errorf("inputResponses.%s%w", id, err)
	}
	if a == nil { // nobody answered there, but somebody may elsewhere
		t.close(id, true)
		return nil
	}
	err = s.Answer(id, *a)
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Code == protocol.CodeInvalidJSON {
		return fmt.Errorf("inputResponses.%s.%s", id, e.Message)
	}
	t.close(id, false)
	return nil
}

// readAnswer reads an answer of a client's user to a question; nil if they gave none. The error begins with the member
// that is wrong.
func readAnswer(response json.RawMessage) (*gateway.Answer, error) {
	var in struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(response, &in) != nil {
		return nil, errors.New(": must be an object with action and content")
	}
	switch in.Action {
	case "accept":
		return &gateway.Answer{Person: "an MCP client", Content: protocol.Raw(cmp.Or(string(in.Content), "{}"))}, nil
	case "decline":
		return &gateway.Answer{Person: "an MCP client", Decision: adminapi.DecideDeny}, nil
	case "cancel":
		return nil, nil
	}
	return nil, errors.New(".action: must be accept, decline or cancel")
}

// close takes a question from those that a client may answer; dismissed says that it still waits for a
// person elsewhere.
func (t *task) close(id string, dismissed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !dismissed {
		delete(t.questions, id)
	} else {
		if t.dismissed == nil {
			t.dismissed = map[string]bool{}
		}
		t.dismissed[id] = true
	}
	t.changed()
}

// shortLine is a text of a provider for people, in one line.
func shortLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxStatus {
		text = strings.ToValidUTF8(text[:maxStatus], "") + " …"
	}
	return visible.Line(text)
}
