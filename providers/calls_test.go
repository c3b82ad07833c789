package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

type greetArgs struct {
	Name string `json:"name" jsonschema:"who to greet"`
	Loud bool   `json:"loud,omitempty"`
}

func greet(_ context.Context, in greetArgs) (string, error) {
	return "Hello, " + in.Name + "!", nil
}

// connected returns a provider with these tools that is bound to s1.
func connected(t testing.TB, o *providers.Options, tools ...providers.Tool) (*peer, *running) {
	t.Helper()
	dir := home(t)
	g := newGateway(t)
	writeState(t, dir, ".provider-token", "ptk-file\n")
	writeState(t, dir, "gateway.json", `{"url":"`+g.url+`","pid":1}`)
	if o == nil {
		o = &providers.Options{}
	}
	o.Logger = quiet
	p := providers.New("sample", o)
	if _, err := p.SetTools(t.Context(), tools); err != nil {
		t.Fatal(err)
	}
	r := run(t, p)
	peer := g.accept()
	peer.bind()
	return peer, r
}

// raw makes a tool of a handler.
func raw(
	name string, f func(ctx context.Context, args json.RawMessage) (any, error),
) providers.Tool {
	return providers.Tool{Name: name, Description: "does " + name, Handler: f}
}

// fixed makes a tool that always ends the same way.
func fixed(name string, out any, err error) providers.Tool {
	return raw(name, func(context.Context, json.RawMessage) (any, error) { return out, err })
}

