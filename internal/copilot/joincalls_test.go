package copilot

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/jsonrpc"
	"tapgw/internal/protocol"
)

// heldCalls is a gateway whose calls wait for the test.
type heldCalls struct {
	*joinedCalls
	begun   chan string // tool and id of a call
	results chan gateway.Outcome
	ended   chan string   // the id of a call that was cancelled
	raw     chan string   // types of events in the raw log
	hold    chan struct{} // events of tools wait for it; nil: they do not
}

func newHeldCalls() *heldCalls {
	return &heldCalls{joinedCalls: newJoinedCalls(), begun: make(chan string, 10), results: make(chan gateway.Outcome),
		ended: make(chan string, 10), raw: make(chan string, 100)}
}

func (c *heldCalls) StartCall(call gateway.Call) func(context.Context) gateway.Outcome {
	c.begun <- call.Name + " " + call.HostID
	return func(ctx context.Context) gateway.Outcome {
		select {
		case o := <-c.results:
			return o
		case <-ctx.Done():
			c.ended <- call.HostID
			return gateway.Outcome{ErrorCode: protocol.CodeCancelled, Error: "cancelled"}
		}
	}
}

func (c *heldCalls) Event(e gateway.Event) {
	if c.hold != nil && e.Callback == gateway.OnStartToolExecution {
		<-c.hold
	}
	c.joinedCalls.Event(e)
}

func (c *heldCalls) RuntimeEvent(e adminapi.RuntimeEvent) { c.raw <- e.Type }

// next returns what comes from a channel.
func next(t *testing.T, from chan string, what string) string {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing has come", what)
		return ""
	}
}

// joinHeld joins a terminal that has the tool greet.
func joinHeld(t *testing.T, calls *heldCalls) (*fakeTerminal, *Link) {
	t.Helper()
	f := newFakeTerminal(t, true)
	l, err := newJoinRuntime(t).Join(t.Context(), f.open(), terminalSession, "/w", nil, calls)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetTools(t.Context(), twoTools[:1]); err != nil {
		t.Fatal(err)
	}
	return f, l
}

// call has the terminal's model call greet.
func (f *fakeTerminal) call(n int) {
	f.event("external_tool.requested", map[string]any{
		"requestId": fmt.Sprint("r", n), "sessionId": terminalSession, "toolCallId": fmt.Sprint("c", n),
		"toolName": "greet", "arguments": map[string]any{"n": n},
	})
}

// answers returns the results that the terminal got for a call until now.
func (f *fakeTerminal) answers(n int) (results []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		_, params, _ := strings.Cut(r, "session.tools.handlePendingToolCall ")
		var p struct {
			SessionID, RequestID string
			Result               json.RawMessage
		}
		if json.Unmarshal([]byte(params), &p) == nil && p.RequestID == fmt.Sprint("r", n) &&
			p.SessionID == terminalSession {
			results = append(results, string(p.Result))
		}
	}
	return results
}

// settle returns when the terminal has got all that was sent before.
func settle(t *testing.T, f *fakeTerminal, l *Link, mark string) {
	t.Helper()
	l.Log(adminapi.LogInfo, mark)
	f.waitRequest("session.log", mark)
}

func ok(text string) gateway.Outcome { return gateway.Outcome{Data: rawJSON(text)} }

