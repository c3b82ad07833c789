package terminals

import (
	"encoding/json"
	"testing"
)

// Whatever a CLI writes for a hook, it is an error or has arguments that gates can read, and its answers are known.
func FuzzHookInput(f *testing.F) {
	f.Add(EventPreToolUse, []byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolArgs":{"command":"ls"}}`))
	f.Add(EventPreToolUse, []byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolArgs":"{\"command\":\"ls\"}"}`))
	f.Add(EventPermissionRequest, []byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolInput":null}`))
	f.Add(EventPostToolUse, []byte(`{"sessionId":"s1","cwd":"/","toolName":"b","toolResult":{"textResultForLlm":"x"}}`))
	f.Add(EventAgentStop, []byte(`{"sessionId":"s1","cwd":"/","stopReason":"end_turn","stop_hook_active":true}`))
	f.Add(EventError, []byte(`{"sessionId":"s1","cwd":"/","error":{"message":"m"}}`))
	f.Fuzz(func(t *testing.T, event string, data []byte) {
		in, err := readInput(event, data)
		if err != nil {
			return
		}
		if !json.Valid(in.Args) {
			t.Errorf("args %q, want JSON", in.Args)
		}
		text, _ := resultText(in.Result)
		for _, a := range []answer{{}, {deny: true, reason: in.Tool}, {reason: in.Prompt, context: quote(text)}} {
			if err := CheckOutput(event, a.output(event)); err != nil {
				t.Errorf("%s: %v", a.output(event), err)
			}
		}
		_ = errorText(in.Error)
	})
}