// A call has one result, whatever its function does.
func TestOutcome(t *testing.T) {
	hello, err := providers.NewTool("hello", "Say hello", greet)
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 5<<20)
	tests := map[string]struct {
		tool providers.Tool
		args string
		want string // the result, without type and id
	}{
		"typed": {hello, `{"name":"Alice"}`, `"data":"Hello, Alice!"`},
		"typed, wrong arguments": {hello, `{"name":7}`,
			`"error":"reading the arguments: json: cannot unmarshal number into Go struct field greetArgs.name of type string","errorCode":"INTERNAL"`},
		"object": {fixed("hello", map[string]any{"a": "<b>&"}, nil), `{}`,
			`"data":{"a":"<b>&"}`},
		"null":     {fixed("hello", nil, nil), `{}`, `"data":null`},
		"raw JSON": {fixed("hello", json.RawMessage(`[1, 2]`), nil), `{}`, `"data":[1,2]`},
		"file by pointer": {fixed("hello", &providers.File{Path: "/var/p/b"}, nil), `{}`,
			`"file":{"path":"/var/p/b"}`},
		"file, no path": {fixed("hello", providers.File{}, nil), `{}`,
			`"error":"the result is a file without a path","errorCode":"INTERNAL"`},
		"image": {fixed("hello", providers.Image{Data: []byte("png")}, nil), `{}`,
			`"data":{"image":"data:image/png;base64,cG5n"}`},
		"file": {fixed("hello", providers.File{Path: "/var/p/a.png", MIMEType: "image/png",
			TTL: 1500 * time.Millisecond}, nil), `{}`,
			`"file":{"path":"/var/p/a.png","mimeType":"image/png","ttl":2}`},
		"error": {fixed("hello", nil, errors.New("broken")), `{}`,
			`"error":"broken","errorCode":"INTERNAL"`},
		"coded error": {fixed("hello", nil, providers.NotFound("no file %q", "a")), `{}`,
			`"error":"no file \"a\"","errorCode":"NOT_FOUND"`},
		"retryable": {fixed("hello", nil, &providers.Error{Message: "busy", Retryable: true}), `{}`,
			`"error":"busy","errorCode":"INTERNAL","retryable":true`},
		"wrapped error": {fixed("hello", nil,
			fmt.Errorf("looking: %w", providers.NotFound("none"))), `{}`,
			`"error":"looking: NOT_FOUND: none","errorCode":"NOT_FOUND"`},
		"strange code": {fixed("hello", nil, &providers.Error{Code: "NO_LUCK", Message: "no"}),
			`{}`,
			`"error":"no","errorCode":"INTERNAL"`},
		"deadline": {fixed("hello", nil, context.DeadlineExceeded), `{}`,
			`"error":"context deadline exceeded","errorCode":"TIMEOUT"`},
		"silent error": {fixed("hello", nil, errors.New("")), `{}`,
			`"error":"INTERNAL","errorCode":"INTERNAL"`},
		"panic": {raw("hello", func(context.Context, json.RawMessage) (any, error) {
			panic("ouch")
		}), `{}`,
			`"error":"the tool panicked: ouch","errorCode":"INTERNAL"`},
		"goexit": {raw("hello", func(context.Context, json.RawMessage) (any, error) {
			runtime.Goexit()
			return nil,
				nil
		}), `{}`,
			`"error":"the tool's function ended its goroutine","errorCode":"INTERNAL"`},
		"not JSON": {fixed("hello", make(chan int), nil), `{}`,
			`"error":"the result cannot be written as JSON: json: unsupported type: chan int","errorCode":"INTERNAL"`},
		"duplicate keys": {fixed("hello", json.RawMessage(`{"a":1,"a":2}`), nil), `{}`,
			`"error":"the result cannot be written as JSON: a key stands twice in an object","errorCode":"INTERNAL"`},
		"lone surrogate": {fixed("hello", json.RawMessage(`"\ud800"`), nil), `{}`,
			`"data":"\ud800"`},
		"not UTF-8": {fixed("hello", "a\xffb", nil), `{}`, `"data":"a\ufffdb"`},
		"too large": {fixed("hello", big, nil), `{}`,
			`"error":"this tool.result is 5242922 bytes, over the limit of 5242880; return a providers.File, or less","errorCode":"INTERNAL"`},
		"unknown tool": {fixed("other", nil, nil), `{}`,
			`"error":"this provider has no tool \"hello\"","errorCode":"NOT_FOUND"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			peer, _ := connected(t, nil, tt.tool)
			peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"hello","args":` +
				tt.args + `}`)
			peer.expect(`{"type":"tool.result","id":"c1",` + tt.want + `}`)
			// It serves on.
			peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"hello","args":` +
				tt.args + `}`)
			peer.expect(`{"type":"tool.result","id":"c2",` + tt.want + `}`)
		})
	}
}

func TestCallContext(t *testing.T) {
	peer, _ := connected(t, nil,
		raw("look", func(ctx context.Context, args json.RawMessage) (any, error) {
			providers.Progress(ctx, "60%")
			providers.Progress(ctx, "")
			call, _ := providers.CallFrom(ctx)
			return []any{call, args}, nil
		}))
	peer.send(
		`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"look","args":{"a":[1]},"traceparent":"00-1-2-01"}`)
	peer.expect(`{"type":"tool.progress","id":"c1","message":"60%"}`)
	peer.expect(`{"type":"tool.result","id":"c1","data":[
		{"ID":"c1","Session":"s1","Tool":"look","Traceparent":"00-1-2-01","PersistDir":"/var/p/"},{"a":[1]}]}`)

	if _, ok := providers.CallFrom(context.Background()); ok {
		t.Error("CallFrom of a context of no call is true, want false")
	}
	providers.Progress(context.Background(), "nothing happens")
}

// Progress after the end of a call is not sent.
func TestLateProgress(t *testing.T) {
	kept := make(chan context.Context, 1)
	peer, _ := connected(t, nil,
		raw("look", func(ctx context.Context, _ json.RawMessage) (any, error) {
			kept <- ctx
			return "done", nil
		}))
	peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"look","args":{}}`)
	peer.expect(`{"type":"tool.result","id":"c1","data":"done"}`)
	providers.Progress(receive(t, kept), "late")
	peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"look","args":{}}`)
	peer.expect(`{"type":"tool.result","id":"c2","data":"done"}`)
}

// A large call arrives: the limits of a provider's messages do not apply to the gateway's.
func TestLargeArguments(t *testing.T) {
	peer, _ := connected(t, nil, raw("len", func(_ context.Context, args json.RawMessage) (any,
		error) {
		return len(args), nil
	}))
	args := `{"text":"` + strings.Repeat("x", 8<<20) + `"}`
	peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"len","args":` + args + `}`)
	peer.expect(fmt.Sprintf(`{"type":"tool.result","id":"c1","data":%d}`, len(args)))
}

