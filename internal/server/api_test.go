package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// apiFixture is the admin API over a gateway of local sessions, without the
// guard that stands in front of it.
type apiFixture struct {
	t       *testing.T
	gateway *gateway.Gateway
	web     *httptest.Server
	dir     string
}

func newAPIFixture(t *testing.T) *apiFixture {
	t.Helper()
	g := gateway.New(
		gateway.Options{Starters: map[string]gateway.Starter{
			gateway.HostLocal: gateway.LocalStarter{},
		}})
	info := func() adminapi.Status {
		return adminapi.Status{URL: "ws://127.0.0.1:1", PID: 42, Version: "v0",
			StartedAt: time.Unix(0, 0)}
	}
	web := httptest.NewServer(New(Options{Gateway: g, Status: info}).api)
	t.Cleanup(func() {
		g.Drain(context.Background())
		web.Close()
		web.Client().CloseIdleConnections()
	})
	return &apiFixture{t, g, web, t.TempDir()}
}

// ask makes a request and returns its status and its body, compact.
func (f *apiFixture) ask(method, path, body string) (int, string) {
	f.t.Helper()
	r := f.open(method, path, body)
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.StatusCode, strings.TrimSpace(string(data))
}

func (f *apiFixture) open(method, path, body string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.web.URL+"/api/v1"+path,
		strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := f.web.Client().Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// session starts a local session and returns its id.
func (f *apiFixture) session() string {
	f.t.Helper()
	status, body := f.ask("POST", "/sessions", fmt.Sprintf(`{"host":"local","cwd":%q}`, f.dir))
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 201 ||
		answer.ID == "" {
		f.t.Fatalf("starting a session: got %d %s, want 201", status, body)
	}
	return answer.ID
}

// apiProvider is a provider in process with the tools echo and fail.
type apiProvider struct {
	conn *gateway.Conn
	in   chan protocol.Message
}

func (p *apiProvider) Send(m protocol.Message)          { p.in <- m }
func (p *apiProvider) Flush()                           {}
func (p *apiProvider) Close(protocol.CloseCode, string) { close(p.in) }

// provide connects a provider to a session and returns when it is bound.
func (f *apiFixture) provide(session string) {
	f.t.Helper()
	p := &apiProvider{in: make(chan protocol.Message, 100)}
	p.conn = f.gateway.Connect(p, gateway.ConnOptions{})
	bound := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		greeted := false
		for m := range p.in {
			switch m := m.(type) {
			case *protocol.Sessions:
				if greeted { // it is Unbound, and stays it
					continue
				}
				greeted = true
				p.conn.Receive(fmt.Appendf(nil, `{"type":"hello","protocolVersion":2,"name":"sample","session":%q,"tools":[
					{"name":"echo","description":"echoes","parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}},
					{"name":"fail","description":"fails","parameters":{}},
					{"name":"risky","description":"is denied","parameters":{}}],
					"hooks":{"onPreToolUse":[{"match":{"tool":"risky"},"action":"deny","reason":"too risky"}]}}`, session))
			case *protocol.HelloAck:
				close(bound)
			case *protocol.ToolCall:
				if m.Tool == "fail" {
					p.conn.Receive(fmt.Appendf(nil,
						`{"type":"tool.result","id":%q,"error":"no such thing","errorCode":"NOT_FOUND"}`, m.ID))
				} else {
					p.conn.Receive(fmt.Appendf(nil,
						`{"type":"tool.result","id":%q,"data":{"echoed":%s}}`, m.ID, m.Args))
				}
			case *protocol.SessionLifecycle:
				if m.State == protocol.LifecycleShutdownPending {
					p.conn.Receive([]byte(`{"type":"shutdown.ready"}`))
				}
			case *protocol.Error:
				f.t.Errorf("the provider got %v, want a call or the end", m)
			}
		}
		p.conn.Closed()
	}()
	f.t.Cleanup(func() { f.gateway.Drain(context.Background()); <-done })
	p.conn.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, f.gateway.InstanceToken()))
	<-bound
}

