package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// answerCase is a request of an operation, and the status of its answer, whose
// body must be what the document says. Each operation has one that succeeds.
type answerCase struct {
	op     string
	values string // of the path and the query: "name=echo", "?follow=1"
	body   string
	status int
	// before is done before the request, begun once its answer has begun: what
	// ends a stream.
	before, begun func(f *openAPIFixture, s *gateway.Session)
}

func stopSession(f *openAPIFixture, s *gateway.Session) {
	if err := s.Stop(context.Background(), "stopped by the test"); err != nil {
		f.t.Error(err)
	}
}

// askPermission makes a session ask a person.
func askPermission(f *openAPIFixture, s *gateway.Session) {
	ctx := f.t.Context()
	prompt := gateway.Prompt{Text: `ask:permission {"message":"May it?","detail":"rm x"}`}
	if _, err := s.Prompt(ctx, prompt); err != nil {
		f.t.Error(err)
	}
	defer f.gateway.Watch()()
	for {
		changes := f.gateway.Changes()
		if slices.ContainsFunc(f.gateway.Questions(),
			func(q adminapi.Question) bool { return q.Session == s.ID() }) {
			return
		}
		if err := f.gateway.WaitChange(ctx, changes); err != nil {
			f.t.Error(err)
			return
		}
	}
}

// queuePrompt makes a prompt wait, with the id 2, while a session asks a person.
func queuePrompt(f *openAPIFixture, s *gateway.Session) {
	askPermission(f, s)
	if _, err := s.Prompt(f.t.Context(), gateway.Prompt{Text: "and then the tests"}); err != nil {
		f.t.Error(err)
	}
}

// begin makes a session begin a message.
func begin(_ *openAPIFixture, s *gateway.Session) {
	s.Event(gateway.Event{Callback: gateway.OnStartMessage, ID: "m"})
}

// speak makes a session do something of everything, and end.
func speak(f *openAPIFixture, s *gateway.Session) {
	push := &protocol.Push{
		Stream: "builds", Event: "run 812 ok", Level: protocol.LevelKeep,
		Metadata: protocol.Raw(`{"run":812}`),
	}
	if _, err := s.Push(f.t.Context(), "ci", push); err != nil {
		f.t.Error(err)
	}
	for _, e := range []gateway.Event{
		{Callback: gateway.OnStartReasoning, ID: "r"}, {Callback: gateway.OnReasoning, ID: "r",
			Delta: "hm"}, {Callback: gateway.OnEndReasoning, ID: "r", Content: "hm"},
		{Callback: gateway.OnStartMessage, ID: "m"}, {Callback: gateway.OnMessage, ID: "m",
			Delta: "so"}, {Callback: gateway.OnEndMessage, ID: "m", Content: "so"},
		{Callback: gateway.OnStartToolExecution, ID: "t", ParentID: "p", Tool: "echo",
			Args: `{"text":"x"}`}, {Callback: gateway.OnToolExecution, ID: "t", Delta: "…"},
		{Callback: gateway.OnEndToolExecution, ID: "t",
			Result: &adminapi.ToolOutput{Content: "x", DetailedContent: "xx"}},
		{Callback: gateway.OnEndToolExecution, ID: "u", Error: &adminapi.ToolError{Message: "no",
			Code: "DENIED"}},
		{Callback: gateway.OnAgentStart, ID: "1"}, {Callback: gateway.OnAgentEnd,
			ID: "1"}, {SessionError: "the model is gone"},
	} {
		s.Event(e)
	}
	stopSession(f, s)
}

// use makes a session call its model.
func use(_ *openAPIFixture, s *gateway.Session) {
	s.CountModelCall(gateway.ModelCall{
		Model: "gpt-5-mini", Prompt: "m1", Tokens: adminapi.Tokens{Input: 100, Output: 10},
		Cost: 0.33, Duration: time.Second,
	})
	s.SetContextWindow("m1", adminapi.Context{Tokens: 8000, Limit: 128_000, System: 5000,
		Tools: 2000, Messages: 1000})
}