func TestCancel(t *testing.T) {
	causes, started := make(chan error, 1), make(chan bool, 1)
	peer, _ := connected(t, nil,
		raw("hang", func(ctx context.Context, _ json.RawMessage) (any, error) {
			started <- true
			<-ctx.Done()
			causes <- context.Cause(ctx)
			providers.Progress(ctx, "too late")
			return "all the same", nil
		}),
		fixed("quick", "done", nil))
	peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"hang","args":{}}`)
	receive(t, started)
	peer.send(`{"type":"tool.cancel","id":"c1","sessionId":"s1","reason":"interrupted"}`)
	peer.send(`{"type":"tool.cancel","id":"c1","sessionId":"s1","reason":"interrupted"}`)
	peer.expect(`{"type":"tool.result","id":"c1","error":"Cancelled","errorCode":"CANCELLED"}`)
	cause := receive(t, causes)
	var cancelled *providers.CancelError
	if !errors.As(cause, &cancelled) || cancelled.Reason != providers.ReasonInterrupted ||
		!errors.Is(cause, context.Canceled) {
		t.Errorf("cause is %v, want a CancelError with reason %q", cause,
			providers.ReasonInterrupted)
	}

	// A cancel for a call that is over, or never was, gets no second result.
	peer.send(`{"type":"tool.cancel","id":"c1","sessionId":"s1","reason":"timeout"}`)
	peer.send(`{"type":"tool.cancel","id":"c9","sessionId":"s1","reason":"timeout"}`)
	peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"quick","args":{}}`)
	peer.expect(`{"type":"tool.result","id":"c2","data":"done"}`)
}

// A call whose handler ignores its context is answered once, without the handler.
func TestCancelIgnored(t *testing.T) {
	dir := home(t)
	writeState(t, dir, ".provider-token", "ptk-file")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		release := make(chan struct{})
		p := providers.New("sample", &providers.Options{Logger: quiet, HTTPClient: n.client})
		_, err := p.SetTools(t.Context(), []providers.Tool{fixed("quick", "done", nil),
			raw("deaf", func(context.Context, json.RawMessage) (any, error) {
				<-release
				return "late", nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		g := n.gateway(t)
		run(t, p)
		peer := g.accept()
		peer.bind()
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"deaf","args":{}}`)
		synctest.Wait()
		peer.send(`{"type":"tool.cancel","id":"c1","sessionId":"s1","reason":"timeout"}`)
		start := time.Now()
		peer.expect(`{"type":"tool.result","id":"c1","error":"Cancelled","errorCode":"CANCELLED"}`)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("answered after %v, want 2 s", took)
		}
		close(release)
		synctest.Wait()
		peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"quick","args":{}}`)
		peer.expect(`{"type":"tool.result","id":"c2","data":"done"}`)
	})
}

