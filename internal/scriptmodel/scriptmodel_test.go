package scriptmodel

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, reply ReplyFunc) *Server {
	t.Helper()
	s, err := Start("127.0.0.1:0", reply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// post sends a request; the body of the answer is closed with the test.
func post(t *testing.T, url string, body any) *http.Response {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func user(text string) object { return object{"role": "user", "content": text} }

func TestRequestOfEitherWire(t *testing.T) {
	s := serve(t, func(*Request) Reply { return Reply{Text: "ok"} })
	schema := object{"type": "object"}
	post(t, s.URL+"/chat/completions", object{
		"model": "m",
		"messages": []any{
			object{"role": "developer", "content": "be brief"},
			user("hello"),
			object{
				"role":    "assistant",
				"content": nil,
				"tool_calls": []any{object{"id": "c1",
					"function": object{"name": "f", "arguments": `{"a":1}`}}},
			},
			object{
				"role": "tool", "tool_call_id": "c1",
				"content": []any{object{"type": "text", "text": "re"},
					object{"type": "text", "text": "sult"}},
			},
		},
		"tools": []any{
			object{"type": "function", "function": object{"name": "f", "description": "d",
				"parameters": schema}},
		},
	})
	post(t, s.URL+"/responses", object{
		"model": "m", "instructions": "be brief",
		"input": []any{
			object{"role": "user", "content": []any{object{"type": "input_text", "text": "hello"}}},
			object{"type": "function_call", "call_id": "c1", "name": "f", "arguments": `{"a":1}`},
			object{"type": "function_call_output", "call_id": "c1", "output": "result"},
		},
		"tools": []any{object{"type": "function", "name": "f", "description": "d",
			"parameters": schema}},
	})
	for _, r := range s.Requests() {
		if r.Model != "m" || r.System() != "be brief" || r.LastUser() != "hello" ||
			r.LastResult() != "result" {
			t.Errorf(`%s: %+v, want Model "m", "be brief", "hello" and "result"`, r.Path,
				r.Messages)
		}
		want := ToolCall{ID: "c1", Name: "f", Args: `{"a":1}`}
		if call := r.Messages[2].ToolCalls; len(call) != 1 || call[0] != want {
			t.Errorf("%s: calls %+v, want 1 of them and %v", r.Path, call, want)
		}
		if !r.HasTool("f") || r.HasTool("g") || r.Tools[0].Description != "d" ||
			string(r.Tools[0].Parameters) != `{"type":"object"}` {
			t.Errorf(
				`%s: tools %+v, want tool "f", no tool "g", Description "d" and {"type":"object"}`,
				r.Path, r.Tools,
			)
		}
	}
}

func TestStreams(t *testing.T) {
	reply := Reply{
		Reasoning: "so so",
		Text:      "one two",
		ToolCalls: []ToolCall{{Name: "f", Args: `{"a":1}`}, {Name: "g"}},
	}
	s := serve(t, func(*Request) Reply { return reply })
	tests := map[string]struct {
		path string
		want []string // the content of the events, in order
	}{
		"completions": {"/chat/completions", []string{
			`"role":"assistant"`, `"reasoning_content":"so "`, `"reasoning_content":"so"`,
			`"content":"one "`,
			`"content":"two"`,
			`"arguments":"{\"a\":1}","name":"f"`, `"finish_reason":"tool_calls"`, "[DONE]",
		}},
		"responses": {"/responses", []string{
			"response.created", "response.in_progress", "response.output_item.added",
			`"delta":"so "`, `"delta":"so"`,
			"response.output_item.done",
			`"delta":"one "`, `"delta":"two"`, "response.output_text.done", `"name":"f"`,
			"function_call_arguments.delta", `"name":"g"`, "response.completed",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp := post(t, s.URL+tt.path,
				object{"model": "m", "stream": true, "messages": []any{user("x")}})
			if resp.StatusCode != http.StatusOK ||
				resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf(`%s %s, want StatusCode %v and "text/event-stream"`, resp.Status,
					resp.Header, http.StatusOK)
			}
			all, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			rest := string(all)
			for _, want := range tt.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("%s is missing, or not in its place, in\n%s", want, all)
				}
				rest = after
			}
		})
	}
	t.Run("plain", func(t *testing.T) {
		for _, path := range []string{"/chat/completions", "/responses"} {
			resp := post(t, s.URL+path, object{"model": "m", "messages": []any{user("x")}})
			all, err := io.ReadAll(resp.Body)
			if err != nil || !json.Valid(all) || !strings.Contains(string(all), "one two") ||
				!strings.Contains(string(all), `{\"a\":1}`) {
				t.Errorf("%s: %s, %v", path, all, err)
			}
		}
	})
}