// answerCases are the requests, {id} being a session's with a provider bound to it
// that has the tools echo, fail and risky.
var answerCases = []answerCase{
	{op: "GET /api/v1/status", status: 200},
	{op: "GET /api/v1/openapi.json", status: 200},
	{op: "POST /api/v1/reload", status: 200},
	{op: "POST /api/v1/shutdown", status: 200},
	{op: "GET /api/v1/events", status: 200},
	{op: "GET /api/v1/events", values: "?name=none", status: 400},
	{op: "GET /api/v1/diagnostics", status: 200},
	{op: "POST /api/v1/signin-links", status: 201},
	// the fixture has no directory
	{op: "POST /api/v1/signin-links", body: `{"file":true}`, status: 400},
	{op: "POST /api/v1/signin-links", body: `[]`, status: 400},
	{op: "POST /api/v1/signout", status: 200},
	{op: "GET /api/v1/models", status: 200},
	{op: "GET /api/v1/models", values: "?host=other", status: 400},
	{op: "GET /api/v1/sessions", values: "session=1", status: 200},
	{op: "GET /api/v1/cluster", status: 200},
	{op: "GET /api/v1/cluster/history", values: "?stream=builds@ci&last=3", status: 200},
	{op: "GET /api/v1/cluster/history", values: "?since=noon", status: 400},
	{op: "POST /api/v1/cluster/push", body: `{"stream":"lasting","event":"x"}`, status: 200},
	{op: "POST /api/v1/cluster/push", body: `{"event":"x"}`, status: 409},
	{op: "POST /api/v1/sessions", body: `{"host":"local","cwd":"/"}`, status: 201},
	{op: "POST /api/v1/sessions", body: `{"host":"local","cwd":"here"}`, status: 400},
	{op: "GET /api/v1/sessions/{id}", status: 200},
	{op: "GET /api/v1/sessions/{id}", values: "id=none", status: 404},
	{op: "DELETE /api/v1/sessions/{id}", status: 200},
	{op: "POST /api/v1/sessions/{id}/query", body: `{"prompt":"call:echo {\"text\":\"x\"}"}`,
		status: 200},
	{op: "POST /api/v1/sessions/{id}/query",
		body: `{"prompt":"hello","detach":true,"mode":"immediate"}`, status: 202},
	{op: "POST /api/v1/sessions/{id}/query", status: 400},
	{op: "POST /api/v1/sessions/{id}/query",
		body: `{"prompt":"look","attachments":[{"path":"here"}]}`, status: 400},
	{
		op: "POST /api/v1/sessions/{id}/answer", body: `{"question":"ASKED","decision":"session"}`,
		before: askPermission, status: 200,
	},
	{op: "POST /api/v1/sessions/{id}/answer", body: `{"text":"yes"}`, before: askPermission,
		status: 400},
	{op: "POST /api/v1/sessions/{id}/answer", body: `{"decision":"once"}`, status: 404},
	{op: "GET /api/v1/questions", before: askPermission, status: 200},
	{op: "POST /api/v1/sessions/{id}/interrupt", body: `{"reason":"enough"}`, status: 200},
	{op: "POST /api/v1/sessions/{id}/interrupt", body: `[]`, status: 400},
	{op: "GET /api/v1/queue", values: "session=1", before: queuePrompt, status: 200},
	{
		op: "PATCH /api/v1/sessions/{id}/queue/{prompt}", values: "prompt=2",
		body: `{"prompt":"other"}`, before: queuePrompt, status: 200,
	},
	{op: "PATCH /api/v1/sessions/{id}/queue/{prompt}", values: "prompt=99",
		body: `{"prompt":"other"}`, status: 404},
	{op: "PATCH /api/v1/sessions/{id}/queue/{prompt}", values: "prompt=99", body: `{"prompt":" "}`,
		status: 400},
	{op: "POST /api/v1/sessions/{id}/queue/{prompt}/send", values: "prompt=2", before: queuePrompt,
		status: 200},
	{op: "DELETE /api/v1/sessions/{id}/queue/{prompt}", values: "prompt=2", before: queuePrompt,
		status: 200},
	{op: "POST /api/v1/sessions/{id}/foreground", status: 200},
	{op: "POST /api/v1/sessions/{id}/mcp-token", status: 200},
	{op: "POST /api/v1/sessions/{id}/provider-token", status: 200},
	{op: "POST /api/v1/sessions/{id}/rename", body: `{"label":"review"}`, status: 200},
	{op: "POST /api/v1/sessions/{id}/rename", body: `{"label":" "}`, status: 400},
	{op: "POST /api/v1/sessions/{id}/rename", body: `{"label":"a\nb"}`, status: 400},
	{op: "GET /api/v1/persisted", status: 200},
	{op: "GET /api/v1/persisted", values: "?cwd=here", status: 400},
	{op: "GET /api/v1/persisted", values: "?last=0", status: 400},
	{op: "POST /api/v1/persisted/{id}/resume", values: "id=stored",
		body: `{"continuePendingWork":true}`, status: 201},
	{op: "POST /api/v1/persisted/{id}/resume", values: "id=stored", status: 409},
	{op: "POST /api/v1/persisted/{id}/resume", values: "id=none", status: 404},
	{
		op:     "POST /api/v1/sessions/{id}/model",
		values: "id=stored",
		body:   `{"model":"gpt-5-mini","effort":"high"}`,
		status: 200,
	},
	{op: "POST /api/v1/sessions/{id}/model", values: "id=stored", body: `{"model":"other"}`,
		status: 400},
	{op: "POST /api/v1/sessions/{id}/model", values: "id=stored", status: 400},
	{op: "POST /api/v1/sessions/{id}/model", body: `{"model":"m"}`, status: 409},
	{op: "DELETE /api/v1/persisted/{id}", values: "id=stored", status: 409},
	{op: "DELETE /api/v1/persisted/{id}", values: "id=old", status: 200},
	{op: "DELETE /api/v1/persisted/{id}", values: "id=none", status: 404},
	{op: "GET /api/v1/sessions/{id}/log", status: 200},
	{op: "GET /api/v1/sessions/{id}/log", values: "?follow=1", begun: speak, status: 200},
	{op: "GET /api/v1/sessions/{id}/log", values: "?last=1&since=2026-01-02T15:04:05Z",
		status: 200},
	{op: "GET /api/v1/sessions/{id}/log", values: "?last=-1", status: 400},
	{op: "GET /api/v1/sessions/{id}/log", values: "?since=noon", status: 400},
	{op: "GET /api/v1/sessions/{id}/log", values: "?follow=maybe", status: 400},
	{op: "GET /api/v1/sessions/{id}/log", values: "?events=1", status: 409},
	{op: "GET /api/v1/sessions/{id}/recording", begun: speak, status: 200},
	{op: "GET /api/v1/sessions/{id}/recording", values: "?last=1", status: 400},
	{op: "GET /api/v1/sessions/{id}/usage", before: use, status: 200},
	{op: "GET /api/v1/sessions/{id}/usage", values: "?calls=1", before: use, status: 200},
	{op: "GET /api/v1/sessions/{id}/usage", values: "?last=1", status: 400},
	{op: "GET /api/v1/sessions/{id}/live", begun: speak, status: 200},
	{op: "GET /api/v1/sessions/{id}/events", values: "?last=1000", begun: speak, status: 200},
	{op: "GET /api/v1/sessions/{id}/events", values: "?last=-1", status: 400},
	{op: "GET /api/v1/sessions/{id}/files", values: "?query=a", status: 200},
	{op: "GET /api/v1/sessions/{id}/files", values: "?last=1", status: 400},
	{op: "GET /api/v1/sessions/{id}/commands", status: 200},
	{op: "POST /api/v1/sessions/{id}/commands/{name}", values: "name=tools", status: 200},
	{op: "POST /api/v1/sessions/{id}/commands/{name}", values: "name=call",
		body: `{"input":"echo"}`, status: 200},
	{op: "POST /api/v1/sessions/{id}/commands/{name}", values: "name=call", status: 400},
	{op: "POST /api/v1/sessions/{id}/commands/{name}", values: "name=none", status: 404},
	{op: "GET /api/v1/sessions/{id}/earlier", values: "?before=BIRTH.0.0.0.0.9", status: 200},
	{op: "GET /api/v1/sessions/{id}/earlier", values: "?before=b.0.0.0.0.9", status: 400},
	{op: "GET /api/v1/sessions/{id}/earlier", values: "?before=BIRTH.0.0.0.0.9&last=0",
		status: 400},
	{op: "POST /api/v1/sessions/{id}/push", body: `{"event":"x","metadata":{"a":1}}`, status: 200},
	{op: "POST /api/v1/sessions/{id}/push", body: `{"event":"x","level":"loud"}`, status: 400},
	{op: "POST /api/v1/push", body: `{"event":"x","stream":"s","provider":"p","metadata":{"a":1}}`,
		status: 200},
	{op: "POST /api/v1/push", body: `{"stream":"s"}`, status: 400},
	{op: "GET /api/v1/sessions/{id}/history", values: "?stream=builds@ci&last=3", status: 200},
	{op: "GET /api/v1/sessions/{id}/history", values: "?follow=true&last=0", begun: speak,
		status: 200},
	{op: "GET /api/v1/sessions/{id}/history", values: "?since=noon", status: 400},
	{
		op:     "POST /api/v1/sessions/{id}/tools/{name}/call",
		values: "name=echo",
		body:   `{"args":{"text":"x"},"timeoutMs":5000}`,
		status: 200,
	},
	{op: "POST /api/v1/sessions/{id}/tools/{name}/call", values: "name=fail", status: 200},
	{op: "POST /api/v1/sessions/{id}/tools/{name}/call", values: "name=none", status: 404},
	{op: "GET /api/v1/tools", values: "session=1", status: 200},
	{op: "GET /api/v1/tools", values: "?session=none", status: 404},
	{op: "GET /api/v1/providers", values: "session=1", status: 200},
	{op: "POST /api/v1/providers/{name}/stop", values: "name=filed", status: 200},
	{op: "POST /api/v1/providers/{name}/stop", values: "name=none", status: 404},
	{op: "POST /api/v1/providers/{name}/start", values: "name=filed", status: 200},
	{op: "POST /api/v1/providers/{name}/start", values: "name=none", status: 404},
	{op: "POST /api/v1/providers/{name}/restart", values: "name=filed", status: 200},
	{op: "POST /api/v1/providers/{name}/restart", values: "name=none", status: 404},
	{op: "POST /api/v1/providers/{name}/login", values: "name=filed", status: 200},
	{op: "POST /api/v1/providers/{name}/login", values: "name=filed", body: `{"file":true}`,
		status: 400},
	{op: "POST /api/v1/providers/{name}/login", values: "name=none", status: 404},
	{op: "POST /api/v1/providers/{name}/logout", values: "name=filed", status: 200},
	{op: "POST /api/v1/providers/{name}/logout", values: "name=none", status: 404},
	{op: "GET /api/v1/records", values: "?session=s&since=2026-01-02T15:04:05Z&last=5",
		status: 200},
	{op: "GET /api/v1/records", values: "?until=noon", status: 400},
	{op: "GET /api/v1/records", values: "?last=10001", status: 400},
	{op: "GET /api/v1/records", values: "?session=none", status: 404},
	{op: "GET /api/v1/records", values: "?kind=calls", status: 400},
	{op: "GET /api/v1/records", values: "?outcome=nope", status: 400},
	{op: "GET /api/v1/records", values: "?trace=0AF7651916CD43DD8448EB211C80319C", status: 400},
	{op: "GET /api/v1/records", values: "?provider=%2A", status: 400},
	{op: "GET /api/v1/records", values: "?tool=a%00b", status: 400},
	{op: "GET /api/v1/records", values: "?provider=nobody&tool=none&outcome=ok&kind=call",
		status: 200},
	{op: "GET /api/v1/sources", status: 200},
	{op: "POST /api/v1/sources/{name}/run", values: "name=filed", status: 200},
	{op: "POST /api/v1/sources/{name}/run", values: "name=none", status: 404},
	{op: "GET /api/v1/providers/{name}/log", values: "name=filed", status: 200},
	{op: "GET /api/v1/providers/{name}/log", values: "name=filed?last=1&follow=1", status: 200},
	{op: "GET /api/v1/providers/{name}/log", values: "name=filed?follow=maybe", status: 400},
	{op: "GET /api/v1/providers/{name}/log", values: "name=none", status: 404},
	{op: "GET /api/v1/providers/configured", status: 200},
	{op: "GET /api/v1/rules", status: 200},
	{op: "GET /api/v1/sessions/{id}/filters", status: 200},
	{op: "GET /api/v1/terminals", status: 200},
	{op: "POST /api/v1/terminals/hooks", body: `{"event":"preToolUse","pid":1,"input":{}}`,
		status: 200},
	{op: "POST /api/v1/terminals/hooks", body: `{"event":"boom","pid":1,"input":{}}`, status: 400},
	{op: "POST /api/v1/terminals", body: `{"port":4321}`, status: 200},
	{op: "POST /api/v1/terminals", body: `{"port":0}`, status: 400},
	{op: "GET /api/v1/goals", values: "?session=s", status: 200},
	{op: "GET /api/v1/goals", values: "?last=1", status: 400},
	{op: "GET /api/v1/goals", values: "?session=none", status: 404},
	{op: "POST /api/v1/goals", body: `{"session":"s","text":"t","checks":[{"file":"a"}]}`,
		status: 201},
	{op: "POST /api/v1/goals", body: `{"goal":"t"}`, status: 400},
	{op: "GET /api/v1/goals/{goal}", values: "goal=g-1", status: 200},
	{op: "GET /api/v1/goals/{goal}", values: "goal=none", status: 404},
	{op: "POST /api/v1/goals/{goal}/stop", values: "goal=g-1", body: `{"reason":"r"}`, status: 200},
	{op: "POST /api/v1/goals/{goal}/stop", values: "goal=none", status: 404},
	{op: "GET /api/v1/pairings", values: "session=1", status: 200},

	{op: "POST /api/copilot/models", status: 200},
	{op: "POST /api/copilot/session/start/{model-id}", values: "model-id=local", body: "/",
		status: 200},
	{op: "POST /api/copilot/session/start/{model-id}", values: "model-id=local", body: "here",
		status: 200},
	{op: "POST /api/copilot/session/{session-id}/query", body: "hello", status: 200},
	{op: "POST /api/copilot/session/{session-id}/query", values: "session-id=none", body: "hello",
		status: 200},
	{op: "POST /api/copilot/session/{session-id}/live", before: begin, status: 200},
	{op: "POST /api/copilot/session/{session-id}/live", values: "session-id=none", status: 200},
	{op: "POST /api/copilot/session/{session-id}/stop", status: 200},
	{op: "POST /api/copilot/session/{session-id}/stop", values: "session-id=none", status: 200},
	{op: "POST /api/stop", status: 200},
	{op: "POST /api/config", status: 200},
	{op: "POST /api/token", status: 200},
	{op: "POST /api/test", status: 200},
}

