//go:build e2e && linux

package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestSessionEvents has a provider that listens to a turn.
func TestSessionEvents(t *testing.T) {
	t.Parallel()
	s := newAgents(t).start(t)
	all := s.bindProvider("listener",
		message{"subscribe": []string{"user.message", "assistant.message",
			"tool.execution_complete", "assistant.intent"},
			"tools": []message{{"name": "greet", "description": "Greets",
				"parameters": message{"type": "object"}}}})
	tools := s.bindProvider("tools-only", message{"subscribe": []string{"tool.execution_complete"}})
	none := s.bindProvider("deaf", message{})

	greet := call(t, "greet", message{"name": "Ada"})
	shell := call(t, "bash", message{"command": "echo hi", "description": "Greet the world"})
	for i, prompt := range []string{shell, greet} {
		turn := s.asking(s.session, prompt)
		if i == 1 {
			all.send(message{"type": "tool.result", "id": all.next("tool.call")["id"],
				"data": "Hello, Ada!"})
		}
		turn.wait(patience)
	}
	s.waitIdle(s.session)

	for _, want := range []struct{ event, data string }{
		{"user.message", `{"content":` + quote(t, shell) + `}`},
		{"assistant.message",
			`{"content":"","toolRequests":[{"name":"bash","args":{"command":"echo hi","description":"Greet the world"}}]}`},
		{"assistant.intent", `{"intent":"Greet the world"}`},
		{"tool.execution_complete",
			`{"tool":"bash","args":{"command":"echo hi","description":"Greet the world"},"result":{"type":"success","output":"hi\n<shellId: 0 completed with exit code 0>"}}`},
		{"assistant.message", `{"content":"hi\n<shellId: 0 completed with exit code 0>"}`},
		{"user.message", `{"content":` + quote(t, greet) + `}`},
		{"assistant.message",
			`{"content":"","toolRequests":[{"name":"greet","args":{"name":"Ada"}}]}`},
		{"tool.execution_complete",
			`{"tool":"greet","provider":"listener","args":{"name":"Ada"},"result":{"type":"success","output":"Hello, Ada!"}}`},
		{"assistant.message", `{"content":"Hello, Ada!"}`},
	} {
		hears(t, all, s.session, want.event, want.data)
		if want.event == "tool.execution_complete" {
			hears(t, tools, s.session, want.event, want.data)
		}
	}
	if n := tools.count("session.event"); n != 2 {
		t.Errorf("who subscribed to tools only got %d events, want 2", n)
	}
	if n := none.count("session.event"); n != 0 {
		t.Errorf("who did not subscribe got %d events, want 0", n)
	}
}