func TestBadRequestsAndErrors(t *testing.T) {
	s := serve(t, func(*Request) Reply {
		return Reply{Status: http.StatusTooManyRequests, Text: "slow down"}
	})
	resp := post(t, s.URL+"/chat/completions", object{"messages": []any{user("x")}})
	if all, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests ||
		!strings.Contains(string(all), "slow down") {
		t.Errorf(`%s %s, want StatusCode %v and "slow down" in it`, resp.Status, all,
			http.StatusTooManyRequests)
	}
	for _, body := range []any{"text", object{"messages": "none"}, object{"input": 1}} {
		if resp := post(t, s.URL+"/responses", body); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %s, want %v", body, resp.Status, http.StatusBadRequest)
		}
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests were kept, want 1", n)
	}
}

func TestModels(t *testing.T) {
	s := serve(t, Calls)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.URL + "/models")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if all, _ := io.ReadAll(resp.Body); !strings.Contains(string(all), ModelID) {
		t.Errorf("%s, want %q in it", all, ModelID)
	}
}

// A reply waits for its gate, then for its pause, and a client that goes away
// in the meantime is noticed.
func TestGates(t *testing.T) {
	gate, pause := make(chan struct{}), make(chan struct{})
	s := serve(t, func(*Request) Reply { return Reply{Text: "one two", Gate: gate, Pause: pause} })
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		// Not through post: its Fatal is for the test's own goroutine.
		req, _ := http.NewRequestWithContext(
			ctx,
			http.MethodPost,
			s.URL+"/chat/completions",
			strings.NewReader(`{"stream":true,"messages":[]}`),
		)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	r, err := s.WaitRequest(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case l := <-lines:
		t.Fatalf("a line before the gate opened: %s, want none", l)
	case <-r.Done():
		t.Fatal("the reply is done before the gate opened, want it to wait")
	default:
	}
	close(gate)
	for l := range lines {
		if strings.Contains(l, "two") {
			t.Fatal("the rest came in the pause, want it after")
		}
		if strings.Contains(l, "one") {
			break
		}
	}
	cancel()
	<-r.Done()
	if !r.Aborted() {
		t.Error("the client's going was not noticed, want Aborted true")
	}
	for range lines {
	}
}

// A reply that breaks off is the endpoint's doing, not the client's.
func TestCut(t *testing.T) {
	s := serve(t, func(*Request) Reply { return Reply{Text: "one two", Cut: true} })
	resp := post(t, s.URL+"/chat/completions", object{"stream": true})
	all, err := io.ReadAll(resp.Body)
	if err == nil || !strings.Contains(string(all), "one") || strings.Contains(string(all), "two") {
		t.Errorf(`%v %s, want an error, "one" in it and no "two" in it`, err, all)
	}
	r := s.Requests()[0]
	if <-r.Done(); r.Aborted() {
		t.Error("the reply's own end counts as the client's going, want Aborted false")
	}
}

func TestErrorWithHeader(t *testing.T) {
	s := serve(t, func(*Request) Reply {
		return Reply{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}}}
	})
	resp := post(t, s.URL+"/chat/completions", object{})
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "7" {
		t.Errorf(`%d %v, want StatusCode %v and "7"`, resp.StatusCode, resp.Header,
			http.StatusTooManyRequests)
	}
}

// The wire at a path of another server's.
func TestServeCompletions(t *testing.T) {
	s := serve(t, func(*Request) Reply { return Reply{Text: "hello"} })
	other := httptest.NewServer(http.HandlerFunc(s.ServeCompletions))
	defer other.Close()
	all, err := io.ReadAll(post(t, other.URL+"/anywhere", object{}).Body)
	if err != nil || !strings.Contains(string(all), "hello") ||
		s.Requests()[0].Path != "/anywhere" {
		t.Errorf(`%v %s, want no error, "hello" in it and Path "/anywhere"`, err, all)
	}
}