// What the handlers answer is what the document says: of every operation a
// success, and the error of a request without token; of most another error.
func TestOpenAPIAnswers(t *testing.T) {
	f := newOpenAPIFixture(t)
	succeeded := map[string]bool{}
	operations := f.doc.operations(t)
	for _, c := range answerCases {
		for _, op := range []string{c.op, strings.Replace(c.op, "POST /api/copilot/",
			"GET /api/copilot/", 1)} {
			i := slices.IndexFunc(operations, func(o *apiOperation) bool {
				return o.String() == op
			})
			if i < 0 {
				t.Errorf("%s: openapi.json has no entry for it, want one", op)
				continue
			}
			f.answers(operations[i], c)
			succeeded[op] = succeeded[op] || c.status < 300
			if op == c.op && !strings.HasPrefix(op, "POST /api/copilot/") {
				break
			}
		}
	}
	for _, o := range operations {
		if !succeeded[o.String()] && !slices.ContainsFunc(answerCases, func(c answerCase) bool {
			return o.String() == strings.Replace(c.op, "POST /api/", "GET /api/", 1) &&
				!strings.HasPrefix(o.path, apiPrefix)
		}) {
			t.Errorf("%s: answerCases has no request that succeeds, want one", o)
		}
		if o.Security != nil {
			continue
		}
		r, err := http.NewRequestWithContext(t.Context(),
			o.method, f.url+f.fill(o, map[string]string{"name": "x", "model-id": "x"}), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: got %s, want 401", o, response.Status)
		}
		f.fits(fmt.Sprintf("%s without a token", o), o, response)
	}
}

