package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/gateway"
)

// taskWorld is an endpoint whose calls last as long as a test wants.
type taskWorld struct {
	*testing.T
	h   *Handler
	e   *endpoint
	ctx context.Context // of requests
}

func newTaskWorld(t *testing.T) *taskWorld {
	t.Helper()
	g := gateway.New(gateway.Options{})
	w := &taskWorld{T: t, h: New(Options{Gateway: g}), ctx: t.Context()}
	var err error
	if w.e, err = w.h.acquire(target{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.h.Close)
	return w
}

// call is a call that takes d and gives text.
func (w *taskWorld) call(ctx context.Context, d time.Duration, text string) (mcp.Result, error) {
	return w.e.callOrTask(ctx, func(ctx context.Context) (mcp.Result, error) {
		if !pause(ctx, d) {
			return nil, context.Cause(ctx)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
}

// task begins a task.
func (w *taskWorld) task(d time.Duration, text string) *task {
	w.Helper()
	result, err := w.call(w.ctx, d, text)
	view, ok := result.(*taskView)
	if err != nil || !ok {
		w.Fatalf("a call of %s: got %T, %v, want a task", d, result, err)
	}
	return w.h.tasks.find(w.e, callerOf(w.ctx), view.TaskID)
}

func (w *taskWorld) isThere(t *task) bool { return w.h.tasks.find(w.e, t.caller, t.id) == t }

func TestOnlySlowCallsBecomeTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		for _, tc := range []struct {
			takes  time.Duration
			isTask bool
		}{{0, false}, {taskGrace - 1, false}, {taskGrace + 1, true}} {
			begun := time.Now()
			result, err := w.call(w.ctx, tc.takes, "x")
			view, isTask := result.(*taskView)
			if err != nil || isTask != tc.isTask || time.Since(begun) > taskGrace {
				t.Fatalf("a call of %s: got %T, %v after %s, want a task: %v", tc.takes, result, err, time.Since(begun),
					tc.isTask)
			}
			if isTask && (view.ResultType != "task" || view.Status != taskWorking ||
				view.TTLMs != taskTTL.Milliseconds() || len(view.TaskID) < 26 || !view.CreatedAt.Equal(time.Now())) {
				t.Errorf("the task: got %+v, want one that works for two hours at most", view)
			}
		}
	})
}

func TestTimeOfTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		short, unread, long := w.task(time.Minute, "one"), w.task(time.Minute, "two"), w.task(3*taskTTL, "")
		if v := long.view(false); v.PollIntervalMs != minPoll.Milliseconds() {
			t.Errorf("poll interval of a new task: got %d ms, want %s", v.PollIntervalMs, minPoll)
		}
		<-time.After(2 * time.Minute)
		if v := short.view(false); v.Status != taskCompleted || !strings.Contains(string(v.Result), "one") {
			t.Errorf("after its call: got %+v, want the result", v)
		}
		if v := long.view(false); v.PollIntervalMs != maxPoll.Milliseconds() {
			t.Errorf("poll interval of an old task: got %d ms, want %s", v.PollIntervalMs, maxPoll)
		}
		short.fetched()
		long.fetched() // it has not ended
		end := short.created.Add(time.Duration(short.view(false).TTLMs) * time.Millisecond)
		if left := time.Until(end); left < fetchedTTL-time.Second || left > fetchedTTL {
			t.Errorf("once read: got %s to live, want %s", left, fetchedTTL)
		}
		<-time.After(fetchedTTL - time.Second)
		short.fetched() // once more: this does not lengthen its life
		if !w.isThere(short) {
			t.Error("before its time is up: got no task, want it")
		}
		<-time.After(2 * time.Second)
		if w.isThere(short) || !w.isThere(unread) {
			t.Errorf(
				"after five minutes: got read %v, unread %v, want the unread one",
				w.isThere(short),
				w.isThere(unread),
			)
		}
		<-time.After(taskTTL)
		if w.isThere(unread) || w.isThere(long) || len(w.h.tasks.sizes) != 0 {
			t.Errorf("after %s: got %v, %v, sizes %v, want nothing", taskTTL, w.isThere(unread), w.isThere(long),
				w.h.tasks.sizes)
		}
		if v := long.view(false); v.Status != taskCancelled || !long.isOver {
			t.Errorf("a call that goes on for too long: got %+v, over %v, want it cancelled", v, long.isOver)
		}
	})
}

// A client that goes takes its call along, but not its task.
func TestTaskOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { <-time.After(taskGrace / 2); cancel() }()
		if result, err := w.call(ctx, time.Hour, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that ends early: got %v, %v, want the call cancelled", result, err)
		}
		request, cancel := context.WithCancel(w.ctx)
		result, _ := w.call(request, time.Minute, "late")
		cancel()
		<-time.After(2 * time.Minute)
		view, ok := result.(*taskView)
		if !ok {
			t.Fatalf("a slow call: got %T, want a task", result)
		}
		if got := w.h.tasks.find(w.e, callerOf(w.ctx), view.TaskID).view(false); got.Status != taskCompleted {
			t.Errorf("a task whose request has ended: got %+v, want its result", got)
		}
	})
}

func TestTasksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		const calls = 10_000
		var running sync.WaitGroup
		results := make([]mcp.Result, calls)
		for i := range results {
			running.Go(func() { results[i], _ = w.call(w.ctx, time.Minute, "x") })
		}
		running.Wait()
		tasks, flat := 0, 0
		for _, r := range results {
			switch r.(type) {
			case *taskView:
				tasks++
			case *mcp.CallToolResult:
				flat++
			}
		}
		if tasks != maxSessionTasks || flat != calls-maxSessionTasks {
			t.Errorf(
				"%d calls: got %d tasks and %d results, want %d tasks and the rest",
				calls,
				tasks,
				flat,
				maxSessionTasks,
			)
		}
		w.h.remove(w.e)
		if got := len(w.h.tasks.byID) + len(w.h.tasks.sizes); got != 0 {
			t.Errorf("after the end of the endpoint: got %d tasks and results, want none", got)
		}
	})
}

func TestTasksOfOneTokenAreBounded(t *testing.T) {
	l := &taskList{}
	mine := 0
	ctx := t.Context()
	for range 2 * maxCallerTasks / maxSessionTasks {
		e := &endpoint{ctx: ctx}
		for range maxSessionTasks {
			if l.add(&task{e: e, id: rand.Text()}) {
				mine++
			}
		}
	}
	if mine != maxCallerTasks {
		t.Errorf("tasks of one token: got %d, want %d", mine, maxCallerTasks)
	}
	if !l.add(&task{e: &endpoint{ctx: ctx}, caller: caller{1}, id: "other"}) {
		t.Error("a task of another token: got it refused, want it")
	}
}

func TestLongResultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		w.h.tasks.byID = map[string]*task{}
		w.h.tasks.sizes = map[*task]int{{e: w.e}: maxSessionBytes - 1000}
		big, small := w.task(time.Second, strings.Repeat("x", 2000)), w.task(time.Second, "small")
		<-time.After(time.Minute)
		if v := big.view(false); v.Status != taskCompleted ||
			!strings.Contains(string(v.Result), "PAYLOAD_TOO_LARGE") ||
			!strings.Contains(string(v.Result), `"isError":true`) {
			t.Errorf("a result without room: got %.200s %.200s, want an error as the result", v.Status, v.Result)
		}
		if v := small.view(false); !strings.Contains(string(v.Result), "small") {
			t.Errorf("a result with room: got %s, want it", v.Result)
		}
	})
}

// A task has one end, whoever comes first, and its call ends.
func TestEndsOfATaskRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		for i := range 200 {
			one := w.task(taskGrace+time.Second, "x")
			<-time.After(time.Second - time.Millisecond)
			var running sync.WaitGroup
			running.Go(func() { <-time.After(time.Millisecond); one.abort("cancelled") })
			running.Go(func() { <-time.After(time.Millisecond); one.say("half") })
			running.Go(func() { <-time.After(time.Millisecond); one.view(true) })
			running.Go(func() { <-time.After(time.Millisecond); one.fetched() })
			if i%2 == 0 {
				running.Go(func() { <-time.After(time.Millisecond); one.expire() })
			}
			running.Wait()
			synctest.Wait()
			first := mustJSON(t, one.view(true))
			one.abort("again")
			one.say("again")
			if got := mustJSON(t, one.view(true)); !one.isOver || string(got) != string(first) {
				t.Fatalf("after its end: got %s, want %s", got, first)
			}
			one.drop()
		}
	})
}

func TestFailedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		result, err := w.e.callOrTask(w.ctx, func(ctx context.Context) (mcp.Result, error) {
			pause(ctx, time.Second)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no", Data: json.RawMessage(`1`)}
		})
		view, ok := result.(*taskView)
		if !ok {
			t.Fatalf("got %v, %v, want a task", result, err)
		}
		<-time.After(time.Minute)
		v := w.h.tasks.find(w.e, caller{}, view.TaskID).view(false)
		if v.Status != taskFailed || v.Error == nil || v.Error.Code != jsonrpc.CodeInvalidParams || v.Result != nil {
			t.Errorf("an error of the protocol: got %+v, want a failed task with it", v)
		}
	})
}

func TestEndpointWithTasksStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		w.task(time.Minute, "x")
		w.h.release(w.e)
		<-time.After(2 * idleTime)
		if got := len(w.h.list()); got != 1 {
			t.Errorf("with a task: got %d endpoints, want 1", got)
		}
		<-time.After(taskTTL + idleTime)
		if got := len(w.h.list()); got != 0 {
			t.Errorf("after the task's time: got %d endpoints, want none", got)
		}
	})
}

func TestStatusIsOneVisibleLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\t c":                     "a b c",
		"\x1b[31mx":                    `\x1b[31mx`,
		strings.Repeat("é", maxStatus): strings.Repeat("é", maxStatus/2) + " …",
	} {
		if got := shortLine(text); got != want {
			t.Errorf("%.20q: got %.40q, want %.40q", text, got, want)
		}
	}
}