func quote(t *testing.T, text string) string {
	t.Helper()
	data, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// hears checks the next session.event; how long a tool took is its own affair.
func hears(t *testing.T, c *peer, session, event, data string) {
	t.Helper()
	m := c.next("session.event")
	got, _ := m["data"].(map[string]any)
	if took, ok := got["durationMs"].(float64); ok != (event == "tool.execution_complete") ||
		took < 0 {
		t.Errorf("%s took %v, want a time at the end of a tool only", event, got["durationMs"])
	}
	delete(got, "durationMs")
	if m["event"] != event || m["sessionId"] != session ||
		!reflect.DeepEqual(got, decode[map[string]any](t, data)) {
		t.Errorf("the provider got %v, want %s %s", m, event, data)
	}
}

// TestInstances has two tabs that share a tool.
func TestInstances(t *testing.T) {
	t.Parallel()
	s := newAgents(t).start(t)
	tab := func(instance, title string) *peer {
		return s.bindProvider("browser",
			message{"instance": instance, "metadata": message{"title": title},
				"tools": []message{{"name": "page_title", "description": "The page's title",
					"parameters": message{"type": "object",
						"properties": message{"upper": message{"type": "boolean"}}}}}})
	}
	one, two := tab("tab-1", "Dashboard"), tab("tab-2", "Settings")
	turn := func(c *peer, prompt, answer string) {
		t.Helper()
		asking := s.asking(s.session, prompt)
		m := c.next("tool.call")
		args, _ := m["args"].(map[string]any)
		if _, passed := args["target"]; passed || m["tool"] != "page_title" {
			t.Errorf("the provider was called with %v, want page_title without a target", m)
		}
		c.send(message{"type": "tool.result", "id": m["id"], "data": answer})
		asking.wait(patience)
		if told := s.lastResult(); told != answer {
			t.Errorf("the model was told %q, want %q", told, answer)
		}
	}
	turn(one, call(t, "page_title", message{"target": "tab-1", "upper": true}), "the dashboard")
	turn(two, call(t, "page_title", message{"target": "tab-2"}), "the settings")
	turn(two, call(t, "page_title", message{}), "the settings again") // it was active last
	first := request(t, s.m, 1)
	var shared int
	for _, tool := range first.Tools {
		if tool.Name == "page_title" {
			shared++
			inOrder(t, string(tool.Parameters), "target", "tab-1 (Dashboard)", "tab-2 (Settings)")
		}
	}
	if shared != 1 || !first.HasTool("list_browser_instances") {
		t.Errorf("the model was offered %q, want list_browser_instances once", first.ToolNames())
	}
	s.ask(s.session, "call:list_browser_instances")
	inOrder(t, s.lastResult(), `"instance":"tab-1"`, "Dashboard", `"instance":"tab-2"`, "Settings")
	s.ask(s.session, call(t, "page_title", message{"target": "tab-3"}))
	inOrder(t, s.lastResult(), "NOT_FOUND", "tab-3")
}

// pixel is an image.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// TestResults has a provider that answers with files and images, and says how
// far it is.
func TestResults(t *testing.T) {
	t.Parallel()
	s := newAgents(t).start(t)
	c := s.g.connect()
	c.send(message{"type": "auth", "token": s.read(".provider-token")})
	c.next("sessions")
	c.send(message{"type": "hello", "name": "camera", "protocolVersion": 2, "session": s.session,
		"tools": []message{{"name": "shoot", "description": "Takes a picture",
			"parameters": message{"type": "object"}}}})
	dir, _ := c.next("hello.ack")["persistDir"].(string)
	keep := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	image, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	turns := 0
	turn := func(result message) {
		t.Helper()
		asking := s.asking(s.session, "call:shoot")
		id := c.next("tool.call")["id"]
		c.send(message{"type": "tool.progress", "id": id, "message": "Capturing viewport... 60%"})
		c.send(with(message{"type": "tool.result", "id": id}, result))
		asking.wait(patience)
		turns++
	}
	// body is what the model got with the result.
	body := func() string { return string(request(t, s.m, 2*turns).Body) }

	turn(message{"file": message{"path": keep("report.txt", []byte("It was a sunny day.")),
		"mimeType": "text/plain", "ttl": 300}})
	if told := s.lastResult(); told != "It was a sunny day." {
		t.Errorf("of a text file the model was told %q, want %q", told, "It was a sunny day.")
	}
	turn(message{"file": message{"path": keep("shot.png", image), "mimeType": "image/png",
		"size": len(image), "ttl": 300}})
	if !strings.Contains(body(), pixel) {
		t.Errorf("the model was told %q, want the image of the file", s.lastResult())
	}
	turn(message{"file": message{"path": s.file("elsewhere"), "mimeType": "text/plain"}})
	if told := s.lastResult(); strings.Contains(told, "sunny") || told == "" {
		t.Errorf(
			"of a file elsewhere the model was told %q, want a refusal, not what the file holds",
			told)
	}
	turn(message{"data": message{"image": "data:image/png;base64," + pixel, "title": "a pixel"}})
	if n := strings.Count(body(), pixel); n < 2 || !strings.Contains(s.lastResult(), "a pixel") {
		t.Errorf(`two images reached the model %d times; it was told %q, want two and "a pixel"`, n,
			s.lastResult())
	}
	if n := len(s.timeline(s.session, "Capturing viewport... 60%")); n != 4 {
		t.Errorf("how far the provider is shows %d times in the timeline, want 4", n)
	}
}