func TestTerminalCalls(t *testing.T) {
	calls := newHeldCalls()
	f, l := joinHeld(t, calls)

	// It is asked twice, and once more when the call has ended.
	f.call(1)
	next(t, calls.begun, "the first call")
	f.call(1)
	for range 2 {
		if got := next(t, calls.raw, "the raw log"); got != "external_tool.requested" {
			t.Errorf("the raw log has %s, want what the terminal asked", got)
		}
	}
	calls.results <- ok("one")
	f.waitRequest("handlePendingToolCall", `"r1"`)
	settle(t, f, l, "mark 1")
	want := []string{`{"resultType":"success","textResultForLlm":"one"}`}
	if got := f.answers(1); !slices.Equal(got, want) {
		t.Errorf("the terminal got %q for a call, want %q", got, want)
	}

	// Two run at once, and the later one ends first.
	f.call(2)
	f.call(3)
	begun := []string{next(t, calls.begun, "two calls"), next(t, calls.begun, "two calls")}
	slices.Sort(begun)
	if !slices.Equal(begun, []string{"greet c2", "greet c3"}) {
		t.Errorf("two calls at once: %q have begun", begun)
	}
	f.event("external_tool.completed", map[string]any{"requestId": "r2"})
	if got := next(t, calls.ended, "the end of a call"); got != "c2" {
		t.Errorf("%s is cancelled, want c2", got)
	}
	calls.results <- gateway.Outcome{ErrorCode: protocol.CodeNotFound, Error: `tool "greet" does not exist`}
	f.waitRequest("handlePendingToolCall", `"r3"`)
	settle(t, f, l, "mark 2")
	if got := f.answers(2); got != nil {
		t.Errorf("the terminal got %q for a call that it had ended, want nothing", got)
	}
	if got := f.answers(3); len(got) != 1 || !strings.Contains(got[0], `"resultType":"failure"`) ||
		!strings.Contains(got[0], `"error":`) || !strings.Contains(got[0], "does not exist") {
		t.Errorf("the terminal got %q for the tool that is gone, want one failure", got)
	}

	// The terminal interrupts its turn.
	f.event("user.message", map[string]any{"content": "go on"})
	f.call(4)
	next(t, calls.begun, "a call")
	f.event("abort", map[string]any{"reason": "user_initiated"})
	if got := next(t, calls.ended, "an abort"); got != "c4" {
		t.Errorf("%s is cancelled by an abort, want c4", got)
	}

	// The terminal is killed in the middle of a call.
	f.call(5)
	next(t, calls.begun, "a call")
	f.rpc.Close()
	if got := next(t, calls.ended, "the end of the terminal"); got != "c5" {
		t.Errorf("%s is cancelled by the end of the terminal, want c5", got)
	}
	<-l.Done()
	if got := slices.Concat(f.answers(4), f.answers(5)); got != nil {
		t.Errorf("calls that were cancelled got the answers %q", got)
	}
}

// TestTerminalCallWaitsForItsTurn: the gateway hears of a call in the order in which the terminal speaks.
func TestTerminalCallWaitsForItsTurn(t *testing.T) {
	calls := newHeldCalls()
	calls.hold = make(chan struct{})
	f, _ := joinHeld(t, calls)
	goOn := sync.OnceFunc(func() { close(calls.hold) })
	t.Cleanup(goOn)
	f.event("tool.execution_start", map[string]any{"toolCallId": "c1", "toolName": "greet", "arguments": nil})
	f.call(1)
	if err := f.rpc.Call(t.Context(), "no.such", nil, nil); err == nil { // when it answers, it has read the events
		t.Fatal("a request that nobody knows was answered")
	}
	select {
	case got := <-calls.begun:
		t.Errorf("%s has begun before the gateway has heard of it", got)
	default:
	}
	goOn()
	calls.wait(t, "onStartToolExecution greet")
	if got := next(t, calls.begun, "the call"); got != "greet c1" {
		t.Errorf("%s has begun, want greet c1", got)
	}
	calls.results <- ok("")
	f.waitRequest("handlePendingToolCall", `"r1"`)
}

// TestTerminalAnswersAreWhole has large answers of calls beside other requests of the gateway.
func TestTerminalAnswersAreWhole(t *testing.T) {
	const count = 10
	calls := newHeldCalls()
	f, l := joinHeld(t, calls)
	for n := range count {
		f.call(n)
	}
	large := strings.Repeat("<x>&", 5_000)
	for n := range count {
		l.Log(adminapi.LogInfo, fmt.Sprint("line ", n))
		next(t, calls.begun, "a call")
		calls.results <- ok(large)
	}
	for n := range count {
		f.waitRequest("handlePendingToolCall", fmt.Sprintf(`"r%d"`, n))
		f.waitRequest("session.log", fmt.Sprintf(`"line %d"`, n))
		got := f.answers(n)
		var result struct{ TextResultForLlm string }
		if len(got) != 1 || json.Unmarshal([]byte(got[0]), &result) != nil || result.TextResultForLlm != large {
			t.Errorf("call %d has %d answers, want one, whole", n, len(got))
		}
	}
	if n := len(calls.begun); n > 0 {
		t.Errorf("%d calls have begun a second time", n)
	}
}

