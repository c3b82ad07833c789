package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxListened bounds the tasks that a stream tells of.
	maxListened = 2 * maxSessionTasks
	// maxListen bounds a request for a stream that tells of tasks, in bytes.
	maxListen = 16 << 10
	// taskIDsKey is the member of _meta in which moveTaskIDs puts the ids: the SDK drops members of other
	// objects that it does not know.
	taskIDsKey   = "tapgw/taskIds"
	methodListed = "notifications/subscriptions/acknowledged"
)

// listener is a subscriptions/listen of a client that wants to be told of tasks.
type listener struct {
	send    func(message []byte) error // writes a message beside the SDK, which knows no notifications/tasks
	elicits bool
	tasks   []*task
	ctx     context.Context // of the request
	running sync.WaitGroup

	mu   sync.Mutex
	due  map[*task]bool // that have changed
	wake chan struct{}  // holds one; there are some due
}

type (
	senderKey   struct{}
	listenerKey struct{}
)

// withSender notes in a context how to write a message to the client.
func withSender(ctx context.Context, send func(message []byte) error) context.Context {
	return context.WithValue(ctx, senderKey{}, send)
}

// moveTaskIDs puts params.notifications.taskIds of a request into its params._meta, if it has some.
func moveTaskIDs(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"taskIds"`)) || !bytes.Contains(message, []byte(methodListen)) {
		return message
	}
	type object = map[string]json.RawMessage
	var request, params, notifications, meta object
	if json.Unmarshal(message, &request) != nil || json.Unmarshal(request["params"], &params) != nil ||
		json.Unmarshal(params["notifications"], &notifications) != nil ||
		json.Unmarshal(params["_meta"], &meta) != nil || notifications["taskIds"] == nil || meta == nil {
		return message
	}
	meta[taskIDsKey] = notifications["taskIds"]
	var err1, err2 error
	params["_meta"], err1 = json.Marshal(meta)
	request["params"], err2 = json.Marshal(params)
	moved, err3 := json.Marshal(request)
	if errors.Join(err1, err2, err3) != nil {
		return message
	}
	return append(moved, '\n')
}

// listen serves a stream. One that names tasks is told of them until the client or the endpoint ends it.
func (e *endpoint) listen(ctx context.Context, r *mcp.SubscriptionsListenRequest,
	next func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	ids, _ := r.Params.Meta[taskIDsKey].([]any)
	if len(ids) == 0 {
		return next(ctx)
	}
	able := readAbilities(r.Params.Meta)
	if !able.tasks {
		return nil, errNoTasks()
	}
	send, ok := ctx.Value(senderKey{}).(func([]byte) error)
	l := &listener{send: send, elicits: able.elicits, due: map[*task]bool{}, wake: make(chan struct{}, 1)}
	for _, id := range ids[:min(len(ids), maxListened)] {
		id, _ := id.(string)
		if t := e.h.tasks.find(e, callerOf(ctx), id); t != nil && !l.due[t] {
			l.due[t] = true
			l.tasks = append(l.tasks, t)
		}
	}
	if !ok || len(l.tasks) == 0 {
		return next(ctx)
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, listenerKey{}, l))
	l.ctx = ctx
	defer l.running.Wait()
	defer cancel()
	result, err := next(ctx)
	if err == nil {
		<-ctx.Done() // the SDK returns at once when there is nothing else to tell
	}
	return result, err
}

// acknowledgeTasks adds the tasks to the acknowledgement of a stream that tells of some.
func (e *endpoint) acknowledgeTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		l, ok := ctx.Value(listenerKey{}).(*listener)
		if !ok || method != methodListed {
			return next(ctx, method, r)
		}
		params, isAck := r.GetParams().(*mcp.SubscriptionsAcknowledgedParams)
		client, isServer := r.GetSession().(*mcp.ServerSession)
		if !isAck || !isServer {
			return next(ctx, method, r)
		}
		type notifications struct {
			mcp.NotificationSubscriptions
			TaskIDs []string `json:"taskIds"`
		}
		type acknowledged struct {
			mcp.ParamsBase
			Notifications notifications `json:"notifications"`
		}
		a := &acknowledged{ParamsBase: mcp.ParamsBase{Meta: params.Meta},
			Notifications: notifications{NotificationSubscriptions: params.Notifications}}
		for _, t := range l.tasks {
			a.Notifications.TaskIDs = append(a.Notifications.TaskIDs, t.id)
		}
		result, err := next(ctx, method, &mcp.ServerRequest[*acknowledged]{Session: client, Params: a})
		if err == nil {
			subscription := params.Meta[mcp.MetaKeySubscriptionID]
			l.running.Go(func() { l.tell(subscription) })
		}
		return result, err
	}
}

// tell tells the client of its tasks, as they are now and when they change, until the request ends.
func (l *listener) tell(subscription any) {
	for _, t := range l.tasks {
		t.listen(l, true)
	}
	defer func() {
		for _, t := range l.tasks {
			t.listen(l, false)
		}
	}()
	for {
		for _, t := range l.take() {
			view := t.view(l.elicits)
			view.Meta = mcp.Meta{mcp.MetaKeySubscriptionID: subscription}
			message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": methodTask, "params": view})
			if err != nil || l.send(message) != nil {
				return
			}
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		if !pause(l.ctx, syncPause) { // fast progress gives one notification for many changes
			return
		}
	}
}

// note notes that a task has changed.
func (l *listener) note(t *task) {
	l.mu.Lock()
	l.due[t] = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the tasks that have changed since the last time.
func (l *listener) take() []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []*task
	for _, t := range l.tasks {
		if l.due[t] {
			due = append(due, t)
		}
	}
	clear(l.due)
	return due
}

// listen adds a listener, or removes it.
func (t *task) listen(l *listener, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !on {
		delete(t.listeners, l)
		return
	}
	if t.listeners == nil {
		t.listeners = map[*listener]bool{}
	}
	t.listeners[l] = true
}

// serveModern serves a request of a revision without a handshake. It does what the extension asks of HTTP
// and the SDK does not do.
func (e *endpoint) serveModern(w http.ResponseWriter, r *http.Request) {
	method := r.Header.Get("Mcp-Method")
	isListen := method == methodListen
	isTask := method == methodGetTask || method == methodUpdateTask || method == methodCancelTask
	if !isListen && !isTask {
		e.modern.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("reading the body: %w", err))
		return
	}
	if isTask && !checkTaskName(w, r.Header.Get("Mcp-Name"), body) {
		return
	}
	if isListen {
		body = moveTaskIDs(body)
		events := &eventWriter{ResponseWriter: w}
		w = events
		r = r.WithContext(withSender(r.Context(), events.send))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	e.modern.ServeHTTP(w, r)
}

// checkTaskName checks that the header Mcp-Name of a request for a task is the task's id. It answers and
// reports false otherwise.
func checkTaskName(w http.ResponseWriter, name string, body []byte) bool {
	var request struct {
		ID     json.RawMessage `json:"id"`
		Params struct {
			TaskID *string `json:"taskId"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &request) != nil || request.Params.TaskID == nil || *request.Params.TaskID == name {
		return true // what else is wrong, the SDK says
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": request.ID, "error": map[string]any{
		"code": mcp.CodeHeaderMismatch, "message": "the header Mcp-Name must be params.taskId"}})
	return false
}

// eventWriter is the answer of a stream, into which others than the SDK write events, too.
type eventWriter struct {
	http.ResponseWriter
	mu sync.Mutex
}

// Write writes what the SDK has: a whole event.
func (w *eventWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// FlushError sends what was written.
func (w *eventWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// send writes a message as an event.
func (w *eventWriter) send(message []byte) error {
	if _, err := w.Write(fmt.Appendf(nil, "event: message\ndata: %s\n\n", message)); err != nil {
		return err
	}
	return w.FlushError()
}