func TestAPIRefusesBadRequestsByField(t *testing.T) {
	f := newAPIFixture(t)
	id := f.session()
	f.provide(id)
	file := filepath.Join(f.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := "/sessions/" + id
	for _, tc := range []struct {
		line, body string
		status     int
		code, says string
	}{
		{"GET /nothing", "", 404, "NOT_FOUND", "there is no /api/v1/nothing"},
		{"PUT /sessions", "", 405, "INVALID_STATE", "/api/v1/sessions takes GET or POST only"},
		{"GET /sessions/none", "", 404, "INVALID_SESSION", `session "none" does not exist`},
		{"DELETE /sessions/none", "", 404, "INVALID_SESSION", `session "none" does not exist`},
		{"POST /sessions", `{"host":"local"}`, 400, "INVALID_JSON", "cwd: is required"},
		{"POST /sessions", `{"host":"local","cwd":"here"}`, 400, "INVALID_JSON",
			`cwd: "here" must be an absolute path`},
		{"POST /sessions", `{"host":"local","cwd":"/no/such/dir"}`, 400, "INVALID_JSON",
			`cwd: "/no/such/dir" does not exist`},
		{"POST /sessions", fmt.Sprintf(`{"host":"local","cwd":%q}`, file), 400, "INVALID_JSON",
			"is not a directory"},
		{"POST /sessions", `{"host":"other","cwd":"/"}`, 400, "INVALID_JSON",
			`host: "other" is not one of [local]`},
		{"POST /sessions", `{"host":"local","cwd":"/","providerUrl":"file:///x"}`, 400,
			"INVALID_JSON",
			"providerUrl: must be an http or https URL"},
		{"POST /sessions", `{"host":"local","cwd":"/","providerUrl":"http://u:p@h"}`, 400,
			"INVALID_JSON",
			"providerUrl: must hold no password"},
		{"POST /sessions", `{"host":"local","cwd":"/","providerKey":"k"}`, 400, "INVALID_JSON",
			"providerKey: "},
		{"POST /sessions", `{"host":"local","cmd":"/"}`, 400, "INVALID_JSON",
			"cmd: is not a field of this request"},
		{"POST /sessions", `{"host":"local","CWD":"/"}`, 400, "INVALID_JSON",
			"CWD: is not a field of this request"},
		{"POST /sessions", `{"host":7}`, 400, "INVALID_JSON", "host: must be a string"},
		{"POST /sessions", `{"host":"a","host":"b"}`, 400, "INVALID_JSON", "host: stands twice"},
		{"POST /sessions", `{"host":`, 400, "INVALID_JSON", "body: not valid JSON"},
		{"POST /sessions", `[]`, 400, "INVALID_JSON", "body: must be an object"},
		{"POST /sessions", `{"label":"` + strings.Repeat("x", 2<<20) + `"}`, 413,
			"PAYLOAD_TOO_LARGE",
			"body: more than 2097152 bytes"},
		{"POST " + at + "/query", `{}`, 400, "INVALID_JSON", "prompt: is required"},
		{"POST " + at + "/query", `{"prompt":" "}`, 400, "INVALID_JSON", "prompt: is required"},
		{"POST " + at + "/query", `{"prompt":"x","mode":"later"}`, 400, "INVALID_JSON",
			`mode: must be enqueue or immediate, not "later"`},
		{"POST " + at + "/query", `{"prompt":"x","detach":"yes"}`, 400, "INVALID_JSON",
			"detach: must be true or false"},
		{"POST " + at + "/push", `{}`, 400, "INVALID_JSON", "event: is required"},
		{"POST " + at + "/push", `{"event":"x","level":"loud"}`, 400, "INVALID_JSON",
			"level: must be one of keep, surface, inject"},
		{"POST " + at + "/push", `{"event":"x","stream":"/"}`, 400, "INVALID_JSON",
			"stream: must be 1 to 64"},
		{"POST " + at + "/push", `{"event":"x","provider":"-"}`, 400, "INVALID_JSON",
			"provider: must be 1 to 64"},
		{"POST " + at + "/push", `{"event":"x","metadata":1}`, 400, "INVALID_JSON",
			"metadata: must be an object"},
		{"POST " + at + "/interrupt", `{"why":"x"}`, 400, "INVALID_JSON", "why: is not a field"},
		{"POST " + at + "/tools/echo/call", `{"args":[]}`, 400, "INVALID_JSON",
			"args: must be an object"},
		{"POST " + at + "/tools/echo/call", `{"timeoutMs":0}`, 400, "INVALID_JSON",
			"timeoutMs: must be from 1"},
		{"POST " + at + "/tools/none/call", `{}`, 404, "NOT_FOUND",
			`tool "none" does not exist in this session`},
		{"GET " + at + "/history?last=0", "", 400, "INVALID_JSON",
			`last: must be a whole number from 1, not "0"`},
		{"GET " + at + "/history?since=noon", "", 400, "INVALID_JSON",
			`since: "noon" must be a time`},
		{"GET " + at + "/history?stream=a@", "", 400, "INVALID_JSON", `stream: "a@" must be`},
		{"GET " + at + "/history?streams=a", "", 400, "INVALID_JSON",
			"streams: is not a parameter"},
		{"GET " + at + "/log?follow=maybe", "", 400, "INVALID_JSON",
			`follow: must be 0 or 1, not "maybe"`},
		{"GET /tools?session=none", "", 404, "INVALID_SESSION", `session: "none" does not exist`},
		{"GET /models", "", 400, "INVALID_JSON", `host: "copilot" is not one of [local]`},
		{"POST /providers/none/stop", "", 404, "NOT_FOUND",
			`provider "none" is not connected: tapctl providers lists those that are`},
	} {
		method, path, _ := strings.Cut(tc.line, " ")
		status, body := f.ask(method, path, tc.body)
		var answer struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Errorf("%s: got %d %q (%v), want an error document", tc.line, status, body, err)
			continue
		}
		if e := answer.Error; status != tc.status || e.Code != tc.code ||
			!strings.Contains(e.Message, tc.says) {
			t.Errorf("%s %.60s: got %d %s %s, want %d %s …%s…",
				tc.line, tc.body, status, e.Code, e.Message, tc.status, tc.code, tc.says)
		}
	}
}

