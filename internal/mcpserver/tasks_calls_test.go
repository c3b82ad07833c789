package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// slow is a provider with the tool slow, which reports half and returns when the test lets it, and the tool
// asks, which asks a person twice.
type slow struct {
	*provider
	release chan struct{}
}

func (w *world) slow(s *gateway.Session) slow {
	w.Helper()
	p := slow{release: make(chan struct{})}
	raw := func(name string, run func(ctx context.Context) (any, error)) providers.Tool {
		return providers.Tool{Name: name, Description: "d",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) { return run(ctx) }}
	}
	ask := func(ctx context.Context, text string) (gateway.Answer, error) {
		info, _ := providers.CallFrom(ctx)
		return s.Ask(ctx, gateway.Question{Kind: adminapi.QuestionForm, Message: text, Call: info.ID,
			Schema: protocol.Raw(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)})
	}
	p.provider = w.provide(s,
		raw("slow", func(ctx context.Context) (any, error) {
			providers.Progress(ctx, "half\x1b[2J done")
			select {
			case <-p.release:
				return "finished", nil
			case <-ctx.Done():
				p.cancelled <- struct{}{}
				return nil, context.Cause(ctx)
			}
		}),
		raw("asks", func(ctx context.Context) (any, error) {
			answers := make(chan string, 2)
			for _, text := range []string{"Really?", "Surely?"} {
				go func() {
					a, err := ask(ctx, text)
					answers <- fmt.Sprint(a.Decision, string(a.Content), err)
				}()
			}
			got := []string{<-answers, <-answers}
			slices.Sort(got)
			return strings.Join(got, " and "), nil
		}))
	return p
}

func resultText(v map[string]any) string {
	result, _ := v["result"].(map[string]any)
	content, _ := result["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	text, _ := content[0].(map[string]any)["text"].(string)
	return text
}

func TestSlowCallIsATask(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		p := w.slow(w.session())
		c := connect(w, "/mcp", w.gateway.AdminToken())
		discovered := c.ask("server/discover", map[string]any{})
		if got := fmt.Sprint(discovered.Result["capabilities"]); !strings.Contains(
			got,
			"io.modelcontextprotocol/tasks",
		) {
			t.Errorf("capabilities: got %s, want the extension", got)
		}
		quick := c.ask("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": "hi"}})
		if quick.Result["resultType"] != "complete" || quick.Result["taskId"] != nil {
			t.Errorf("a quick call: got %v, want its result", quick)
		}
		id := begin(w, c, "slow")
		v := taskNow(w, c, id)
		for v["statusMessage"] == nil {
			v = taskNow(w, c, id)
		}
		if v["status"] != "working" || v["statusMessage"] != `half\x1b[2J done` || v["result"] != nil {
			t.Errorf("while it runs: got %v, want the progress as text", v)
		}
		close(p.release)
		if v := until(w, c, id, "completed"); resultText(v) != "finished" {
			t.Errorf("after it: got %v, want finished", v)
		}
	})
}

// The task belongs to the token, not to the connection.
func TestTaskOutlivesItsClient(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		s := w.session()
		p := w.slow(s)
		path := "/mcp/s/" + s.ID()
		c := connect(w, path, w.gateway.AdminToken())
		id := begin(w, c, "slow")
		c.cut()
		close(p.release)
		other := w.rawHTTP(path, w.gateway.AdminToken())
		if v := until(w, other, id, "completed"); resultText(v) != "finished" {
			t.Errorf("for another client with the same token: got %v, want finished", v)
		}
	})
}

func TestCancelledTask(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		p := w.slow(w.session())
		c := connect(w, "/mcp", w.gateway.AdminToken())
		id := begin(w, c, "slow")
		for range 2 { // the second one has nothing to do
			a := c.ask("tasks/cancel", map[string]any{"taskId": id})
			if a.Error != nil || a.Result["resultType"] != "complete" || a.Result["status"] != nil {
				t.Errorf("tasks/cancel: got %v, want an empty answer", a)
			}
		}
		w.receive("the cancellation at the provider", p.cancelled)
		if v := taskNow(w, c, id); v["status"] != "cancelled" || v["result"] != nil {
			t.Errorf("a cancelled task: got %v, want that", v)
		}
	})
}

