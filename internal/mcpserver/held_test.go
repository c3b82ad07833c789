package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
)

// hold begins a call of the tool ask that is held, and returns its state. The call lasts until ended is closed.
func (w *taskWorld) hold(ended <-chan struct{}) (state string, id string) {
	w.Helper()
	r := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "ask"}}
	result, err := w.e.callOrAsk(w.ctx, r, func(ctx context.Context) (mcp.Result, error) {
		taskOf(ctx).asked(adminapi.Question{ID: "q1", Kind: adminapi.QuestionForm, Message: "name?",
			Schema: json.RawMessage(`{"type":"object"}`)}, false)
		select {
		case <-ended:
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	if err != nil || result.InputRequests["q1"] == nil || result.RequestState == "" {
		w.Fatalf("a call that asks: got %+v, %v, want its question and a state", result, err)
	}
	return result.RequestState, result.RequestState[:len(result.RequestState)-len(".1")]
}

// goOn comes back for a held call.
func (w *taskWorld) goOn(ctx context.Context, tool, state string) (*mcp.CallToolResult, error) {
	r := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, RequestState: state}}
	return w.e.callOrAsk(ctx, r, func(context.Context) (mcp.Result, error) {
		w.Error("a call with a state runs the tool anew, want that it does not")
		return nil, nil
	})
}

func TestStatesOfHeldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		ended := make(chan struct{})
		state, id := w.hold(ended)
		stranger := context.WithValue(w.ctx, callerKey{}, caller{1})
		for name, try := range map[string]func() (*mcp.CallToolResult, error){
			"no state of ours": func() (*mcp.CallToolResult, error) { return w.goOn(w.ctx, "ask", "x.1") },
			"changed":          func() (*mcp.CallToolResult, error) { return w.goOn(w.ctx, "ask", state+"-TAMPERED") },
			"another tool":     func() (*mcp.CallToolResult, error) { return w.goOn(w.ctx, "push", state) },
			"another token":    func() (*mcp.CallToolResult, error) { return w.goOn(stranger, "ask", state) },
		} {
			result, err := try()
			if rpc, ok := errors.AsType[*jsonrpc.Error](err); !ok || rpc.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: got %v, %v, want -32602", name, result, err)
			}
		}
		if _, err := w.e.task(w.ctx, id); err == nil {
			t.Error("tasks/get of a held call: got no error, want that it is no task")
		}
		again, err := w.goOn(w.ctx, "ask", state) // without an answer
		if err != nil || again.InputRequests["q1"] == nil || again.RequestState == state {
			t.Fatalf("without an answer: got %+v, %v, want the question and another state", again, err)
		}
		if _, err := w.goOn(w.ctx, "ask", state); err == nil {
			t.Error("the state of an earlier round: got no error, want one")
		}
		close(ended)
		synctest.Wait()
		w.h.tasks.find(w.e, callerOf(w.ctx), id).asked(adminapi.Question{ID: "q1"}, true)
		result, err := w.goOn(w.ctx, "ask", again.RequestState)
		if err != nil || len(result.Content) != 1 {
			t.Errorf("after its end: got %+v, %v, want the result", result, err)
		}
		if w.h.tasks.find(w.e, callerOf(w.ctx), id) != nil {
			t.Error("after its end: the call is kept, want that it is gone")
		}
	})
}

func TestHeldCallEndsWithoutItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		state, id := w.hold(nil)
		pause(w.ctx, heldTime-1)
		synctest.Wait()
		if w.h.tasks.find(w.e, callerOf(w.ctx), id) == nil {
			t.Error("just before its time: the call is gone, want it there")
		}
		pause(w.ctx, 2)
		synctest.Wait()
		if _, err := w.goOn(w.ctx, "ask", state); err == nil {
			t.Error("after its time: got no error, want one")
		}
	})
}

func TestHeldCallEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTaskWorld(t)
		state, id := w.hold(nil)
		w.h.tasks.find(w.e, callerOf(w.ctx), id).asked(adminapi.Question{ID: "q1"}, true)
		ctx, cancel := context.WithCancel(w.ctx)
		failed := make(chan error, 1)
		go func() {
			_, err := w.goOn(ctx, "ask", state)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled request: got %v, want its end", err)
		}
		if w.h.tasks.find(w.e, callerOf(w.ctx), id) != nil {
			t.Error("a cancelled request: the call is kept, want that it is gone")
		}
	})
}