// keys are the members of a JSON object, in their order.
func keys(t *testing.T, object string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(object))
	var names []string
	if _, err := dec.Token(); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		names = append(names, name.(string))
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			t.Fatalf("%s: %v", object, err)
		}
	}
	return strings.Join(names, " ")
}

// expect makes a request and checks its status and its body. The body need only contain want
// if that ends with an ellipsis.
func (f *apiFixture) expect(method, path, body string, status int, want string) {
	f.t.Helper()
	got, answer := f.ask(method, path, body)
	part, isPart := strings.CutSuffix(want, "…")
	if got != status || isPart && !strings.Contains(answer, part) || !isPart && answer != want {
		f.t.Errorf("%s %s: got %d %s, want %d %s", method, path, got, answer, status, want)
	}
}

// expectText compares a text with what a test wants.
func expectText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// TestAPIShapes shows the fields of each document, in their order.
func TestAPIShapes(t *testing.T) {
	f := newAPIFixture(t)
	for _, path := range []string{"/sessions", "/providers", "/tools"} {
		f.expect("GET", path, "", 200, "[]")
	}
	id := f.session()
	f.provide(id)
	first := func(path string) string {
		_, body := f.ask("GET", path, "")
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) == 0 {
			t.Fatalf("%s: got %s, want a list that is not empty", path, body)
		}
		return string(list[0])
	}
	_, status := f.ask("GET", "/status", "")
	_, one := f.ask("GET", "/sessions/"+id, "")
	_, receipt := f.ask("POST", "/sessions/"+id+"/push", `{"event":"x"}`)
	for what, tc := range map[string][2]string{
		"status": {status, "url pid version startedAt sessions providers faults"},
		"sessions": {first("/sessions"),
			"id label host model cwd state foreground providers tools createdAt"},
		"session": {one, "id label host model cwd state foreground providers tools createdAt"},
		"provider": {first("/providers"),
			"id name instance trust state session tools inFlight connectedAt"},
		"tool": {first("/tools"), "name description parameters provider session timeoutMs"},
		"of one": {first("/tools?session=" + id),
			"name description parameters provider session timeoutMs"},
		"model":   {first("/models?host=local"), "id name multiplier efforts vision"},
		"history": {first("/sessions/" + id + "/history"), "stream provider ts event level"},
		"receipt": {receipt, "seq fate"},
	} {
		expectText(t, what, keys(t, tc[0]), tc[1])
	}
	expectText(t, "status", status, `{"url":"ws://127.0.0.1:1","pid":42,"version":"v0",`+
		`"startedAt":"1970-01-01T00:00:00Z","sessions":1,"providers":1,"faults":[]}`)
}

