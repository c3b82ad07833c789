package configs

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCopilotHooksAreRead(t *testing.T) {
	const file = ".github/hooks/x.json"
	entry := func(members string) string {
		return `{"version":1,"hooks":{"preToolUse":[{` + members + `}]}}`
	}
	for name, tt := range map[string]struct {
		text, runs, fault string
		on                string // "": pre_tool_use
		none              bool
		timeout           time.Duration
	}{
		"a command": {text: entry(`"type":"command","bash":"./a.sh"`), runs: "./a.sh",
			timeout: 5 * time.Second},
		"its time": {text: entry(`"type":"command","bash":"a","timeoutSec":2.5`), runs: "a",
			timeout: 2500 * time.Millisecond},
		"another event": {text: `{"hooks":{"agentStop":[{"type":"command","bash":"a","powershell":"b"}]}}`, runs: "a",
			on: HookAgentStop, timeout: 30 * time.Second},
		"a failure": {text: `{"hooks":{"postToolUseFailure":[{"type":"command","command":"a"}]}}`,
			runs: "a", on: HookPostToolUse, timeout: 30 * time.Second},
		"none":          {text: `{"version":1}`, none: true},
		"turned off":    {text: `{"disableAllHooks":true,"hooks":{"preToolUse":[{"type":"command","bash":"a"}]}}`, none: true},
		"an empty list": {text: `{"hooks":{"preToolUse":[]}}`, none: true},
		"no JSON":       {text: `// x`, fault: "it is no JSON with hooks"},
		"no list": {text: `{"hooks":{"preToolUse":{"type":"command"}}}`,
			fault: "hooks.preToolUse: is no list of hooks"},
		"no type": {text: entry(`"bash":"a"`),
			fault: `hooks.preToolUse[0].type: "" is not "command"`},
		"a URL": {text: entry(`"type":"http","url":"https://a"`),
			fault: "hooks.preToolUse[0].url: the gateway has no such member"},
		"a matcher": {text: entry(`"type":"command","bash":"a","matcher":"bash"`),
			fault: "[0].matcher: the gateway has no such member"},
		"no command": {text: entry(`"type":"command"`), fault: "[0].bash: is required"},
		"a number": {text: entry(`"type":"command","bash":5`),
			fault: "[0].bash: has another type"},
		"out of the project": {text: entry(`"type":"command","bash":"a","cwd":"../x"`),
			fault: `[0].cwd: "../x" is no directory of the project`},
		"negative time": {text: entry(`"type":"command","bash":"a","timeoutSec":-1`),
			fault: "[0].timeoutSec: must not be negative"},
		"an event that decides": {text: `{"hooks":{"permissionRequest":[{"type":"command","bash":"a"}]}}`,
			fault: "hooks.permissionRequest: the gateway has no such event; it has agentStop, errorOccurred"},
		"another form": {text: `{"hooks":{"PreToolUse":[{"matcher":"*","hooks":[]}]}}`,
			fault: "hooks.PreToolUse: the gateway has no such event"},
		"an event that does not decide": {text: `{"hooks":{"preCompact":[{"type":"command","bash":"a"}]}}`,
			fault: "hooks.preCompact: the gateway has no such event", on: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			list := parseCopilotHooks(file, []byte(tt.text))
			if tt.none != (len(list) == 0) || len(list) > 1 {
				t.Fatalf("got %+v, want one hook: %v", list, !tt.none)
			}
			if tt.none {
				return
			}
			on := tt.on
			if on == "" {
				on = HookPreToolUse
			}
			h := list[0]
			if h.On != strings.Trim(on, "-") || h.File != file ||
				!strings.Contains(h.Fault, tt.fault) || tt.fault == "" && h.Fault != "" {
				t.Errorf("got %+v, want one on %s with the fault %q", h, on, tt.fault)
			}
			if tt.runs != "" && (len(h.Command) != 3 || h.Command[2] != tt.runs ||
				h.Timeout != tt.timeout) {
				t.Errorf("runs %q within %v, want %q within %v", h.Command, h.Timeout, tt.runs,
					tt.timeout)
			}
		})
	}
}