// answers makes a request and holds its answer against the document.
func (f *openAPIFixture) answers(o *apiOperation, c answerCase) {
	f.t.Helper()
	what := fmt.Sprintf("%s %s %s", o, c.values, c.body)
	values := map[string]string{}
	given, query, _ := strings.Cut(c.values, "?")
	path := *o
	for pair := range strings.FieldsSeq(given) {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
		path.path = strings.ReplaceAll(path.path, "{"+name+"}", value)
	}
	at := f.fill(&path, values)
	if query != "" {
		if strings.Contains(query, "BIRTH") {
			query = strings.ReplaceAll(query, "BIRTH", birthOf(f.made))
		}
		at += "?" + query
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	body := c.body
	if o.path == "/api/copilot/session/start/{model-id}" && strings.HasPrefix(body, "/") {
		body = f.dir
	}
	s := f.made
	if c.before != nil {
		c.before(f, s)
	}
	if strings.Contains(body, "ASKED") {
		body = strings.ReplaceAll(body, "ASKED", f.gateway.Questions()[0].ID)
	}
	response := f.request(ctx, o.method, at, body)
	if response.StatusCode != c.status {
		data, _ := io.ReadAll(response.Body)
		f.t.Errorf("%s: %s %s, want %d", what, response.Status, data, c.status)
		return
	}
	if c.begun != nil {
		c.begun(f, s)
	}
	f.fits(what, o, response)
}

// fits holds a response against what the document says of its status.
func (f *openAPIFixture) fits(what string, o *apiOperation, response *http.Response) {
	f.t.Helper()
	defer func() { _ = response.Body.Close() }()
	said, ok := o.Responses[strconv.Itoa(response.StatusCode)]
	if !ok {
		said = o.Responses["default"]
		if response.StatusCode < 400 {
			f.t.Errorf("%s: got status %d, want one of the document", what, response.StatusCode)
		}
	}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	m, ok := said.Content[media]
	if !ok {
		f.t.Errorf("%s: got an answer of type %q, want one of the document", what, media)
		return
	}
	switch media {
	case "application/json":
		data, err := io.ReadAll(response.Body)
		if err != nil {
			f.t.Errorf("%s: %v", what, err)
		}
		f.doc.check(f.t, what, m.Schema, data)
	case "application/x-ndjson":
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		n := 0
		for ; lines.Scan(); n++ {
			f.doc.check(f.t, what, m.Item, bytes.Clone(lines.Bytes()))
		}
		if err := lines.Err(); err != nil || n == 0 {
			f.t.Errorf("%s: %d lines, %v, want at least one and no error", what, n, err)
		}
	case "text/event-stream":
		left := maps.Clone(m.Events)
		delete(left, adminapi.EventGap) // nothing is lost here
		events := newEvents(response.Body)
		for len(left) > 0 {
			e, err := events.next()
			if err != nil {
				f.t.Errorf("%s: got %v, want events %v, too", what, err,
					slices.Sorted(maps.Keys(left)))
				return
			}
			schema, ok := m.Events[e.name]
			if !ok {
				f.t.Errorf("%s: got the event %q, want one of the document", what, e.name)
				return
			}
			f.doc.check(f.t, what+" "+e.name, schema, []byte(e.data))
			delete(left, e.name)
		}
	default:
		f.t.Errorf("%s: nobody checks %s, want a check for it", what, media)
	}
}