// TestFrozenTerminal has a terminal that reads nothing any more. The gateway still hears what it says, and can leave.
func TestFrozenTerminal(t *testing.T) {
	ours, theirs := net.Pipe()
	calls := newHeldCalls()
	f := newFakeTerminal(t, true)
	in := bufio.NewReader(theirs)
	send := func(m map[string]any) {
		data, err := json.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		if _, err := theirs.Write(jsonrpc.AppendFrame(nil, data)); err != nil {
			t.Error(err)
		}
	}
	joined := make(chan struct{})
	go func() {
		for {
			data, err := jsonrpc.ReadFrame(in, 1<<20)
			var m struct {
				ID, Params json.RawMessage
				Method     string
			}
			if err != nil || json.Unmarshal(data, &m) != nil {
				t.Error("reading what the gateway sends:", err)
				return
			}
			result, _ := f.answer(t.Context(), m.Method, m.Params)
			send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
			if m.Method == "session.metadata.activity" {
				close(joined)
				return // and read no more
			}
		}
	}()
	l, err := newJoinRuntime(t).Join(t.Context(), ours, terminalSession, "/w", []string{"greet"}, calls)
	if err != nil {
		t.Fatal(err)
	}
	<-joined
	event := func(typ string, data map[string]any) {
		send(map[string]any{"jsonrpc": "2.0", "method": "session.event", "params": map[string]any{
			"sessionId": terminalSession, "event": map[string]any{"id": "11111111-2222-4333-8444-777777777777",
				"timestamp": "2026-11-23T09:00:00Z", "type": typ, "data": data}}})
	}
	event("external_tool.requested", map[string]any{"requestId": "r1", "sessionId": terminalSession,
		"toolCallId": "c1", "toolName": "greet"})
	next(t, calls.begun, "a call")
	calls.results <- ok("nobody reads this")
	event("user.message", map[string]any{"content": "still there"})
	calls.wait(t, "user still there of user")
	l.Close()
	_ = theirs.Close()
}

// TestTerminalCallsThatAreRefusedByStrictReaders: a message that the SDK reads is not lost because the scanner of the
// wire protocol refuses it.
func TestTerminalCallsThatAreRefusedByStrictReaders(t *testing.T) {
	calls := newHeldCalls()
	f, l := joinHeld(t, calls)
	for i, change := range [][2]string{
		{`"n":1`, `"n":1,"n":2`}, {`"n":1`, `"n":[{"a":1,"a":2}]`}, {`"n":1`, `"n":"` + "\xff" + `"`},
		{`"toolName"`, `"toolName":"other","toolName"`}, {`"type"`, `"type":"abort","type"`},
		{`"sessionId"`, `"sessionId":"other","sessionId"`}, {`"method"`, `"method":"other","method"`},
	} {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":%q,"event":{"id":"e",`+
			`"timestamp":"2026-11-23T09:00:00Z","type":"external_tool.requested","data":{"requestId":"r%d",`+
			`"toolCallId":"c%d","toolName":"greet","arguments":{"n":1}}}}}`, terminalSession, i, i)
		text = strings.Replace(text, change[0], change[1], 1)
		if !l.p.pipe.takes([]byte(text)) {
			t.Errorf("%s is left to the SDK, which has no handler for it", text)
			continue
		}
		if got, want := next(t, calls.begun, text), fmt.Sprint("greet c", i); got != want {
			t.Errorf("%s: %s has begun, want %s", text, got, want)
		}
		calls.results <- ok("done")
		f.waitRequest("handlePendingToolCall", fmt.Sprintf(`"r%d"`, i))
	}
}

// keptCalls is a gateway that keeps the raw log.
type keptCalls struct {
	*joinedCalls
	kept chan adminapi.RuntimeEvent
}

func (c *keptCalls) RuntimeEvent(e adminapi.RuntimeEvent) { c.kept <- e }

