//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/evals"
	"tapgw/internal/scriptmodel"
)

// evalModel is a model that calls a tool whose description says that it is for its question, and
// that judges: the model named blind lets everything pass.
func evalModel(r *scriptmodel.Request) scriptmodel.Reply {
	last := r.Messages[len(r.Messages)-1]
	prompt := scriptmodel.Prompt(r.LastUser())
	switch {
	case strings.HasPrefix(prompt, "You judge"):
		return scriptmodel.Reply{Text: evalVerdict(r.Model, prompt)}
	case last.Role == "tool":
		return scriptmodel.Reply{Text: "They say: " + last.Text}
	case strings.Contains(prompt, "weather"):
		for _, tool := range r.Tools {
			if tool.Name == "lookup" && strings.Contains(tool.Description, "weather") {
				return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "lookup",
					Args: `{"city":"Oslo"}`}}}
			}
		}
		return scriptmodel.Reply{Text: "I can't know."}
	case strings.Contains(prompt, "tests"):
		return scriptmodel.Reply{Text: "All tests pass now.\x1b]0;owned\a"}
	}
	return scriptmodel.Reply{Text: "Noted."}
}

// evalVerdict judges whether an answer names the rain.
func evalVerdict(model, prompt string) string {
	_, data, _ := strings.Cut(prompt, "\n\n")
	data, _, _ = strings.Cut(data, "\n\n")
	var asked struct{ Answer string }
	if err := json.Unmarshal([]byte(data), &asked); err != nil {
		return err.Error()
	}
	_, key, _ := strings.Cut(prompt, `{"key":"`)
	key, _, _ = strings.Cut(key, `"`)
	return fmt.Sprintf(
		"My verdict:\n```json\n{\"key\":%q,\"verdicts\":[{\"id\":1,\"pass\":%t,\"reason\":\"rain\"}]}\n```",
		key,
		model == "blind" || strings.Contains(asked.Answer, "rain"),
	)
}

const evalLookup = `
[[provider]]
name = "world"
[[provider.tool]]
name = "lookup"
description = %q
parameters = '{"type":"object","properties":{"city":{"type":"string"}}}'
[[provider.tool.answer]]
json = '{"sky":"rain"}'
[[expect.call]]
tool = "lookup"
args = "Oslo"
outcome = "ok"
`

// evals runs tapctl evals against a home's gateway, and returns its report.
func runEvals[T any](h *home, m *scriptmodel.Server, code int, args ...string) (report T) {
	h.t.Helper()
	args = append([]string{"evals"}, append(args, "--provider-url", m.URL, "--model",
		scriptmodel.ModelID, "--json")...)
	r := h.run(tapctl, args...)
	if r.code != code {
		h.t.Fatalf("tapctl %q: exit code %d, want %d: %s %s", args, r.code, code, r.stderr,
			r.stdout)
	}
	return decode[T](h.t, r.stdout)
}

// evalDirs makes the directories of cases and variants.
func (h *home) evalDirs() {
	h.t.Helper()
	if err := os.MkdirAll(h.path("cases/variants"), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

// noSessions checks that evaluations left no session, neither one that runs nor one on disk.
func (h *home) noSessions() {
	h.t.Helper()
	for _, list := range [][]string{{"sessions", "--json"},
		{"sessions", "list", "--persisted", "--json"}} {
		if left := decode[[]adminapi.Session](h.t, h.tapctl(list...)); len(left) > 0 {
			h.t.Errorf("tapctl %q: %d sessions are left, want none: %+v", list, len(left), left)
		}
	}
}

func TestEvals(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, evalModel)
	h.serve()
	h.evalDirs()
	weather := "prompt = 'What is the weather in Oslo?'\nrepeat = 2\n" + fmt.Sprintf(evalLookup,
		"Tell the weather")
	judge :=
		"[judge]\nrubric = 'It names the rain.'\npass = ['There is rain.']\nfail = ['I see no clouds.']\n"
	h.put("cases/weather.toml", weather+judge)
	h.put("cases/claim.toml", "prompt = 'Fix the tests'\n[[prohibited]]\ntext = 'the tests pass'\n"+
		"pattern = 'tests pass'\nunless_call = 'run_tests'\n")
	h.put("cases/missing.toml", "prompt = 'Fix the tests'\n[[expect.call]]\ntool = 'run_tests'\n")

	r := runEvals[evals.Report](h, m, 1, "run", h.path("cases"), "--artifacts", h.path("out"))
	want := map[string]string{
		"weather": "passed 2/2", "claim": "failed 0/1 prohibited: it says: the tests pass",
		"missing": "failed 0/1 call run_tests: 0 calls, want at least 1",
	}
	for _, c := range r.Cases {
		got := strings.TrimSpace(fmt.Sprintf("%s %d/%d %s", c.State, c.Passed, c.Decided,
			c.Results[0].Why()))
		if got != want[c.ID] {
			t.Errorf("case %s: got %q, want %q", c.ID, got, want[c.ID])
		}
		if c.ID == "weather" && (c.Tokens == 0 || c.Calls != 1) {
			t.Errorf("case weather: %v tokens and %v calls, want some and 1", c.Tokens, c.Calls)
		}
	}
	if len(r.Cases) != len(want) || r.State != evals.Failed {
		t.Errorf("got %d cases and %s, want %d and failed", len(r.Cases), r.State, len(want))
	}
	if text, err := os.ReadFile(h.path("out/claim.1.jsonl")); err != nil ||
		!strings.Contains(string(text), "tests pass") {
		t.Errorf("the transcript is %q (%v), want what the model said", text, err)
	}
	h.noSessions()

	// A judge that lets everything pass is found out, and its verdicts don't count.
	r = runEvals[evals.Report](h, m, 1, "run", h.path("cases"), "--case", "weather",
		"--judge-model", "blind")
	if c := r.Cases[0]; c.State != evals.Undecided || len(c.Judge) != 1 ||
		c.Judge[0] != "fail[0]: it passes" || c.Decided != 0 {
		t.Errorf(
			"with a blind judge: got %+v, want undecided because of the example that must fail", c)
	}
	h.noSessions()
}

func TestEvalsOptimize(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, evalModel)
	h.serve()
	h.evalDirs()
	h.put("cases/weather.toml", "prompt = 'What is the weather in Oslo?'\n"+fmt.Sprintf(evalLookup,
		"Looks things up"))
	h.put("cases/variants/clear.toml",
		"title = 'Says what for'\n[tools]\nlookup = 'Tell the weather of a city'\n")
	h.put("cases/variants/polite.toml", "prompt = 'Please: {prompt}'\n")
	r := runEvals[evals.Ranking](h, m, 0, "optimize", h.path("cases"), "--repeat", "8",
		"--concurrency", "4")
	var got []string
	for _, v := range r.Variants {
		got = append(
			got,
			fmt.Sprintf("%s %s %+.0f %d/%d base %d/%d", v.Name, v.Verdict, 100*v.Difference,
				v.Sums.Passed, v.Sums.Decided, v.Base.Passed, v.Base.Decided),
		)
	}
	want := "clear better +100 8/8 base 0/8, polite noise +0 0/8 base 0/8"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if first, last := r.Variants[0], r.Variants[1]; first.Low < 0.4 || last.Low >= 0 ||
		last.High <= 0 {
		t.Errorf(
			"got the intervals from %.2f and from %.2f to %.2f, want one above 0.4 and one around 0", first.Low,
			last.Low, last.High)
	}
	h.noSessions()
}