func TestWaitRequest(t *testing.T) {
	s := serve(t, func(*Request) Reply { return Reply{} })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.WaitRequest(ctx, 1); err == nil ||
		!strings.Contains(err.Error(), "request 1, 0 came") {
		t.Errorf(`error: %v, want an error and "request 1, 0 came" in it`, err)
	}
	if _, err := s.WaitRequest(t.Context(), 0); err == nil {
		t.Error("WaitRequest(0): no error, want one")
	}
	for range 3 {
		post(t, s.URL+"/chat/completions", object{})
	}
	if r, err := s.WaitRequest(t.Context(), 2); err != nil || r.N != 2 {
		t.Errorf("%+v, %v, want no error and N 2", r, err)
	}
}

func TestClose(t *testing.T) {
	held := make(chan struct{})
	s, err := Start("127.0.0.1:0", func(*Request) Reply { return Reply{Gate: held} })
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(
			s.URL+"/responses", "", strings.NewReader("{}"),
		)
		if err == nil {
			_ = resp.Body.Close()
			err = fmt.Errorf("answered %s", resp.Status)
		}
		failed <- err
	}()
	if _, err := s.WaitRequest(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-failed; err == nil {
		t.Error("a held request was answered by Close, want an error")
	}
	s.Close()
}

func TestCalls(t *testing.T) {
	system := Message{Role: "system", Text: "You are a model."}
	calls := Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f", Args: "{}"}}}
	u := func(text string) Message { return Message{Role: "user", Text: text} }
	result := func(text string) Message { return Message{Role: "tool", Text: text} }
	said := func(text string) Message { return Message{Role: "assistant", Text: text} }
	const date = "<current_datetime>now</current_datetime>\n\n"
	const notice = "<tools_changed_notice>New tools available: f</tools_changed_notice>"
	const added = "Additional context from preToolUse hook:\nbe careful"

	tests := map[string]struct {
		messages []Message
		text     string
		tools    []ToolCall
	}{
		"plain": {[]Message{system, u(date + "hello")}, "You said: hello", nil},
		"call": {
			[]Message{system,
				u(date + `call:f {"a": 1}` + "\n\n<system_reminder>\nx\n</system_reminder>")},
			"",
			[]ToolCall{{Name: "f", Args: `{"a": 1}`}},
		},
		"without arguments": {[]Message{u("call:f")}, "", []ToolCall{{Name: "f"}}},
		"two calls": {
			[]Message{u("call:f {}\ncall:g")},
			"",
			[]ToolCall{{Name: "f", Args: "{}"}, {Name: "g"}},
		},
		"result": {[]Message{u("call:f"), calls, result("r")}, "r", nil},
		"two results": {[]Message{u("call:f\ncall:g"), calls, result("r"), result("s")},
			"r\ns", nil},
		"context after result": {[]Message{u("call:f"), calls, result("r"), u(added)}, "r", nil},
		"context before": {
			[]Message{u("<session_context>call:g</session_context>"), u("call:f")},
			"",
			[]ToolCall{{Name: "f"}},
		},
		"notice after call": {[]Message{u("call:f"), u(notice)}, "", []ToolCall{{Name: "f"}}},
		"steering with a call": {[]Message{u("call:f"), calls, result("r"), u("call:g")}, "",
			[]ToolCall{{Name: "g"}}},
		"next turn": {
			[]Message{u("call:f"), calls, result("r"), said("r"), u("hello")},
			"You said: hello",
			nil,
		},
		"after an interrupt": {[]Message{u("call:f"), u("hello")}, "You said: hello", nil},
		"unknown tool":       {[]Message{u("call:h")}, `There is no tool "h". Tools: f, g.`, nil},
		"bad arguments": {[]Message{u("call:f {x")}, `The arguments of "f" are not JSON: {x`,
			nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Calls(&Request{Messages: tt.messages, Tools: []Tool{{Name: "f"}, {Name: "g"}}})
			if p.Text != tt.text || !slices.Equal(p.ToolCalls, tt.tools) {
				t.Errorf("%q %+v, want Text %q and %+v", p.Text, p.ToolCalls, tt.text, tt.tools)
			}
		})
	}
}
