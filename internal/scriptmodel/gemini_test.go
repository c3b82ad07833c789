package scriptmodel

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Requests on the Gemini wire are read into the same shape as the others, and answered on it.
func TestGeminiWire(t *testing.T) {
	var seen *Request
	s, err := Start("127.0.0.1:0", func(r *Request) Reply {
		seen = r
		return Reply{Text: "so be it",
			ToolCalls: []ToolCall{{ID: "call_9", Name: "brew", Args: `{"cups":2}`}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const conversation = `{"systemInstruction":{"role":"user-less","parts":[{"text":"Be kind."}]},
		"tools":[{"functionDeclarations":[{"name":"brew","parametersJsonSchema":{"type":"object"}},{"name":"old","parameters":{}}]}],
		"contents":[
			{"role":"user","parts":[{"text":"tea, "},{"text":"please"}]},
			{"role":"model","parts":[{"text":"at once"},{"functionCall":{"id":"call_1","name":"brew","args":{"cups":1}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"call_1","name":"brew","response":{"output":"brewed"}}},{"text":"and now?"}]}]}`
	for method, want := range map[string][]string{
		":generateContent": {`"text":"so be it"`, `"args":{"cups":2}`, `"finishReason":"STOP"`},
		geminiStream: {`data: {`, `"text":"so "`, `"text":"it"`, `"args":{"cups":2}`,
			`"finishReason":"STOP"`},
	} {
		t.Run(method, func(t *testing.T) {
			resp, err := http.Post(
				s.Root()+"/v1beta/models/m"+method,
				"application/json",
				strings.NewReader(conversation),
			)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s, %v: %s, want no error and StatusCode %v", resp.Status, err, body,
					http.StatusOK)
			}
			for _, part := range want {
				if !strings.Contains(string(body), part) {
					t.Errorf("no %s in %s, want %q in it", part, body, part)
				}
			}
			if seen.Model != "m" || seen.System() != "Be kind." || seen.LastResult() != "brewed" ||
				seen.LastUser() != "and now?" || !seen.HasTool("brew") || !seen.HasTool("old") {
				t.Errorf(
					`read as %+v, tools %v, want Model "m", "Be kind.", "brewed", "and now?" and tools "brew" and "old"`,
					seen.Messages,
					seen.ToolNames(),
				)
			}
			var calls []ToolCall
			for _, m := range seen.Messages {
				calls = append(calls, m.ToolCalls...)
			}
			if len(calls) != 1 || calls[0].ID != "call_1" || calls[0].Args != `{"cups":1}` {
				t.Errorf(`calls %+v, want 1 of them, ID "call_1" and Args {"cups":1}`, calls)
			}
		})
	}
}
