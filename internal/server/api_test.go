package server

import (
	"bufio"
	"bytes"
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
	g := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}})
	info := func() adminapi.Status {
		return adminapi.Status{URL: "ws://127.0.0.1:1", PID: 42, Version: "v0", StartedAt: time.Unix(0, 0)}
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
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.web.URL+"/api/v1"+path, strings.NewReader(body))
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
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 201 || answer.ID == "" {
		f.t.Fatalf("starting a session: %d %s", status, body)
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
					p.conn.Receive(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"error":"no such thing","errorCode":"NOT_FOUND"}`, m.ID))
				} else {
					p.conn.Receive(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":{"echoed":%s}}`, m.ID, m.Args))
				}
			case *protocol.SessionLifecycle:
				if m.State == protocol.LifecycleShutdownPending {
					p.conn.Receive([]byte(`{"type":"shutdown.ready"}`))
				}
			case *protocol.Error:
				f.t.Errorf("provider: %v", m)
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
		{"POST /sessions", `{"host":"local","cwd":"here"}`, 400, "INVALID_JSON", `cwd: "here" must be an absolute path`},
		{"POST /sessions", `{"host":"local","cwd":"/no/such/dir"}`, 400, "INVALID_JSON", `cwd: "/no/such/dir" does not exist`},
		{"POST /sessions", fmt.Sprintf(`{"host":"local","cwd":%q}`, file), 400, "INVALID_JSON", "is not a directory"},
		{"POST /sessions", `{"host":"other","cwd":"/"}`, 400, "INVALID_JSON", `host: "other" is not one of [local]`},
		{"POST /sessions", `{"host":"local","cwd":"/","providerUrl":"file:///x"}`, 400, "INVALID_JSON", "providerUrl: must be an http or https URL"},
		{"POST /sessions", `{"host":"local","cwd":"/","providerUrl":"http://u:p@h"}`, 400, "INVALID_JSON", "providerUrl: must hold no password"},
		{"POST /sessions", `{"host":"local","cwd":"/","providerKey":"k"}`, 400, "INVALID_JSON", "providerKey: "},
		{"POST /sessions", `{"host":"local","cmd":"/"}`, 400, "INVALID_JSON", "cmd: is not a field of this request"},
		{"POST /sessions", `{"host":"local","CWD":"/"}`, 400, "INVALID_JSON", "CWD: is not a field of this request"},
		{"POST /sessions", `{"host":7}`, 400, "INVALID_JSON", "host: must be a string"},
		{"POST /sessions", `{"host":"a","host":"b"}`, 400, "INVALID_JSON", "host: stands twice"},
		{"POST /sessions", `{"host":`, 400, "INVALID_JSON", "body: not valid JSON"},
		{"POST /sessions", `[]`, 400, "INVALID_JSON", "body: must be an object"},
		{"POST /sessions", `{"label":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "PAYLOAD_TOO_LARGE", "body: more than 2097152 bytes"},
		{"POST " + at + "/query", `{}`, 400, "INVALID_JSON", "prompt: is required"},
		{"POST " + at + "/query", `{"prompt":" "}`, 400, "INVALID_JSON", "prompt: is required"},
		{"POST " + at + "/query", `{"prompt":"x","mode":"later"}`, 400, "INVALID_JSON", `mode: must be enqueue or immediate, not "later"`},
		{"POST " + at + "/query", `{"prompt":"x","detach":"yes"}`, 400, "INVALID_JSON", "detach: must be true or false"},
		{"POST " + at + "/push", `{}`, 400, "INVALID_JSON", "event: is required"},
		{"POST " + at + "/push", `{"event":"x","level":"loud"}`, 400, "INVALID_JSON", "level: must be one of keep, surface, inject"},
		{"POST " + at + "/push", `{"event":"x","stream":"/"}`, 400, "INVALID_JSON", "stream: must be 1 to 64"},
		{"POST " + at + "/push", `{"event":"x","provider":"-"}`, 400, "INVALID_JSON", "provider: must be 1 to 64"},
		{"POST " + at + "/push", `{"event":"x","metadata":1}`, 400, "INVALID_JSON", "metadata: must be an object"},
		{"POST " + at + "/interrupt", `{"why":"x"}`, 400, "INVALID_JSON", "why: is not a field"},
		{"POST " + at + "/tools/echo/call", `{"args":[]}`, 400, "INVALID_JSON", "args: must be an object"},
		{"POST " + at + "/tools/echo/call", `{"timeoutMs":0}`, 400, "INVALID_JSON", "timeoutMs: must be from 1"},
		{"POST " + at + "/tools/none/call", `{}`, 404, "NOT_FOUND", `tool "none" does not exist in this session`},
		{"GET " + at + "/history?last=0", "", 400, "INVALID_JSON", `last: must be a whole number from 1, not "0"`},
		{"GET " + at + "/history?since=noon", "", 400, "INVALID_JSON", `since: "noon" must be a time`},
		{"GET " + at + "/history?stream=a@", "", 400, "INVALID_JSON", `stream: "a@" must be`},
		{"GET " + at + "/history?streams=a", "", 400, "INVALID_JSON", "streams: is not a parameter"},
		{"GET " + at + "/log?follow=maybe", "", 400, "INVALID_JSON", `follow: must be 0 or 1, not "maybe"`},
		{"GET /tools?session=none", "", 404, "INVALID_SESSION", `session: "none" does not exist`},
		{"GET /models", "", 400, "INVALID_JSON", `host: "copilot" is not one of [local]`},
		{"POST /providers/none/stop", "", 404, "NOT_FOUND", `provider "none" is not connected: tapctl providers lists those that are`},
	} {
		method, path, _ := strings.Cut(tc.line, " ")
		status, body := f.ask(method, path, tc.body)
		var answer struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Errorf("%s: %d %q: %v", tc.line, status, body, err)
			continue
		}
		if e := answer.Error; status != tc.status || e.Code != tc.code || !strings.Contains(e.Message, tc.says) {
			t.Errorf(
				"%s %.60s:\n got %d %s %s\nwant %d %s …%s…",
				tc.line,
				tc.body,
				status,
				e.Code,
				e.Message,
				tc.status,
				tc.code,
				tc.says,
			)
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

func TestAPIShapes(t *testing.T) {
	f := newAPIFixture(t)
	for _, path := range []string{"/sessions", "/providers", "/tools"} {
		if status, body := f.ask("GET", path, ""); status != 200 || body != "[]" {
			t.Errorf("%s of an empty gateway: %d %s", path, status, body)
		}
	}
	id := f.session()
	f.provide(id)
	first := func(path string) string {
		_, body := f.ask("GET", path, "")
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) == 0 {
			t.Fatalf("%s: %s", path, body)
		}
		return string(list[0])
	}
	_, status := f.ask("GET", "/status", "")
	_, one := f.ask("GET", "/sessions/"+id, "")
	_, receipt := f.ask("POST", "/sessions/"+id+"/push", `{"event":"x"}`)
	for what, tc := range map[string][2]string{
		"status":   {status, "url pid version startedAt sessions providers faults"},
		"sessions": {first("/sessions"), "id label host model cwd state foreground providers tools createdAt"},
		"session":  {one, "id label host model cwd state foreground providers tools createdAt"},
		"provider": {first("/providers"), "id name instance trust state session tools inFlight connectedAt"},
		"tool":     {first("/tools"), "name description parameters provider session timeoutMs"},
		"of one":   {first("/tools?session=" + id), "name description parameters provider session timeoutMs"},
		"model":    {first("/models?host=local"), "id name multiplier efforts vision"},
		"history":  {first("/sessions/" + id + "/history"), "stream provider ts event level"},
		"receipt":  {receipt, "seq fate"},
	} {
		if got := keys(t, tc[0]); got != tc[1] {
			t.Errorf("%s:\n got %s\nwant %s\n in %s", what, got, tc[1], tc[0])
		}
	}
	if want := `{"url":"ws://127.0.0.1:1","pid":42,"version":"v0","startedAt":"1970-01-01T00:00:00Z","sessions":1,"providers":1,"faults":[]}`; status != want {
		t.Error(status)
	}
	var view adminapi.Session
	if err := json.Unmarshal([]byte(one), &view); err != nil || view.Label != filepath.Base(f.dir) ||
		view.CWD != f.dir ||
		!view.Foreground ||
		view.Tools != 3 {
		t.Errorf("%+v", view)
	}
	if status, body := f.ask("POST", "/sessions/"+id+"/foreground", ""); status != 200 || body != "{}" {
		t.Errorf("foreground: %d %s", status, body)
	}
	if status, body := f.ask("POST", "/sessions/"+id+"/interrupt", `{"reason":"enough"}`); status != 200 ||
		body != "{}" {
		t.Errorf("interrupt: %d %s", status, body)
	}
	if status, body := f.ask("POST", "/providers/sample/stop", ""); status != 200 || body != `{"stopped":1}` {
		t.Errorf("stopping the provider: %d %s", status, body)
	}
	if status, body := f.ask("DELETE", "/sessions/"+id, ""); status != 200 || body != "{}" {
		t.Errorf("stopping: %d %s", status, body)
	}
	if status, _ := f.ask("GET", "/sessions/"+id, ""); status != 404 {
		t.Errorf("a stopped session is there: %d", status)
	}
}

func TestAPIToolCalls(t *testing.T) {
	f := newAPIFixture(t)
	id := f.session()
	f.provide(id)
	for _, tc := range []struct{ tool, body, want string }{
		{"echo", `{"args":{"text":"a<b"}}`, `{"data":{"echoed":{"text":"a<b"}},"durationMs":N}`},
		{"echo", `{"args":{}}`, `"errorCode":"INVALID_ARGUMENTS"`},
		{"fail", ``, `{"error":"no such thing","errorCode":"NOT_FOUND","durationMs":N}`},
		{"fail", `{"args":null,"timeoutMs":5000}`, `{"error":"no such thing","errorCode":"NOT_FOUND","durationMs":N}`},
	} {
		status, body := f.ask("POST", "/sessions/"+id+"/tools/"+tc.tool+"/call", tc.body)
		before, _, _ := strings.Cut(body, `"durationMs":`)
		if status != 200 || !strings.Contains(before+`"durationMs":N}`, tc.want) {
			t.Errorf("%s %s: %d %s", tc.tool, tc.body, status, body)
		}
	}
}

// TestAPIToolCallsAskGates: a host with hooks asks before the calls that it makes,
// and nobody does before one of the admin API but the gateway itself.
func TestAPIToolCallsAskGates(t *testing.T) {
	f := newAPIFixture(t)
	for _, hooks := range []bool{true, false} {
		s, err := f.gateway.Register(gateway.SessionSpec{CWD: f.dir},
			gateway.HostInfo{Kind: "test", Hooks: hooks}, scripted{})
		if err != nil {
			t.Fatal(err)
		}
		f.provide(s.ID())
		status, body := f.ask("POST", "/sessions/"+s.ID()+"/tools/risky/call", "")
		if status != 200 || !strings.Contains(body, `{"error":"too risky","errorCode":"DENIED",`) {
			t.Errorf("hooks %v: %d %s", hooks, status, body)
		}
	}
}

// lines are the objects of an NDJSON answer, times taken out.
func lines(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(body) {
		list = append(list, untimed(t, line))
	}
	return list
}

func untimed(t *testing.T, line string) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	delete(object, "ts")
	var b bytes.Buffer
	_ = encodeJSON(&b, object)
	return strings.TrimSpace(b.String())
}

func TestAPIQueryFollowsItsTurn(t *testing.T) {
	f := newAPIFixture(t)
	id := f.session()
	f.provide(id)
	_, body := f.ask("POST", "/sessions/"+id+"/query", `{"prompt":"hello"}`)
	want := `{"callback":"onAgentStart","turnId":"turn-1"}
{"callback":"onAgentEnd","turnId":"turn-1"}
{"callback":"onIdle"}
{"done":true}`
	if got := strings.Join(lines(t, body), "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
	_, body = f.ask("POST", "/sessions/"+id+"/query", `{"prompt":"call:echo {\"text\":\"hi\"}","mode":"immediate"}`)
	got := strings.Join(lines(t, body), "\n")
	for _, part := range []string{
		`{"callback":"onStartToolExecution","toolArguments":"{\"text\":\"hi\"}","toolCallId":"call-2","toolName":"echo"}`,
		`{"callback":"onEndToolExecution","result":{"content":"{\"echoed\":{\"text\":\"hi\"}}"},"toolCallId":"call-2"}`,
		`{"callback":"onEndMessage","completeContent":"{\"echoed\":{\"text\":\"hi\"}}","messageId":"message-2"}`,
		"{\"callback\":\"onIdle\"}\n{\"done\":true}",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("lacks %s:\n%s", part, got)
		}
	}
	if status, body := f.ask("POST", "/sessions/"+id+"/query", `{"prompt":"hello","detach":true}`); status != 202 ||
		body != "{}" {
		t.Errorf("detached: %d %s", status, body)
	}
}

// scripted is a host that hands its prompts to the test.
type scripted struct{ prompts chan gateway.Prompt }

func (scripted) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (h scripted) Send(_ context.Context, p gateway.Prompt) error       { h.prompts <- p; return nil }
func (scripted) Log(gateway.LogLevel, string)                           {}
func (scripted) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (scripted) Close(context.Context, string) error                    { return nil }

// hosted registers a session of a scripted host.
func (f *apiFixture) hosted() (*gateway.Session, scripted) {
	f.t.Helper()
	h := scripted{make(chan gateway.Prompt, 1)}
	s, err := f.gateway.Register(gateway.SessionSpec{CWD: f.dir}, gateway.HostInfo{Kind: "test", Send: true}, h)
	if err != nil {
		f.t.Fatal(err)
	}
	return s, h
}

func TestAPIQueryTellsHowTheTurnFailed(t *testing.T) {
	f := newAPIFixture(t)
	s, h := f.hosted()
	go func() {
		<-h.prompts
		s.Busy()
		s.Event(gateway.Event{SessionError: "the model said no"})
		s.Idle()
	}()
	_, body := f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	want := `{"sessionError":"the model said no"}
{"callback":"onIdle"}
{"done":true,"error":{"code":"SESSION_ERROR","message":"the model said no"}}`
	if got := strings.Join(lines(t, body), "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
	go func() {
		<-h.prompts
		s.Ended("it died")
	}()
	_, body = f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	want = `{"sessionError":"the session's host is gone: it died"}
{"done":true,"error":{"code":"SESSION_ERROR","message":"the session's host is gone: it died"}}`
	if got := strings.Join(lines(t, body), "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
	s, h = f.hosted()
	go func() {
		<-h.prompts
		if err := s.Stop(context.Background(), "somebody stopped it"); err != nil {
			t.Error(err)
		}
	}()
	_, body = f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	if want := `{"done":true,"error":{"code":"INVALID_SESSION","message":"the session ended before the turn did"}}`; strings.Join(
		lines(t, body),
		"\n",
	) != want {
		t.Errorf("got\n%s", body)
	}
}

// follower reads an NDJSON stream line by line.
type follower struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
}

func (f *apiFixture) follow(path string) *follower {
	f.t.Helper()
	r := f.open("GET", path, "")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/x-ndjson" {
		f.t.Fatalf("%s: %s %s", path, r.Status, r.Header.Get("Content-Type"))
	}
	return &follower{f.t, bufio.NewScanner(r.Body), r.Body}
}

func (f *follower) next() string {
	f.t.Helper()
	if !f.lines.Scan() {
		return "end"
	}
	return untimed(f.t, f.lines.Text())
}

func TestAPIStreamsFollowAndEndWithTheSession(t *testing.T) {
	f := newAPIFixture(t)
	s, _ := f.hosted()
	at := "/sessions/" + s.ID()
	push := func(body string) {
		t.Helper()
		if status, answer := f.ask("POST", at+"/push", body); status != 200 {
			t.Fatalf("push: %d %s", status, answer)
		}
	}
	push(`{"event":"one","stream":"a","level":"keep"}`)
	push(`{"event":"two","stream":"b","level":"keep","metadata":{"n":1}}`)
	push(`{"event":"three","stream":"a","level":"keep","provider":"other"}`)

	live := f.follow(at + "/live")
	log := f.follow(at + "/log?follow=1")
	history := f.follow(at + "/history?follow=1&stream=a")
	owned := f.follow(at + "/history?follow=1&stream=a@other&last=0")
	defer func() { _ = live.body.Close(); _ = log.body.Close(); _ = history.body.Close(); _ = owned.body.Close() }()

	if got := log.next(); got != `{"level":"info","message":"session started","seq":1,"source":"gateway"}` {
		t.Error(got)
	}
	for _, want := range []string{
		`{"event":"one","level":"keep","provider":"tapctl","stream":"a"}`,
		`{"event":"three","level":"keep","provider":"other","stream":"a"}`,
	} {
		if got := history.next(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	push(`{"event":"four","stream":"b","level":"keep"}`)
	push(`{"event":"five","stream":"a","level":"keep","provider":"other"}`)
	want := `{"event":"five","level":"keep","provider":"other","stream":"a"}`
	if got := history.next(); got != want {
		t.Errorf("got %s", got)
	}
	if got := owned.next(); got != want {
		t.Errorf("with last=0: got %s", got)
	}
	s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: "<&>"})
	if got := live.next(); got != `{"callback":"onMessage","delta":"<&>","messageId":"m"}` {
		t.Error(got)
	}
	if status, body := f.ask("DELETE", at, ""); status != 200 {
		t.Fatalf("stopping: %d %s", status, body)
	}
	if got := log.next(); !strings.Contains(got, "session is ending") {
		t.Error(got)
	}
	for what, stream := range map[string]*follower{"live": live, "log": log, "history": history, "owned": owned} {
		if got := stream.next(); got != "end" {
			t.Errorf("%s goes on: %s", what, got)
		}
	}
}

func TestAPIHistoryNewestFirst(t *testing.T) {
	f := newAPIFixture(t)
	s, _ := f.hosted()
	for i := range 5 {
		if status, body := f.ask("POST", "/sessions/"+s.ID()+"/push", fmt.Sprintf(`{"event":"e%d","stream":"a"}`, i)); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/history?stream=a&last=2", "")
	var rows []gateway.HistoryRow
	if err := json.Unmarshal([]byte(body), &rows); err != nil || len(rows) != 2 || rows[0].Event != "e4" ||
		rows[1].Event != "e3" {
		t.Errorf("%v %s", err, body)
	}
	since := rows[1].TS.Format(time.RFC3339Nano)
	if _, body := f.ask("GET", "/sessions/"+s.ID()+"/history?since="+since, ""); strings.Count(body, `"event"`) != 2 {
		t.Errorf("since %s: %s", since, body)
	}
	if _, body := f.ask("GET", "/sessions/"+s.ID()+"/history?stream=none", ""); body != "[]" {
		t.Error(body)
	}
}

func TestAPIPushAndWait(t *testing.T) {
	f := newAPIFixture(t)
	s, h := f.hosted()
	go func() {
		<-h.prompts
		s.Busy()
		s.Idle()
	}()
	_, body := f.ask("POST", "/sessions/"+s.ID()+"/push", `{"prompt":"do","wait":true}`)
	var r adminapi.Receipt
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Fate != adminapi.FateDelivered || r.Seq != 1 {
		t.Errorf("%v %s", err, body)
	}
}
