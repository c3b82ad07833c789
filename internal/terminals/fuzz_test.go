package terminals

import (
	"encoding/json"
	"testing"

	"tapgw/internal/terminals/hook"
)

// Whatever a CLI writes for a hook, it is an error or has arguments that gates can read, and its
// answers are known.
func FuzzHookInput(f *testing.F) {
	f.Add(hook.EventPreToolUse,
		[]byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolArgs":{"command":"ls"}}`))
	f.Add(hook.EventPreToolUse,
		[]byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolArgs":"{\"command\":\"ls\"}"}`))
	f.Add(hook.EventPermissionRequest,
		[]byte(`{"sessionId":"s1","cwd":"/","toolName":"bash","toolInput":null}`))
	f.Add(hook.EventPostToolUse,
		[]byte(`{"sessionId":"s1","cwd":"/","toolName":"b","toolResult":{"textResultForLlm":"x"}}`))
	f.Add(hook.EventAgentStop,
		[]byte(`{"sessionId":"s1","cwd":"/","stopReason":"end_turn","stop_hook_active":true}`))
	f.Add(hook.EventError, []byte(`{"sessionId":"s1","cwd":"/","error":{"message":"m"}}`))
	f.Fuzz(func(t *testing.T, event string, data []byte) {
		in, err := readInput(event, data)
		if err != nil {
			return
		}
		if !json.Valid(in.Args) {
			t.Errorf("args %q, want JSON", in.Args)
		}
		text, _ := resultText(in.Result)
		for _, a := range []hook.Answer{{}, {Deny: true, Reason: in.Tool},
			{Reason: in.Prompt, Context: quote(text)}} {
			if err := hook.CheckOutput(event, a.Output(event)); err != nil {
				t.Errorf("%s: %v", a.Output(event), err)
			}
		}
		_ = errorText(in.Error)
	})
}