func TestTasksOfOthers(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		s, foreign := w.session(), w.session()
		w.slow(s)
		token := func(s *gateway.Session) string {
			token, err := s.MCPToken()
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		mine := connect(w, "/mcp/s/"+s.ID(), token(s))
		id := begin(w, mine, "slow")
		for name, c := range map[string]rawClient{
			"a pass of another session": connect(w, "/mcp", token(foreign)),
			"the admin token":           connect(w, "/mcp/s/"+s.ID(), w.gateway.AdminToken()),
		} {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				params := map[string]any{"taskId": id, "inputResponses": map[string]any{}}
				if a := c.ask(method, params); a.code() != -32602 {
					t.Errorf("%s of %s: got %v, want -32602", method, name, a)
				}
			}
			events := c.listen(id)
			ack := receiveFrom(w, "the acknowledgement", events)
			if notifications, _ := ack.Params["notifications"].(map[string]any); notifications["taskIds"] != nil {
				t.Errorf("a stream of %s: got %v, want no task", name, ack.Params)
			}
		}
		for _, id := range []string{"", "x", id[1:], strings.Repeat("a", 1<<10)} {
			if a := mine.ask("tasks/get", map[string]any{"taskId": id}); a.code() != -32602 {
				t.Errorf("tasks/get of %.30q: got %v, want -32602", id, a)
			}
		}
		if v := taskNow(w, mine, id); v["status"] != "working" {
			t.Errorf("after all that: got %v, want it at work", v)
		}
	})
}

func TestTaskEndsWithItsSession(t *testing.T) {
	w := newWorld(t, 60)
	s := w.session()
	w.slow(s)
	foreground := w.rawHTTP("/mcp", w.gateway.AdminToken())
	own := w.rawHTTP("/mcp/s/"+s.ID(), w.gateway.AdminToken())
	one, two := begin(w, foreground, "slow"), begin(w, own, "slow")
	if err := s.Stop(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	if v := until(w, foreground, one, "completed"); !strings.HasPrefix(resultText(v), "CANCELLED") {
		t.Errorf("at the foreground's URL: got %v, want that the call was cancelled", v)
	}
	if a := foreground.ask("tasks/get", map[string]any{"taskId": two}); a.code() != -32602 {
		t.Errorf("a task at the URL of an ended session: got %v, want -32602", a)
	}
}

// A client of tapgw mcp goes on at the next gateway, where its tasks are unknown.
func TestTasksEndWithTheGateway(t *testing.T) {
	var mu sync.Mutex
	w := newWorld(t, 60)
	w.slow(w.session())
	now := w
	c := w.rawRelayTo(func() (url, token string) {
		mu.Lock()
		defer mu.Unlock()
		return now.ws + "/mcp", now.gateway.AdminToken()
	})
	id := begin(w, c, "slow")
	events := c.listen(id)
	receiveFrom(w, "the acknowledgement", events)
	next := newWorld(t, 60)
	next.slow(next.session())
	mu.Lock()
	now = next
	mu.Unlock()
	w.gateway.Drain(t.Context())
	w.mcp.Close() // ends the connection
	if a := c.ask("tasks/get", map[string]any{"taskId": id}); a.code() != -32602 {
		t.Errorf("tasks/get at the next gateway: got %v, want -32602", a)
	}
	ack := answered{}
	for ack.Method != "notifications/subscriptions/acknowledged" {
		ack = receiveFrom(w, "the acknowledgement of the next gateway", events)
	}
	if named, _ := ack.Params["notifications"].(map[string]any); named["taskIds"] != nil {
		t.Errorf("the stream at the next gateway: got %v, want no tasks", named)
	}
	begin(next, c, "slow")
}

// wait_for_event is a slow call as any other.
func TestWaitIsATask(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		s := w.session()
		c := connect(w, "/mcp", w.gateway.AdminToken())
		id := begin(w, c, "wait_for_event")
		if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: "builds", Event: "red",
			Level: protocol.LevelKeep}); err != nil {
			t.Fatal(err)
		}
		if v := until(w, c, id, "completed"); !strings.Contains(resultText(v), `"event":"red"`) {
			t.Errorf("the wait: got %v, want the event", v)
		}
	})
}

func TestTasksAreForWhoTakesThem(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		w.slow(w.session())
		c := connect(w, "/mcp", w.gateway.AdminToken())
		id := begin(w, c, "slow")
		for _, capabilities := range []string{`{}`, `{"extensions":{}}`, `{"extensions":{"x":{}}}`} {
			c.setCapabilities(capabilities)
			requests := map[string]map[string]any{"tasks/get": {"taskId": id}, "tasks/update": {"taskId": id},
				"tasks/cancel": {"taskId": id}, "subscriptions/listen": listenParams([]string{id})}
			for method, params := range requests {
				a := c.ask(method, params)
				if a.code() != -32021 || !strings.Contains(fmt.Sprint(a.Error.Data), "io.modelcontextprotocol/tasks") {
					t.Errorf("%s with %s: got %v, want -32021 with what is missing", method, capabilities, a)
				}
			}
		}
		c.setCapabilities(takesTasks)
		for _, method := range []string{"tasks/list", "tasks/result"} {
			if a := c.ask(method, map[string]any{"taskId": id}); a.code() != -32601 {
				t.Errorf("%s: got %v, want -32601", method, a)
			}
		}
	})
}