// TestAPISessionLife shows a session from its start to its end.
func TestAPISessionLife(t *testing.T) {
	f := newAPIFixture(t)
	if err := os.Mkdir(filepath.Join(f.dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"HEAD": strings.Repeat("0", 40) + "\n",
		"config": "[remote \"origin\"]\n\turl = git@github.com:kitchen/tea.git\n"} {
		if err := os.WriteFile(filepath.Join(f.dir, ".git", name), []byte(text),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := f.session()
	f.provide(id)
	at := "/sessions/" + id
	_, body := f.ask("GET", at, "")
	var got adminapi.Session
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := adminapi.Session{
		ID: id, Label: filepath.Base(f.dir), Host: "local", CWD: f.dir, State: "idle",
		Foreground: true, Providers: 1, Tools: 3, CreatedAt: got.CreatedAt,
		Repository: "kitchen/tea",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the session (-want +got):\n%s", diff)
	}
	f.expect("POST", at+"/foreground", "", 200, "{}")
	f.expect("POST", at+"/interrupt", `{"reason":"enough"}`, 200, "{}")
	f.expect("POST", "/providers/sample/stop", "", 200, `{"stopped":1}`)
	f.expect("DELETE", at, "", 200, "{}")
	f.expect("GET", at, "", 404, "does not exist…")
}

func TestAPIToolCalls(t *testing.T) {
	f := newAPIFixture(t)
	id := f.session()
	f.provide(id)
	for _, tc := range []struct{ tool, body, want string }{
		{"echo", `{"args":{"text":"a<b"}}`, `{"data":{"echoed":{"text":"a<b"}},"durationMs":N}`},
		{"echo", `{"args":{}}`, `"errorCode":"INVALID_ARGUMENTS"`},
		{"fail", ``, `{"error":"no such thing","errorCode":"NOT_FOUND","durationMs":N}`},
		{"fail", `{"args":null,"timeoutMs":5000}`,
			`{"error":"no such thing","errorCode":"NOT_FOUND","durationMs":N}`},
	} {
		status, body := f.ask("POST", "/sessions/"+id+"/tools/"+tc.tool+"/call", tc.body)
		before, _, _ := strings.Cut(body, `"durationMs":`)
		if status != 200 || !strings.Contains(before+`"durationMs":N}`, tc.want) {
			t.Errorf("%s %s: got %d %s, want 200 …%s…", tc.tool, tc.body, status, body, tc.want)
		}
	}
}

// TestAPIToolCallsAskGates shows that the gateway asks the gates about a call of the admin API,
// whether or not the session's host has hooks.
func TestAPIToolCallsAskGates(t *testing.T) {
	f := newAPIFixture(t)
	for _, hooks := range []bool{true, false} {
		s, err := f.gateway.Register(gateway.SessionSpec{CWD: f.dir},
			gateway.HostInfo{Kind: "test", Hooks: hooks}, scripted{})
		if err != nil {
			t.Fatal(err)
		}
		f.provide(s.ID())
		f.expect("POST", "/sessions/"+s.ID()+"/tools/risky/call", "", 200,
			`{"error":"provider sample: too risky","errorCode":"DENIED",…`)
	}
}