// TestRawLogKeepsNoMessages: the raw log shares no memory with the message of a call, which may be far larger.
func TestRawLogKeepsNoMessages(t *testing.T) {
	calls := &keptCalls{newJoinedCalls(), make(chan adminapi.RuntimeEvent, 10)}
	f := newFakeTerminal(t, true)
	l, err := newJoinRuntime(t).Join(t.Context(), f.open(), terminalSession, "/w", nil, calls)
	if err != nil {
		t.Fatal(err)
	}
	const data = `{"requestId":"r1","toolCallId":"c1","toolName":"greet"}`
	event := []byte(`{"type":"external_tool.requested","data":` + data + `}`)
	_, raw := readCall(event)
	l.s.items.push(item{started: raw})
	kept := <-calls.kept
	clear(event)
	if string(kept.Data) != data {
		t.Errorf("the message was overwritten, and the raw log has %q, want %s", kept.Data, data)
	}
}

// TestReadCall holds what is read of an event that asks for a call against what the SDK reads.
func TestReadCall(t *testing.T) {
	const head = `"id":"11111111-2222-4333-8444-777777777777","timestamp":"2026-11-23T09:00:00.123+01:00","parentId":null`
	const ids = `"requestId":"r1","sessionId":"s","toolCallId":"c1","toolName":"greet"`
	calls := map[string]string{
		"as the CLI writes": `{"type":"external_tool.requested","data":{` + ids + `,"arguments":{"n":1}},` + head + `}`,
		"all fields": `{` + head + `,"agentId":"a","ephemeral":true,"type":"external_tool.requested","data":{` + ids +
			`,"arguments":{"b":[1,"ü\u00fc"],"a":null},"traceparent":"00-1-2-01","workingDirectory":"/w"}}`,
		"no arguments": `{` + head + `,"type":"external_tool.requested","data":{` + ids + `}}`,
		"null":         `{` + head + `,"type":"external_tool.requested","data":{` + ids + `,"arguments":null}}`,
		"escapes, space": `{ ` + head + `, "type": "external_tool.requested", "data": {` + ids +
			`,"arguments": {"\u0061": "\ud800"} } }`,
	}
	for name, text := range calls {
		d, raw := readCall(protocol.Raw(text))
		if d == nil {
			t.Errorf("%s: not read", name)
			continue
		}
		var e sdk.SessionEvent
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		want := e.Data.(*rpc.ExternalToolRequestedData)
		if d.RequestID != want.RequestID || d.ToolCallID != want.ToolCallID || d.ToolName != want.ToolName ||
			deref(d.Traceparent) != deref(want.Traceparent) {
			t.Errorf("%s: %+v, want %+v", name, d, want)
		}
		var args, wantArgs any
		if json.Unmarshal(rawJSON(d.Arguments), &args) != nil ||
			json.Unmarshal(rawJSON(want.Arguments), &wantArgs) != nil || !reflect.DeepEqual(args, wantArgs) {
			t.Errorf("%s: arguments %s, want %s", name, rawJSON(d.Arguments), rawJSON(want.Arguments))
		}
		wantRaw := rawEvent(e)
		var sent struct{ Data json.RawMessage }
		if err := json.Unmarshal([]byte(text), &sent); err != nil {
			t.Fatal(err)
		}
		wantRaw.Data = sent.Data // what the SDK does not know, too
		if !reflect.DeepEqual(*raw, wantRaw) {
			t.Errorf("%s: the raw log gets %+v, want %+v", name, *raw, wantRaw)
		}
	}
	others := map[string]string{
		"another event": `{"type":"user.message","data":{"content":"\"external_tool.requested\""},` + head + `}`,
		"in its data":   `{"type":"user.message","data":{"type":"external_tool.requested"},` + head + `}`,
		"no data":       `{"type":"external_tool.requested",` + head + `}`,
		"no time":       `{"type":"external_tool.requested","timestamp":"now","data":{` + ids + `}}`,
		"a number as name": `{"type":"external_tool.requested",` + head +
			`,"data":{"requestId":"r1","toolCallId":"c1","toolName":1}}`,
		"twice":   `{"type":"external_tool.requested","data":{` + ids + `,"requestId":"r2"},` + head + `}`,
		"no JSON": `"external_tool.requested"`,
	}
	for name, text := range others {
		if d, _ := readCall(protocol.Raw(text)); d != nil {
			t.Errorf("%s: read as %+v, want it left to the SDK", name, d)
		}
	}
}

