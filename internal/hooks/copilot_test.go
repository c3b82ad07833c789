package hooks

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/adrg/xdg"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// trustedHook is a hook of a project that the user trusts, whose command is a script.
func trustedHook(t *testing.T, event, script string) (dir string, hooks []gateway.Hook) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"version": 1, "hooks": map[string]any{
		event: []any{map[string]any{"type": "command", "bash": script,
			"env": map[string]string{"MINE": "mine"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".github", "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".github", "hooks", "x.json"), text,
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := configs.Trust(dir); err != nil {
		t.Fatal(err)
	}
	list, err := configs.Files{}.CopilotHooks(dir)
	if err != nil {
		t.Fatal(err)
	}
	hooks, faults := Copilot(list, nil)
	if len(hooks) != 1 || faults != nil {
		t.Fatalf("got %+v and the faults %q, want one hook and none", hooks, faults)
	}
	return dir, hooks
}

func TestCopilotHookAnswers(t *testing.T) {
	say := func(answer string) string { return "cat >/dev/null; echo '" + answer + "'" }
	for name, tt := range map[string]struct {
		event, script     string
		want, fault, deny string
	}{
		"silence": {"preToolUse", "cat", "", `answer: the gateway does not do`, ""},
		"nothing": {"preToolUse", "exit 0", "", "", ""},
		"an allowance": {"preToolUse", say(`{"permissionDecision":"allow"}`),
			`{"decision":"","reason":"","context":""}`, "", ""},
		"a denial": {"preToolUse",
			say(`{"permissionDecision":"deny","permissionDecisionReason":"no"}`),
			`"decision":"deny","reason":"no"`, "", ""},
		"a question": {"preToolUse", say(`{"permissionDecision":"ask"}`), "",
			"the gateway asks nobody for a hook", ""},
		"another decision": {"preToolUse", say(`{"permissionDecision":"maybe"}`), "",
			`"maybe" is not known`, ""},
		"other arguments": {"preToolUse", say(`{"permissionDecision":"allow","modifiedArgs":{}}`),
			"",
			`does not do "modifiedArgs"`, ""},
		"no JSON":      {"preToolUse", say("yes"), "", "did not answer with JSON", ""},
		"an exit code": {"preToolUse", "echo no >&2; exit 2", "", "", "no"},
		"context": {"userPromptSubmitted", say(`{"additionalContext":"more"}`),
			`"context":"more"`, "", ""},
		"go on": {"agentStop", say(`{"decision":"block","reason":"not yet"}`),
			`"decision":"deny","reason":"not yet"`, "", ""},
		"its input": {"preToolUse", `grep -q '"sessionId":"s1".*"toolArgs":{"command":"x"},"toolName":"bash"' || exit 1
			test "$PWD" = "$COPILOT_PROJECT_DIR" && test "$MINE" = mine`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, hooks := trustedHook(t, tt.event, tt.script)
			event, err := json.Marshal(gateway.HookEvent{On: hooks[0].On, TS: time.Now(),
				Session: "s1", Tool: "bash",
				Args: []byte(`{"command":"x"}`)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := hooks[0].Ask(t.Context(), event)
			denial, denied := errors.AsType[*gateway.HookDenial](err)
			switch {
			case tt.deny != "":
				if !denied || denial.Reason != tt.deny {
					t.Errorf("failed with %v, want the denial %q", err, tt.deny)
				}
			case tt.fault != "":
				if err == nil || denied || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("failed with %v, want %q", err, tt.fault)
				}
			case err != nil || !strings.Contains(string(got), tt.want):
				t.Errorf("said %q, %v; want %q in it", got, err, tt.want)
			}
		})
	}
}

// A hook of a file that has changed is not run; it can't tell, which denies a call.
func TestCopilotHookOfAChangedFile(t *testing.T) {
	dir, hooks := trustedHook(t, "preToolUse", "touch ran")
	event := []byte(`{"on":"pre_tool_use","tool":"bash","args":{}}`)
	if err := os.WriteFile(filepath.Join(dir, ".github", "hooks", "x.json"), []byte("{}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := hooks[0].Ask(t.Context(), event); err == nil ||
		!strings.Contains(err.Error(), "tapgw trust "+dir) {
		t.Errorf("failed with %v, want the command that trusts it", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a hook of a changed file ran")
	}
	if hooks, faults := Copilot(nil, errors.New("no record")); len(hooks) != 1 || len(faults) != 1 {
		t.Errorf("got %+v, %q, want a hook that denies where trust can't be read", hooks, faults)
	} else if _, err := hooks[0].Ask(t.Context(), event); err == nil {
		t.Error("allowed where trust can't be read")
	}
}

func TestCopilotHookInputs(t *testing.T) {
	for _, tt := range []struct{ name, event, want string }{
		{"userPromptSubmitted", `{"prompt":"hi"}`, `"prompt":"hi"`},
		{"postToolUse", `{"tool":"a","args":{"x":1},"result":"r"}`,
			`"toolResult":{"resultType":"success","textResultForLlm":"r"}`},
		{"postToolUse", `{"tool":"a","args":{},"error":"e"}`, ""},
		{"postToolUseFailure", `{"tool":"a","args":{},"error":"e"}`, `"error":"e"`},
		{"postToolUseFailure", `{"tool":"a","args":{},"result":"r"}`, ""},
		{"agentStop", `{"reason":"end_turn","again":true}`, `"stopReason":"end_turn"`},
		{"sessionStart", `{}`, `"source":"new"`},
		{"sessionEnd", `{"reason":"r"}`, `"reason":"r"`},
		{"errorOccurred", `{"error":"e"}`, `"error":{"message":"e"}`},
	} {
		in, isMeant, err := copilotInput(tt.name, []byte(tt.event))
		if err != nil || isMeant != (tt.want != "") || isMeant &&
			!strings.Contains(string(in), tt.want) {
			t.Errorf("%s %s: %s, %v, %v, want %q in it", tt.name, tt.event, in, isMeant, err,
				tt.want)
		}
	}
}
