package scriptmodel

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Requests on the Anthropic wire are read into the same shape as the others, and answered on it.
func TestAnthropicWire(t *testing.T) {
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
	const conversation = `"model":"m","system":[{"type":"text","text":"Be kind."}],
		"tools":[{"name":"brew","description":"Brews tea.","input_schema":{"type":"object"}}],
		"messages":[
			{"role":"user","content":"tea, please"},
			{"role":"assistant","content":[{"type":"text","text":"at once"},{"type":"tool_use","id":"call_1","name":"brew","input":{"cups":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"brewed"}]},{"type":"text","text":"and now?"}]}]`
	for stream, want := range map[string][]string{
		`"stream":false`: {`"stop_reason":"tool_use"`, `"text":"so be it"`, `"input":{"cups":2}`},
		`"stream":true`: {
			"event: message_start\n", `"type":"text_delta"`, `"text":"so "`, `"name":"brew"`,
			`"partial_json":"{\"cups\":2}"`,
			"event: content_block_stop\n", `"stop_reason":"tool_use"`, "event: message_stop\n",
		},
	} {
		t.Run(stream, func(t *testing.T) {
			resp, err := http.Post(
				s.Root()+"/v1/messages", "application/json",
				strings.NewReader("{"+conversation+","+stream+"}"),
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
				seen.LastUser() != "and now?" ||
				!seen.HasTool("brew") {
				t.Errorf(
					`read as %+v, tools %v, want Model "m", "Be kind.", "brewed", "and now?" and tool "brew"`,
					seen.Messages, seen.ToolNames(),
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