// Hooks count in a trusted project, as they were when the user trusted them, and tapgw trust shows
// them before.
func TestCopilotHooksAreTrusted(t *testing.T) {
	atHome(t)
	dir := real(t)
	write(t, filepath.Join(dir, ".github/hooks/a/x.json"),
		`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"./gate.sh","cwd":"tools"}],"preCompact":[{"bash":"x"}]}}`)
	write(t, filepath.Join(dir, ".github/hooks/tapgw.json"),
		`{"hooks":{"preToolUse":[{"type":"command","bash":"tapgw hook"}]}}`)
	write(t, filepath.Join(dir, ".github/lsp.json"),
		`{"lspServers":{"z":{"command":"./server","args":["--x"],"fileExtensions":{".z":"z"}}}}`)
	write(t, filepath.Join(dir, ".github/hooks/notes.txt"),
		`{"hooks":{"preToolUse":[{"type":"command","bash":"x"}]}}`)
	write(t, filepath.Join(dir, ".github/copilot/settings.json"), `{"model":"x"}`)
	write(t, filepath.Join(dir, "below/x"), "")
	if list, err := (Files{}).CopilotHooks(dir); err != nil || list != nil {
		t.Errorf("untrusted: got %+v, %v, want none", list, err)
	}
	counts, err := WhatCounts(dir)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, c := range counts {
		shown[c.File] = c.What
	}
	for file, want := range map[string]string{
		".github/hooks/a/x.json":        "preToolUse runs ./gate.sh; hooks.preCompact: the gateway has no such event",
		".github/lsp.json":              "its language servers: z, which runs ./server --x",
		".github/copilot/settings.json": "nothing, it has no hooks",
		".github/hooks/tapgw.json":      "terminals here ask the gateway",
	} {
		if !strings.Contains(shown[file], want) {
			t.Errorf("%s is shown as %q, want %q in it", file, shown[file], want)
		}
	}
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, filepath.Join(dir, "below")} {
		list, err := (Files{}).CopilotHooks(at)
		if err != nil || len(list) != 2 || list[1].Command[2] != "./gate.sh" ||
			list[1].Dir != filepath.Join(dir,
				"tools") ||
			list[1].Project != dir {
			t.Fatalf("%s: got %+v, %v, want the gate and a fault", at, list, err)
		}
	}
	write(t, filepath.Join(dir, ".github/hooks/a/x.json"), `{}`)
	write(t, filepath.Join(dir, ".github/hooks/new.json"),
		`{"hooks":{"preToolUse":[{"type":"command","bash":"x"}]}}`)
	list, err := (Files{}).CopilotHooks(dir)
	if err != nil || len(list) != 2 || list[1].Command[2] != "./gate.sh" {
		t.Errorf("changed: got %+v, %v, want those that were trusted", list, err)
	}
	if err := Unchanged(dir, list[1].File); err == nil {
		t.Error("the changed file is said to be unchanged")
	}
	if list, _ := (Files{isNamed: true}).CopilotHooks(dir); list != nil {
		t.Errorf("with a named config: got %+v, want none", list)
	}
}

// No file makes a hook that decides about calls go unseen: it runs, or it denies.
func FuzzCopilotHooks(f *testing.F) {
	for _, s := range []string{
		`{"hooks":{"preToolUse":[{"type":"command","bash":"a"}]}}`,
		`{"hooks":{"PreToolUse":5,"agentStop":{}}}`, `{`,
		`null`,
		`{"hooks":{"preToolUse":[null]},"hooks":{}}`,
		`{"hooks":{"preToolUse":[{"type":"command","bash":"a","env":{"A":"b"}}]}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, h := range parseCopilotHooks(".github/hooks/x.json", []byte(text)) {
			switch {
			case (h.Fault == "") != (len(h.Command) == 3):
				t.Errorf("%+v neither runs nor has a fault", h)
			case h.On == HookPreToolUse && (h.Timeout <= 0 || h.Timeout > maxGateTimeout):
				t.Errorf("%+v is a gate with that time", h)
			case h.On == "" && h.Fault == "":
				t.Errorf("%+v is of no kind", h)
			}
		}
		_ = describeCopilotHooks(".github/hooks/x.json", []byte(text))
	})
}