// customParams and customResult are of the SDK's own requests for a method that it does not know.
type (
	customParams struct {
		mcp.ParamsBase
		TaskID string `json:"taskId"`
	}
	customResult struct{ mcp.ResultBase }
)

// Clients that know nothing of tasks wait for their results.
func TestClientsWithoutTasks(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		p := w.slow(w.session())
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		params := &mcp.CallToolParams{Name: "slow"}
		params.SetProgressToken("p")
		result := make(chan string, 1)
		go func() {
			r, err := c.CallTool(t.Context(), params)
			result <- fmt.Sprint(text(r), err)
		}()
		receiveFrom(w, "progress", c.progress)
		if v := c.InitializeResult(); version != eras["modern"] && v.Capabilities.Extensions != nil {
			t.Errorf("capabilities: got %v, want no extension", v.Capabilities.Extensions)
		}
		close(p.release)
		if got := receiveFrom(w, "the result", result); got != "finished<nil>" {
			t.Errorf("slow: got %q, want finished", got)
		}
	})
}

func TestTasksAreNotForHandshakes(t *testing.T) {
	w := newWorld(t, 60)
	w.session()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	if err := mcp.AddSendingCustomMethod[*customParams, *customResult](client, "tasks/get"); err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: w.url + "/mcp", MaxRetries: -1,
		HTTPClient: w.authorized()}, &mcp.ClientSessionOptions{ProtocolVersion: eras["handshake"]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = mcp.CallCustomMethod[*customParams, *customResult](t.Context(), c, "tasks/get", &customParams{TaskID: "x"})
	if err == nil || !strings.Contains(err.Error(), "method not found") {
		t.Errorf("tasks/get after a handshake: got %v, want method not found", err)
	}
}

func TestNameOfATaskRequest(t *testing.T) {
	w := newWorld(t, 60)
	w.slow(w.session())
	c := &httpClient{w: w, path: "/mcp", token: w.gateway.AdminToken(), capabilities: takesTasks}
	id := begin(w, c, "slow")
	for _, name := range []string{"", "x", id + "x"} {
		c.headers = map[string]string{"Mcp-Name": name}
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if a := c.ask(method, map[string]any{"taskId": id}); a.code() != -32020 || a.ID != float64(1) {
				t.Errorf("%s with the name %q: got %v, want -32020", method, name, a)
			}
		}
	}
	c.headers = nil
	if v := taskNow(w, c, id); v["status"] != "working" {
		t.Errorf("with the right name: got %v, want it at work", v)
	}
}

func TestNewsOfTasks(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		p := w.slow(w.session())
		c := connect(w, "/mcp", w.gateway.AdminToken())
		id, other := begin(w, c, "slow"), begin(w, c, "hang")
		events := c.listen(id, "unknown", id)
		ack := receiveFrom(w, "the acknowledgement", events)
		named, _ := ack.Params["notifications"].(map[string]any)
		if ack.Method != "notifications/subscriptions/acknowledged" || fmt.Sprint(named["taskIds"]) != "["+id+"]" {
			t.Errorf("the acknowledgement: got %v %v, want it with the task", ack, ack.Params)
		}
		if a := c.ask("tasks/cancel", map[string]any{"taskId": other}); a.Error != nil {
			t.Errorf("tasks/cancel: got %v, want no error", a)
		}
		first := receiveFrom(w, "the task of now", events)
		if first.Method != "notifications/tasks" || first.Params["taskId"] != id ||
			first.Params["status"] != "working" ||
			first.Params["resultType"] != nil {
			t.Errorf("at first: got %v %v, want the task of now", first.Method, first.Params)
		}
		close(p.release)
		last := first
		for last.Params["status"] == "working" {
			last = receiveFrom(w, "the end", events)
			if last.Params["taskId"] != id {
				t.Errorf("got %v, want no word of another task", last.Params)
			}
		}
		if last.Params["status"] != "completed" || resultText(last.Params) != "finished" ||
			fmt.Sprint(last.Params["_meta"]) != fmt.Sprint(ack.Params["_meta"]) {
			t.Errorf("at last: got %v, want the whole task, and %v", last.Params, ack.Params["_meta"])
		}
	})
}

// waitsForTwo returns a task once it waits for two answers, and the keys.
func waitsForTwo(w *world, c rawClient, id string) []string {
	w.Helper()
	for {
		v := until(w, c, id, "input_required")
		if requests, _ := v["inputRequests"].(map[string]any); len(requests) == 2 {
			return slices.Sorted(maps.Keys(requests))
		}
	}
}