// Calls over MaxCalls wait in order; one that is cancelled while it waits never
// runs.
func TestQueue(t *testing.T) {
	started := make(chan string, 8)
	release := make(chan struct{})
	peer, _ := connected(t, &providers.Options{MaxCalls: 2},
		raw("slow", func(ctx context.Context, _ json.RawMessage) (any, error) {
			call, _ := providers.CallFrom(ctx)
			started <- call.ID
			<-release
			return call.ID, nil
		}))
	for _, id := range []string{"c1", "c2", "c3", "c4", "c5"} {
		peer.send(`{"type":"tool.call","id":"` + id + `","sessionId":"s1","tool":"slow","args":{}}`)
	}
	first := map[string]bool{receive(t, started): true, receive(t, started): true}
	if !first["c1"] || !first["c2"] {
		t.Fatalf("%v began, want c1 and c2", first)
	}
	peer.send(`{"type":"tool.cancel","id":"c4","sessionId":"s1","reason":"timeout"}`)
	peer.expect(`{"type":"tool.result","id":"c4","error":"Cancelled","errorCode":"CANCELLED"}`)
	release <- struct{}{}
	peer.next("tool.result")
	if id := receive(t, started); id != "c3" {
		t.Fatalf("%s began, want c3", id)
	}
	close(release)
	for range 3 {
		peer.next("tool.result")
	}
	if id := receive(t, started); id != "c5" {
		t.Fatalf("%s began, want c5", id)
	}
}

// Messages that a later gateway may send change nothing.
func TestUnknownMessages(t *testing.T) {
	peer, _ := connected(t, nil, fixed("quick", "done", nil))
	for _, m := range []string{
		`{"type":"weather","sky":"blue"}`, `{"type":"auth"}`, `{}`, `[]`, `nonsense`,
		`{"type":"tool.call","id":7}`,
		`{"type":"session.event","sessionId":"s1","event":"user.message","data":{}}`,
		`{"type":"hello.ack","providerId":"p-9"}`, `{"type":"ack","requestId":"push-77"}`,
		`{"type":"session.lifecycle","sessionId":"other","state":"shutdown.pending","deadline":1}`,
	} {
		peer.send(m)
	}
	peer.send(
		`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"quick","args":{},"colour":"red"}`)
	peer.expect(`{"type":"tool.result","id":"c1","data":"done"}`)
}

// A call id that is in use is not a second call.
func TestCallTwice(t *testing.T) {
	release, runs := make(chan struct{}), make(chan bool, 8)
	peer, _ := connected(t, nil,
		raw("slow", func(context.Context, json.RawMessage) (any, error) {
			runs <- true
			<-release
			return "done",
				nil
		}),
		fixed("quick", "quick", nil))
	for range 2 {
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"slow","args":{}}`)
	}
	peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"quick","args":{}}`)
	peer.expect(`{"type":"tool.result","id":"c2","data":"quick"}`)
	receive(t, runs)
	close(release)
	peer.expect(`{"type":"tool.result","id":"c1","data":"done"}`)
	if len(runs) != 0 {
		t.Error("the call ran twice, want once")
	}
}

// Calls that wait when the connection is lost never run, and take no place on the next connection.
func TestQueueDisconnected(t *testing.T) {
	dir := home(t)
	writeState(t, dir, ".provider-token", "ptk-file")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{MaxCalls: 1}))
		release, runs := make(chan struct{}), make(chan string, 8)
		if _, err := p.AddTool(t.Context(),
			raw("deaf", func(ctx context.Context, _ json.RawMessage) (any, error) {
				call, _ := providers.CallFrom(ctx)
				runs <- call.ID
				<-release
				return "done", nil
			})); err != nil {
			t.Fatal(err)
		}
		run(t, p)
		peer := g.accept()
		peer.bind()
		for _, id := range []string{"c1", "c2", "c3"} {
			peer.send(`{"type":"tool.call","id":"` + id +
				`","sessionId":"s1","tool":"deaf","args":{}}`)
		}
		synctest.Wait()
		peer.cut()
		peer = g.accept()
		peer.bind()
		peer.send(`{"type":"tool.call","id":"c4","sessionId":"s1","tool":"deaf","args":{}}`)
		synctest.Wait()
		close(release)
		peer.expect(`{"type":"tool.result","id":"c4","data":"done"}`)
		if first, second := receive(t, runs), receive(t, runs); first != "c1" || second != "c4" ||
			len(runs) != 0 {
			t.Errorf("%s, %s and %d more ran, want c1 and c4", first, second, len(runs))
		}
	})
}