// FuzzReadCall has anything in the place of an event. What is read of it is what a strict reader reads.
func FuzzReadCall(f *testing.F) {
	f.Add(`{"id":"e","timestamp":"2026-11-23T09:00:00Z","type":"external_tool.requested","data":{"requestId":"r1",` +
		`"toolCallId":"c1","toolName":"greet","arguments":{"n":[1,{}]},"traceparent":"00-1-2-01"}}`)
	f.Add(`{"type":"external_tool.requested","data":{"arguments":null},"agentId":"a","ephemeral":true}`)
	f.Add(`{"type":"external_tool.requested","type":"abort","data":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, raw := readCall(protocol.Raw(text))
		if d == nil {
			return
		}
		var want struct {
			Type      string `json:"type"`
			ID        string `json:"id"`
			AgentID   string `json:"agentId"`
			Timestamp string `json:"timestamp"`
			Ephemeral any    `json:"ephemeral"`
			Data      struct {
				RequestID   string       `json:"requestId"`
				ToolCallID  string       `json:"toolCallId"`
				ToolName    string       `json:"toolName"`
				Traceparent *string      `json:"traceparent"`
				Arguments   protocol.Raw `json:"arguments"`
			} `json:"data"`
		}
		if err := jsonv2.Unmarshal([]byte(text), &want, jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Fatalf("%s is read, and a strict reader says: %v", text, err)
		}
		when, _ := time.Parse(time.RFC3339, want.Timestamp)
		args, _ := d.Arguments.(protocol.Raw)
		if want.Type != "external_tool.requested" || raw.ID != want.ID || raw.AgentID != want.AgentID ||
			!raw.TS.Equal(when) || raw.Ephemeral != (want.Ephemeral == true) || d.RequestID != want.Data.RequestID ||
			d.ToolCallID != want.Data.ToolCallID || d.ToolName != want.Data.ToolName ||
			deref(d.Traceparent) != deref(want.Data.Traceparent) || string(args) != string(want.Data.Arguments) {
			t.Errorf("%s: read as %+v and %+v", text, d, raw)
		}
		if kind := rawJSON(d.Arguments).Kind(); kind == 'n' || kind == jsontext.KindInvalid {
			t.Errorf("%s: the provider gets the arguments %s", text, rawJSON(d.Arguments))
		}
	})
}

// FuzzTakes has anything in the place of a terminal's messages. Only events of followed sessions and answers to our own
// requests are kept from the SDK.
func FuzzTakes(f *testing.F) {
	for _, text := range []string{
		`{"method":"session.event","params":{"sessionId":"s","event":{"type":"abort","data":{"reason":"x"}}}}`,
		`{"method":"session.event","params":{"sessionId":"other","event":{}}}`, `{"id":"tapgw-1","result":{}}`,
		`{"id":"tapgw-1","error":{"code":1,"message":"no"}}`, `{"id":1,"method":"session.event"}`,
		`{"method":"session.event","params":{"sessionId":"s","event":null}}`, `null`, `[]`, `{"id":"tapgw-`,
		`{"method":"session.event","params":{"sessionId":"s","event":{"a":1,"a":"` + "\xff" + `"}}}`,
		`{"id":"tapgw-1","result":{"a":1,"a":2},"error":{},"error":null}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		answers := 0
		d := &dialablePipe{
			log: slog.New(slog.DiscardHandler), idPrefix: "tapgw-", followers: map[string]*follower{},
			requests: map[string]func(*pipeMessage){"tapgw-1": func(*pipeMessage) { answers++ }},
		}
		d.follow("s", func(protocol.Raw) error { return nil })
		isTaken := d.takes([]byte(text))
		var m struct {
			ID     any
			Params struct{ SessionID string }
		}
		_ = json.Unmarshal([]byte(text), &m)
		id, _ := m.ID.(string)
		if isTaken && (!json.Valid([]byte(text)) || m.Params.SessionID != "s" && !strings.HasPrefix(id, "tapgw-")) {
			t.Errorf("%s is kept from the SDK", text)
		}
		if d.takes([]byte(text)) != isTaken || answers > 1 {
			t.Errorf("%s: another answer the second time, %d are ours", text, answers)
		}
	})
}