func update(id string, responses any) map[string]any {
	return map[string]any{"taskId": id, "inputResponses": responses}
}

func TestQuestionsOfATask(t *testing.T) {
	eachWire(t, func(t *testing.T, connect func(*world, string, string) rawClient) {
		w := newWorld(t, 60)
		s := w.session()
		w.slow(s)
		c := connect(w, "/mcp", w.gateway.AdminToken())
		id := begin(w, c, "asks") // at once, since it waits for a person
		for v := taskNow(w, c, id); ; v = taskNow(w, c, id) {
			message, _ := v["statusMessage"].(string)
			if v["status"] != "working" || v["inputRequests"] != nil {
				t.Fatalf("for a client that can't ask: got %v, want no requests", v)
			}
			if strings.Contains(message, "waits for a person's answer") {
				break
			}
		}
		c.setCapabilities(elicits)
		keys := waitsForTwo(w, c, id)
		ok := map[string]any{"action": "accept", "content": map[string]any{"ok": true}}
		for name, tc := range map[string]struct {
			responses any
			code      int
		}{
			"nothing":         {nil, 0},
			"no object":       {[]int{1}, -32602},
			"strange keys":    {map[string]any{"x": 1, "": nil, "__proto__": ok, strings.Repeat("k", 1<<16): "v"}, 0},
			"a number":        {map[string]any{keys[0]: 12345}, -32602},
			"a strange act":   {map[string]any{keys[0]: map[string]any{"action": "agree"}}, -32602},
			"a wrong content": {map[string]any{keys[0]: map[string]any{"action": "accept", "content": 1}}, -32602},
			"a lacking field": {map[string]any{keys[0]: map[string]any{"action": "accept"}}, -32602},
		} {
			if a := c.ask("tasks/update", update(id, tc.responses)); a.code() != tc.code {
				t.Errorf("%s: got %v, want %d", name, a, tc.code)
			}
		}
		if got := waitsForTwo(w, c, id); !slices.Equal(got, keys) {
			t.Errorf("after them: got %q, want %q", got, keys)
		}
		a := c.ask("tasks/update", update(id, map[string]any{keys[0]: ok, "x": 1}))
		v := taskNow(w, c, id)
		if requests, _ := v["inputRequests"].(map[string]any); a.Error != nil || len(requests) != 1 ||
			requests[keys[1]] == nil {
			t.Errorf("after one of two: got %v, %v, want the other", a, v)
		}
		no := map[string]any{"action": "decline"}
		if a := c.ask("tasks/update", update(id, map[string]any{keys[0]: no})); a.Error != nil {
			t.Errorf("the same once more: got %v, want it ignored", a)
		}
		c.ask("tasks/update", update(id, map[string]any{keys[1]: no}))
		if v := until(w, c, id, "completed"); resultText(v) != `deny<nil> and {"ok":true}<nil>` {
			t.Errorf("the call: got %q, want both answers", resultText(v))
		}
		lines, _ := s.Timeline(0)
		if !slices.ContainsFunc(lines, func(l gateway.TimelineLine) bool {
			return strings.Contains(l.Message, `answered by the user ("an MCP client")`)
		}) {
			t.Errorf("timeline: got %v, want who answered", lines)
		}
	})
}

// The first answer counts, wherever it comes from.
func TestQuestionsAnsweredElsewhere(t *testing.T) {
	w := newWorld(t, 60)
	s := w.session()
	w.slow(s)
	c := w.rawHTTP("/mcp", w.gateway.AdminToken())
	c.setCapabilities(elicits)
	id := begin(w, c, "asks")
	keys := waitsForTwo(w, c, id)
	// Nobody is at the client: the question waits on, but not there.
	c.ask("tasks/update", update(id, map[string]any{keys[0]: map[string]any{"action": "cancel"}}))
	v := taskNow(w, c, id)
	if requests, _ := v["inputRequests"].(map[string]any); len(requests) != 1 || requests[keys[1]] == nil {
		t.Errorf("after a dismissal: got %v, want the other question", v)
	}
	for _, key := range keys {
		if err := s.Answer(key, gateway.Answer{Content: protocol.Raw(`{"ok":false}`)}); err != nil {
			t.Fatalf("answering %s elsewhere: got %v, want no error", key, err)
		}
	}
	late := map[string]any{"action": "accept", "content": map[string]any{"ok": true}}
	if a := c.ask("tasks/update", update(id, map[string]any{keys[0]: late, keys[1]: late})); a.Error != nil {
		t.Errorf("a late answer: got %v, want it ignored", a)
	}
	if v := until(w, c, id, "completed"); resultText(v) != `{"ok":false}<nil> and {"ok":false}<nil>` {
		t.Errorf("the call: got %q, want the first answers", resultText(v))
	}
}
