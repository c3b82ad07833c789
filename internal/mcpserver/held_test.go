package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// heldWorld is an endpoint whose calls ask something and last as long as a test wants.
type heldWorld struct {
	*testing.T
	h   *Handler
	e   *endpoint
	ctx context.Context // of requests
}

func newHeldWorld(t *testing.T) *heldWorld {
	t.Helper()
	h := New(Options{Gateway: gateway.New(gateway.Options{})})
	w := &heldWorld{T: t, h: h, ctx: t.Context()}
	var err error
	if w.e, err = w.h.acquire(target{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.h.Close)
	return w
}

// ask runs a call of the tool ask. After its question it lasts until ended is closed or it is
// cancelled, and gives text or the error.
func (w *heldWorld) ask(ended <-chan struct{}, text string) *mcp.CallToolResult {
	w.Helper()
	r := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "ask"}}
	call := func(ctx context.Context, held *heldCall) *mcp.CallToolResult {
		held.asked(adminapi.Question{ID: "q1", Kind: adminapi.QuestionForm, Message: "name?",
			Schema: json.RawMessage(`{"type":"object"}`)}, false)
		select {
		case <-ended:
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
		case <-ctx.Done():
			return failed(protocol.CodeCancelled, context.Cause(ctx).Error())
		}
	}
	result, err := w.e.callOrAsk(w.ctx, r, call)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// hold begins a call that is held, and returns it and its state.
func (w *heldWorld) hold(ended <-chan struct{}, text string) (state string, c *heldCall) {
	w.Helper()
	result := w.ask(ended, text)
	id, _, ok := strings.Cut(result.RequestState, ".")
	if result.InputRequests["q1"] == nil || !ok {
		w.Fatalf("a call that asks: got %+v, want its question and a state", result)
	}
	return result.RequestState, w.e.held.find(callerOf(w.ctx), id)
}

// goOn comes back to an endpoint for a held call.
func (w *heldWorld) goOn(ctx context.Context, e *endpoint, tool, state string,
) (*mcp.CallToolResult, error) {
	r := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, RequestState: state}}
	return e.callOrAsk(ctx, r, func(context.Context, *heldCall) *mcp.CallToolResult {
		w.Error("a call with a state runs the tool anew, want that it does not")
		return nil
	})
}

func (w *heldWorld) isThere(c *heldCall) bool { return w.e.held.find(c.caller, c.id) == c }

func TestStatesOfHeldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeldWorld(t)
		elsewhere, err := w.h.acquire(target{terminal: true})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		state, held := w.hold(ended, "done")
		stranger := context.WithValue(w.ctx, callerKey{}, caller{1})
		for name, tc := range map[string]struct {
			ctx         context.Context
			e           *endpoint
			tool, state string
		}{
			"no state of ours": {w.ctx, w.e, "ask", "x.1"},
			"changed":          {w.ctx, w.e, "ask", state + "-TAMPERED"},
			"another tool":     {w.ctx, w.e, "push", state},
			"another token":    {stranger, w.e, "ask", state},
			"another URL":      {w.ctx, elsewhere, "ask", state},
		} {
			result, err := w.goOn(tc.ctx, tc.e, tc.tool, tc.state)
			if rpc, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
				rpc.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: got %v, %v, want -32602", name, result, err)
			}
		}
		again, err := w.goOn(w.ctx, w.e, "ask", state) // without an answer
		if err != nil || again.InputRequests["q1"] == nil || again.RequestState == state {
			t.Fatalf("without an answer: got %+v, %v, want the question and another state", again,
				err)
		}
		if _, err := w.goOn(w.ctx, w.e, "ask", state); err == nil {
			t.Error("the state of an earlier round: got no error, want one")
		}
		close(ended)
		synctest.Wait()
		held.asked(adminapi.Question{ID: "q1"}, true)
		result, err := w.goOn(w.ctx, w.e, "ask", again.RequestState)
		if err != nil || len(result.Content) != 1 {
			t.Errorf("after its end: got %+v, %v, want the result", result, err)
		}
		if w.isThere(held) {
			t.Error("after its end: the call is kept, want that it is gone")
		}
	})
}

func TestHeldCallEndsWithoutItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeldWorld(t)
		state, held := w.hold(nil, "")
		w.h.release(w.e)
		_ = chans.Sleep(w.ctx, heldTime-1)
		synctest.Wait()
		if !w.isThere(held) || len(w.h.list()) != 1 {
			t.Errorf("just before its time: the call is there %v, endpoints %d, want both",
				w.isThere(held), len(w.h.list()))
		}
		_ = chans.Sleep(w.ctx, 2)
		synctest.Wait()
		if _, err := w.goOn(w.ctx, w.e, "ask", state); err == nil || !held.isOver {
			t.Errorf("after its time: got %v, ended %v, want an error and true", err, held.isOver)
		}
		_ = chans.Sleep(w.ctx, idleTime)
		synctest.Wait()
		if got := len(w.h.list()); got != 0 {
			t.Errorf("after the call: got %d endpoints, want 0", got)
		}
	})
}

func TestHeldCallEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeldWorld(t)
		state, held := w.hold(nil, "")
		held.asked(adminapi.Question{ID: "q1"}, true)
		ctx, cancel := context.WithCancel(w.ctx)
		ended := make(chan *mcp.CallToolResult, 1)
		go func() {
			result, _ := w.goOn(ctx, w.e, "ask", state)
			ended <- result
		}()
		synctest.Wait()
		cancel()
		if r := <-ended; r == nil || !r.IsError {
			t.Errorf("a cancelled request: got %+v, want the call cancelled", r)
		}
		if w.isThere(held) {
			t.Error("a cancelled request: the call is kept, want that it is gone")
		}
	})
}

func TestHeldCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeldWorld(t)
		var calls []*heldCall
		for range maxHeldCalls {
			_, c := w.hold(nil, "")
			calls = append(calls, c)
		}
		ended := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(ended) })
		if r := w.ask(ended, "late"); r.RequestState != "" || len(r.Content) != 1 {
			t.Errorf("a call beyond %d that are held: got %+v, want its result", maxHeldCalls, r)
		}
		w.h.mu.Lock()
		w.h.remove(w.e)
		w.h.mu.Unlock()
		synctest.Wait()
		for _, c := range calls {
			if w.isThere(c) || !c.isOver {
				t.Fatalf("after the end of the endpoint: held %v, ended %v, want the end",
					w.isThere(c), c.isOver)
			}
		}
	})
}

func TestResultsOfHeldCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeldWorld(t)
		others := &heldCall{}
		big := strings.Repeat("x", 2000)
		for text, isError := range map[string]bool{big: true, "small": false} {
			ended := make(chan struct{})
			state, held := w.hold(ended, text)
			w.e.held.sizes[others] = maxHeldBytes - 1000
			close(ended)
			synctest.Wait()
			held.asked(adminapi.Question{ID: "q1"}, true)
			r, err := w.goOn(w.ctx, w.e, "ask", state)
			if err != nil || r.IsError != isError {
				t.Errorf("a result of %d bytes: got %+v, %v, want an error as the result: %v",
					len(text), r, err, isError)
			}
			if len(w.e.held.sizes) != 1 {
				t.Errorf("a result that was fetched: got %d that count, want the others alone",
					len(w.e.held.sizes))
			}
		}
	})
}

func TestShortLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\t c":                   "a b c",
		"\x1b[31mx":                  `\x1b[31mx`,
		strings.Repeat("é", maxLine): strings.Repeat("é", maxLine/2) + " …",
	} {
		if got := shortLine(text); got != want {
			t.Errorf("%.20q: got %.40q, want %.40q", text, got, want)
		}
	}
}
