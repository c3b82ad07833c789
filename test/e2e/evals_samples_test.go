//go:build e2e && linux

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/evals"
	"tapgw/internal/scriptmodel"
)

// evalSamples says what a model that does well makes of the cases of the directory evals: its
// calls, one after the other, at prompts that hold a text. It then says what the last of them
// returned.
var evalSamples = []struct {
	prompt string
	calls  []scriptmodel.ToolCall
}{
	{"to the stream releases", []scriptmodel.ToolCall{
		{Name: "tap_post", Args: `{"channel":"releases","message":"build 7 is green"}`},
		{Name: "tap_stream_history", Args: `{"channel":"releases"}`},
	}},
	{"the deployment failed",
		[]scriptmodel.ToolCall{{Name: "tap_stream_history", Args: `{"channel":"deploys"}`}}},
	{
		"Audit the claim",
		[]scriptmodel.ToolCall{{Name: "tap_audit_claims",
			Args: `{"claims":[{"claim":"no test failed",` +
				`"evidence":{"type":"file","path":"report.txt","contains":"failed: 0"}}]}`}},
	},
	{"Make it a goal",
		[]scriptmodel.ToolCall{{Name: "tap_goal_start", Args: `{"goal":"publish 1.4","turns":3,` +
			`"checks":[{"type":"command_evidence","tool":"publish","success":true}]}`}}},
	{"The goal is not met", []scriptmodel.ToolCall{{Name: "publish", Args: `{"version":"1.4"}`}}},
	{"Make a loop",
		[]scriptmodel.ToolCall{{Name: "tap_start_emitter",
			Args: `{"name":"left","prompt":"How many ` +
				`items are left?","every":"idle","maxRuns":2}`}}},
	{"In which mode", []scriptmodel.ToolCall{{Name: "tap_get_session_state"}}},
}

// sampleModel follows evalSamples, or makes only claims if it is lazy.
func sampleModel(isLazy bool) scriptmodel.ReplyFunc {
	return func(r *scriptmodel.Request) scriptmodel.Reply {
		done, at := 0, 0
		for i, m := range r.Messages {
			if m.Role == "user" && scriptmodel.Prompt(m.Text) != "" {
				done, at = 0, i
			}
			if m.Role == "tool" {
				done++
			}
		}
		for _, s := range evalSamples {
			switch {
			case isLazy || !strings.Contains(r.Messages[at].Text, s.prompt):
			case done < len(s.calls):
				return scriptmodel.Reply{ToolCalls: s.calls[done : done+1]}
			default:
				return scriptmodel.Reply{Text: "I looked: " + r.LastResult()}
			}
		}
		if !isLazy {
			return scriptmodel.Reply{Text: "I wait."}
		}
		return scriptmodel.Reply{Text: "All tests pass, the deployment worked, all is well."}
	}
}

// The cases of the repository pass with a model that does what they want, and fail with one that
// only says so.
func TestEvalSamples(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(repo, "evals")
	cases, err := configs.EvalCases(dir)
	if err != nil || len(cases) == 0 {
		t.Fatalf("got %d cases (%v), want some", len(cases), err)
	}
	for name, want := range map[string]string{"good": evals.Passed, "lazy": evals.Failed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			m := model(t, sampleModel(name == "lazy"))
			h.put("tapgw.toml", "[tap]\ntools = true\n")
			h.serve("--config", h.path("tapgw.toml"))
			code := map[string]int{evals.Passed: 0, evals.Failed: 1}[want]
			r := runEvals[evals.Report](h, m, code, "run", dir, "--concurrency", "4")
			for _, c := range r.Cases {
				if c.State != want {
					t.Errorf("case %s: got %s (%s), want %s", c.ID, c.State, c.Results[0].Why(),
						want)
				}
			}
			h.noSessions()
		})
	}
}
